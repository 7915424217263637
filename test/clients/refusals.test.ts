// What each client does when a whole answer is not proven: it throws an error of its own with our code, after one backend call.

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import Anthropic from '@anthropic-ai/sdk';
import { ChatOpenAI } from '@langchain/openai';
import { APICallError, generateText } from 'ai';
import OpenAI from 'openai';
import { describe, expect, it } from 'vitest';
import { createCountersign } from '../../verify/clients/ai-sdk.ts';
import { UnprovenAnswerError, type VerifyingFetchOptions, verifyingFetch } from '../../verify/clients/fetch.ts';
import { ChatCountersign } from '../../verify/clients/langchain.ts';
import { answer, chatAnswer } from '../support/backend.ts';
import { messageBody } from '../support/named-streams.ts';
import { useService } from '../support/service.ts';

const service = useService();
const QUESTION = 'Hi';
const COMMON = { model: 'm', apiKey: 'any' };
const messages = [{ role: 'user' as const, content: QUESTION }];

/** Each with the retries that it has by itself. */
const CLIENTS: Readonly<Record<string, (options: VerifyingFetchOptions) => Promise<unknown>>> = {
  openai: (options) =>
    new OpenAI({ ...COMMON, baseURL: `${service.url}/v1`, fetch: verifyingFetch(options) }).chat.completions.create({
      model: 'm',
      messages,
    }),
  '@anthropic-ai/sdk': (options) =>
    new Anthropic({ ...COMMON, baseURL: service.url, fetch: verifyingFetch(options) }).messages.create({
      model: 'm',
      max_tokens: 5,
      messages,
    }),
  'LangChain, ChatOpenAI': (options) =>
    new ChatOpenAI({
      ...COMMON,
      configuration: { baseURL: `${service.url}/v1`, fetch: verifyingFetch(options) },
    }).invoke(QUESTION),
  'LangChain, ChatCountersign': (options) =>
    new ChatCountersign({ ...COMMON, configuration: { baseURL: `${service.url}/v1` }, verify: options }).invoke(
      QUESTION,
    ),
  'AI SDK, createOpenAICompatible': (options) =>
    generateText({
      model: createOpenAICompatible({ name: 'x', baseURL: `${service.url}/v1`, fetch: verifyingFetch(options) })('m'),
      prompt: QUESTION,
    }),
  'AI SDK, createCountersign': (options) =>
    generateText({
      model: createCountersign({ baseURL: `${service.url}/v1`, verify: options })('m'),
      prompt: QUESTION,
    }),
};

type Network = typeof fetch;
const changing =
  (change: (text: string) => string): Network =>
  async (input, init) => {
    const response = await fetch(input, init);
    const type = response.headers.get('content-type') ?? '';
    return new Response(change(await response.text()), { status: response.status, headers: { 'content-type': type } });
  };

const broken: Network = async (input, init) => {
  const text = await (await fetch(input, init)).text();
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(new TextEncoder().encode(text.slice(0, 40)));
    },
    pull(controller) {
      controller.error(new TypeError('terminated'));
    },
  });
  return new Response(body, { headers: { 'content-type': 'application/json' } });
};

/** What goes wrong, the code that the client's error must have, and what its message must say. */
const REFUSALS: Readonly<Record<string, readonly [code: string, options: VerifyingFetchOptions, words: string]>> = {
  'a changed answer': [
    'response_mismatch',
    { fetch: changing((text) => text.replace('Hello.', 'Hullo.')) },
    'another answer was signed than arrived',
  ],
  'no attestation': [
    'attestation_missing',
    { fetch: changing((text) => text.replace(/,"attestation":.*\}$/s, '}')) },
    'ended without an attestation',
  ],
  'another request': [
    'request_mismatch',
    { fetch: (input, init) => fetch(input, { ...init, body: String(init?.body).replace('Hi', 'Ho') }) },
    'another request was signed than was sent',
  ],
  'an answer of another type': [
    'response_not_provable',
    {
      fetch: async (input, init) =>
        new Response(await (await fetch(input, init)).text(), { headers: { 'content-type': 'text/html' } }),
    },
    'a status or a type that no proof covers',
  ],
  'an answer that breaks off': ['response_broken', { fetch: broken }, 'broke off before its end'],
  'an answer that is too large': ['response_too_large', { max_stream_bytes: 100 }, 'larger than what is kept'],
  'a proof that is too old': [
    'too_old',
    { at: new Date(Date.now() + 3_600_000) },
    'seconds old; at most 300 are accepted',
  ],
  'a level that is too low': ['policy_refused', { policy: { minLevel: 'gpu' } }, 'the level is none; you demand gpu'],
  'a simulated GPU that was not named': [
    'simulated_root_refused',
    {},
    'the GPU is simulated: pass its root (simulatedRoot)',
  ],
};

/** All that an error has for a program to read. */
function codeIn(error: unknown): unknown {
  if (APICallError.isInstance(error)) return JSON.parse(error.responseBody ?? '{}').error?.code;
  if (error instanceof Anthropic.APIError) return (error.error as { error?: { code?: string } }).error?.code;
  return (error as { code?: unknown }).code;
}

describe.each(Object.entries(CLIENTS))('%s', (name, ask) => {
  it.each(Object.entries(REFUSALS))(
    'throws for %s, after one backend call, and its message has the cause',
    async (what, [code, options, words]) => {
      service.backend.script =
        name === '@anthropic-ai/sdk'
          ? answer(JSON.stringify(messageBody([{ type: 'text', text: 'Hello.' }])))
          : chatAnswer('Hello.');
      const before = service.backend.seen.length;
      const simulatedRoot = service.sidecar.attester.simulated?.root;
      const told: string[] = [];
      const error = await ask({
        ...(what.startsWith('a simulated GPU') ? {} : { simulatedRoot }),
        onUnproven: (one) => void told.push(one.code),
        ...options,
      }).catch((cause: unknown) => cause);
      expect(error).toBeInstanceOf(Error);
      expect((error as Error).message).toContain(words);
      expect(error).not.toBeInstanceOf(UnprovenAnswerError);
      expect([codeIn(error), told, service.backend.seen.length - before]).toEqual([code, [code], 1]);
    },
  );
});
