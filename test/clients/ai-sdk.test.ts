// ai + @ai-sdk/openai-compatible (npm): examples/ai-sdk.ts carries the attestation into the provider metadata.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, generateText, jsonSchema, streamText, type ToolSet, tool } from 'ai';
import { describe, expect, it } from 'vitest';
import { attestationExtractor } from '../../examples/ai-sdk.ts';
import { attestationById } from '../../examples/by-id.ts';
import { type Client, type Failure, type Heard, listen, type Question, WEATHER } from './driver.ts';
import { npmName, npmVersion } from './matrix.ts';
import { expectProof, recorder } from './proof.ts';
import { ANSWER } from './scripts.ts';
import { serviceOf } from './service.ts';
import { suite } from './suite.ts';

const { matrix, service } = serviceOf('ai-sdk');
// It warns that text completions know no tool choice, whether or not one was made.
globalThis.AI_SDK_LOG_WARNINGS = false;

function provider({ baseURL, apiKey, tee }: Question, fetch: typeof globalThis.fetch) {
  return createOpenAICompatible({
    name: 'countersign',
    baseURL,
    apiKey,
    fetch,
    includeUsage: true,
    metadataExtractor: attestationExtractor,
    ...(tee === 'header' ? { headers: { 'x-tee': '1' } } : {}),
  });
}

function settings(question: Question, fetch: typeof globalThis.fetch) {
  const { model, content, tee, tools, endpoint } = question;
  const from = provider(question, fetch);
  const given: Record<string, boolean | string> =
    tee === 'body' ? { tee: true } : tee === 'wrong' ? { tee: 'yes' } : {};
  const weather = tool({
    description: WEATHER.description,
    inputSchema: jsonSchema<{ city: string }>({ ...WEATHER.parameters, required: ['city'] }),
  });
  return {
    model: endpoint === 'chat' ? from.chatModel(model) : from.completionModel(model),
    prompt: content,
    maxRetries: 0,
    providerOptions: { countersign: given },
    tools: (tools ? { [WEATHER.name]: weather } : {}) as ToolSet,
  };
}

/** Found also by the ids: of the completion, where the endpoint's answers have provider metadata at all. */
interface Ended {
  readonly providerMetadata: Record<string, Record<string, unknown>> | undefined;
  readonly id: string | undefined;
}

async function whole(question: Question, heard: Heard, fetch: typeof globalThis.fetch): Promise<Ended> {
  const result = await generateText(settings(question, fetch));
  const call = result.toolCalls[0];
  heard.text = call === undefined ? result.text : JSON.stringify(call.input);
  heard.finish = result.finishReason;
  return { providerMetadata: result.providerMetadata, id: result.response.id };
}

async function stream(question: Question, heard: Heard, fetch: typeof globalThis.fetch): Promise<Ended> {
  const leaving = new AbortController();
  const result = streamText({ ...settings(question, fetch), abortSignal: leaving.signal, onError: () => {} });
  let ended: Ended = { providerMetadata: undefined, id: undefined };
  for await (const part of result.fullStream) {
    if (part.type === 'text-delta') heard.text += part.text;
    if (part.type === 'tool-input-delta') heard.text += part.delta;
    if (part.type === 'finish-step') {
      heard.finish = part.finishReason;
      ended = { providerMetadata: part.providerMetadata, id: part.response.id };
    }
    // In this client's stream an error is a part like any other; a program that reads it throws it.
    if (part.type === 'error') throw part.error;
    if (question.leave && heard.text !== '') leaving.abort();
  }
  return ended;
}

function failureOf(error: unknown): Failure {
  if (!APICallError.isInstance(error)) {
    const { code, message } = error as { code?: string; message?: string };
    return { type: (error as Error).constructor.name, status: null, code: code ?? null, message: message ?? '' };
  }
  const body = error.data as { error?: { code?: string } } | undefined;
  return {
    type: error.constructor.name,
    status: error.statusCode ?? null,
    code: body?.error?.code ?? null,
    message: error.message,
  };
}

const client: Client = {
  name: `ai ${npmVersion('ai')} + ${npmName('@ai-sdk/openai-compatible')}`,
  asks: { body: 'providerOptions: {NAME: {tee: true}}', header: 'headers' },
  errors: { 400: 'APICallError', 401: 'APICallError', 429: 'APICallError', 503: 'APICallError' },
  endpoints: ['chat', 'text'],
  ask(question) {
    const recorded = recorder();
    return listen(
      async (heard) => {
        const ended = await (question.delivery === 'whole' ? whole : stream)(question, heard, recorded.fetch);
        const asked = question.tee !== 'off' && !question.leave;
        if (question.endpoint === 'chat')
          heard.found['providerMetadata.countersign.attestation'] = ended.providerMetadata?.countersign?.attestation;
        if (asked)
          heard.found['GET by response.id'] = await attestationById({
            ...question,
            id: ended.id ?? '',
            text: question.endpoint === 'text',
          });
      },
      failureOf,
      recorded.body,
    );
  },
};

describe(client.name, () => {
  suite(client, matrix, service);

  it('asks for tee in every request through transformRequestBody', async () => {
    const recorded = recorder();
    const countersign = createOpenAICompatible({
      name: 'anything',
      baseURL: service().url,
      apiKey: service().key,
      fetch: recorded.fetch,
      metadataExtractor: attestationExtractor,
      transformRequestBody: (body) => ({ ...body, tee: true }),
    });
    const result = streamText({ model: countersign('hello'), prompt: 'Hi' });
    expect(await result.text).toBe(ANSWER);
    const found = (await result.providerMetadata)?.countersign?.attestation;
    await expectProof(service(), found, { text: ANSWER, sent: recorded.body() });
    matrix.passed(client.name, 'stream', {
      asked: 'transformRequestBody',
      found: 'providerMetadata.countersign.attestation',
    });
  });

  it('reports what was not proven as an error, and "error" for its finish, to a program that awaits only the result', async () => {
    const countersign = createOpenAICompatible({
      name: 'countersign',
      baseURL: service().unprovenUrl,
      apiKey: service().key,
    });
    const errors: unknown[] = [];
    const result = streamText({
      model: countersign('hello'),
      prompt: 'Hi',
      providerOptions: { countersign: { tee: true } },
      onError: ({ error }) => void errors.push(error),
    });
    // The text alone resolves: examples/ai-sdk.ts says what to look at beside it.
    expect([await result.text, await result.finishReason]).toEqual([ANSWER, 'error']);
    expect(errors).toEqual([expect.objectContaining({ code: 'attestation_unavailable' })]);
  });
});
