// @langchain/openai (npm): it drops members it does not know, unless asked for the raw response; the completion's id finds the attestation.
import type { AIMessageChunk } from '@langchain/core/messages';
import { ChatOpenAI, OpenAI } from '@langchain/openai';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { attestationById } from '../../examples/by-id.ts';
import { attestationOf } from '../../examples/langchain.ts';
import { type Client, type Heard, listen, openaiFailure, type Question, WEATHER } from './driver.ts';
import { npmName } from './matrix.ts';
import { expectProof, recorder } from './proof.ts';
import { serviceOf } from './service.ts';
import { suite } from './suite.ts';

const { matrix, service } = serviceOf('langchain');

function fields({ baseURL, apiKey, model, tee }: Question, fetch: typeof globalThis.fetch) {
  const wanted = tee === 'wrong' ? 'yes' : true;
  return {
    model,
    apiKey,
    maxRetries: 0,
    modelKwargs: tee === 'body' || tee === 'wrong' ? { tee: wanted } : {},
    configuration: { baseURL, fetch, ...(tee === 'header' ? { defaultHeaders: { 'x-tee': '1' } } : {}) },
  };
}

async function chat(question: Question, heard: Heard, fetch: typeof globalThis.fetch): Promise<string | undefined> {
  const model = new ChatOpenAI({ ...fields(question, fetch), __includeRawResponse: true });
  const bound = question.tools ? model.bindTools([{ type: 'function', function: { ...WEATHER } }]) : model;
  if (question.delivery === 'whole') {
    const message = await bound.invoke(question.content);
    const call = message.tool_calls?.[0];
    heard.text = call === undefined ? message.text : JSON.stringify(call.args);
    heard.finish = (message.response_metadata as { finish_reason?: string }).finish_reason ?? null;
    heard.found['additional_kwargs.__raw_response'] = attestationOf(message);
    return message.id;
  }
  let all: AIMessageChunk | undefined;
  let found: unknown;
  for await (const chunk of await bound.stream(question.content)) {
    heard.text += chunk.tool_call_chunks?.[0]?.args ?? chunk.text;
    heard.finish = (chunk.response_metadata as { finish_reason?: string }).finish_reason ?? heard.finish;
    found ??= attestationOf(chunk);
    all = all === undefined ? chunk : all.concat(chunk);
    if (question.leave && heard.text !== '') break;
  }
  heard.found['last chunk .additional_kwargs.__raw_response'] = found;
  heard.found['concatenated chunks .additional_kwargs.__raw_response'] =
    all === undefined ? undefined : attestationOf(all);
  return all?.id;
}

/** The class for text completions hands out no id and no unknown member: only a fetch of one's own sees the header. */
async function text(question: Question, heard: Heard, fetch: typeof globalThis.fetch): Promise<void> {
  const model = new OpenAI({ ...fields(question, fetch), streaming: question.delivery === 'stream' });
  const { generations } = await model.generate([question.content]);
  heard.text = generations[0]?.[0]?.text ?? '';
  heard.finish = (generations[0]?.[0]?.generationInfo?.finishReason as string | undefined) ?? null;
}

const client: Client = {
  name: npmName('@langchain/openai'),
  asks: { body: 'modelKwargs: {tee: true}', header: 'configuration.defaultHeaders' },
  errors: {
    400: 'BadRequestError',
    401: 'AuthenticationError',
    429: 'RateLimitError',
    503: 'InternalServerError',
  },
  endpoints: ['chat', 'text'],
  ask(question) {
    const recorded = recorder();
    return listen(
      async (heard) => {
        const id =
          question.endpoint === 'chat'
            ? await chat(question, heard, recorded.fetch)
            : await text(question, heard, recorded.fetch).then(recorded.attestationId);
        if (question.tee === 'off' || question.leave) return;
        const where = question.endpoint === 'chat' ? 'GET by message.id' : 'GET by x-attestation-id';
        heard.found[where] = await attestationById({ ...question, id: id ?? '', text: question.endpoint === 'text' });
      },
      openaiFailure,
      recorded.body,
    );
  },
};

describe(client.name, () => {
  suite(client, matrix, service);

  it('drops the attestation unless it is told to keep the raw response', async () => {
    const { fetch } = recorder();
    const model = new ChatOpenAI({
      model: 'hello',
      apiKey: service().key,
      modelKwargs: { tee: true },
      configuration: { baseURL: service().url, fetch },
    });
    expect(JSON.stringify(await model.invoke('Hi'))).not.toContain('attestation');
  });

  it('finds the proof of a structured answer beside what was parsed', async () => {
    const recorded = recorder();
    const model = new ChatOpenAI({
      model: 'tools',
      apiKey: service().key,
      modelKwargs: { tee: true },
      configuration: { baseURL: service().url, fetch: recorded.fetch },
      __includeRawResponse: true,
    }).withStructuredOutput(z.object({ city: z.string() }), {
      name: 'get_weather',
      method: 'functionCalling',
      includeRaw: true,
    });
    const { raw, parsed } = await model.invoke('Weather in Paris?');
    expect(parsed).toEqual({ city: 'Paris' });
    await expectProof(service(), attestationOf(raw), { text: '{"city":"Paris"}', sent: recorded.body() });
    matrix.passed(client.name, 'whole', { asked: client.asks.body, found: 'withStructuredOutput({includeRaw}): raw' });
  });

  it('is ended by a signal, and the backend sees it', async () => {
    const content = `Never end. (${client.name} signal)`;
    const leaving = new AbortController();
    const model = new ChatOpenAI({
      model: 'endless',
      apiKey: service().key,
      maxRetries: 0,
      modelKwargs: { tee: true },
      configuration: { baseURL: service().url },
    });
    await expect(async () => {
      for await (const chunk of await model.stream(content, { signal: leaving.signal }))
        if (chunk.text !== '') leaving.abort();
    }).rejects.toMatchObject({ name: 'AbortError' });
    await service().left(content, 1_000);
  });
});
