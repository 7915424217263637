// openai (npm): the attestation is a member like any other, on the completion and on the finish chunk.
import OpenAI, { APIError } from 'openai';
import { describe, expect, it } from 'vitest';
import { attestationById } from '../../examples/by-id.ts';
import type { Attestation } from '../../examples/openai.ts';
import { type Client, type Heard, listen, openaiFailure, type Question, WEATHER } from './driver.ts';
import { npmName } from './matrix.ts';
import { expectProof, type Recorder, recorder, verify } from './proof.ts';
import { ANSWER } from './scripts.ts';
import { serviceOf } from './service.ts';
import { suite } from './suite.ts';

const { matrix, service } = serviceOf('openai');

function connect({ baseURL, apiKey, tee }: Question, fetch: typeof globalThis.fetch): OpenAI {
  return new OpenAI({
    baseURL,
    apiKey,
    maxRetries: 0,
    fetch,
    ...(tee === 'header' ? { defaultHeaders: { 'x-tee': '1' } } : {}),
  });
}

function bodyOf({ model, content, tee, tools }: Question) {
  return {
    model,
    messages: [{ role: 'user' as const, content }],
    ...(tools ? { tools: [{ type: 'function' as const, function: { ...WEATHER } }] } : {}),
    ...(tee === 'body' ? { tee: true } : {}),
    ...(tee === 'wrong' ? { tee: 'yes' as unknown as boolean } : {}),
  };
}

async function byId(question: Question, recorded: Recorder, heard: Heard): Promise<void> {
  if (question.tee === 'off') return;
  heard.found['GET by x-attestation-id'] = await attestationById({
    ...question,
    id: recorded.attestationId() ?? '',
    text: question.endpoint === 'text',
  });
}

async function whole(openai: OpenAI, question: Question, heard: Heard): Promise<void> {
  const answer = await openai.chat.completions.create(bodyOf(question));
  const choice = answer.choices[0];
  const call = choice?.message.tool_calls?.[0];
  heard.text = (call?.type === 'function' ? call.function.arguments : choice?.message.content) ?? '';
  heard.finish = choice?.finish_reason ?? null;
  heard.found['completion.attestation'] = answer.attestation;
}

async function stream(openai: OpenAI, question: Question, heard: Heard): Promise<void> {
  let found: Attestation | undefined;
  for await (const chunk of await openai.chat.completions.create({ ...bodyOf(question), stream: true })) {
    const choice = chunk.choices[0];
    heard.text += choice?.delta.tool_calls?.[0]?.function?.arguments ?? choice?.delta.content ?? '';
    heard.finish = choice?.finish_reason ?? heard.finish;
    if (chunk.attestation !== undefined) {
      expect([found, choice?.finish_reason]).toEqual([undefined, expect.any(String)]); // once, and there
      found = chunk.attestation;
    }
    if (question.leave && heard.text !== '') break;
  }
  heard.found['finish chunk .attestation'] = found;
}

async function text(openai: OpenAI, { model, content, tee, delivery }: Question, heard: Heard): Promise<void> {
  const body = { model, prompt: content, ...(tee === 'body' ? { tee: true } : {}) };
  const answers =
    delivery === 'stream'
      ? await openai.completions.create({ ...body, stream: true })
      : [await openai.completions.create(body)];
  let found: Attestation | undefined;
  for await (const { choices, attestation } of answers) {
    heard.text += choices[0]?.text ?? '';
    heard.finish = choices[0]?.finish_reason ?? heard.finish;
    found ??= attestation;
  }
  heard.found.attestation = found;
}

const client: Client = {
  name: npmName('openai'),
  asks: { body: 'tee: true', header: 'defaultHeaders' },
  errors: {
    400: 'BadRequestError',
    401: 'AuthenticationError',
    429: 'RateLimitError',
    503: 'InternalServerError',
  },
  endpoints: ['chat', 'text'],
  ask(question) {
    const recorded = recorder();
    const openai = connect(question, recorded.fetch);
    return listen(
      async (heard) => {
        if (question.endpoint === 'text') await text(openai, question, heard);
        else await (question.delivery === 'whole' ? whole : stream)(openai, question, heard);
        if (!question.leave) await byId(question, recorded, heard);
      },
      openaiFailure,
      recorded.body,
    );
  },
  async models(baseURL, apiKey) {
    const ids: string[] = [];
    for await (const model of new OpenAI({ baseURL, apiKey }).models.list()) ids.push(model.id);
    return ids;
  },
};

describe(client.name, () => {
  suite(client, matrix, service);

  it('finds the proof in the final completion of its streaming helper', async () => {
    const recorded = recorder();
    const openai = new OpenAI({ baseURL: service().url, apiKey: service().key, fetch: recorded.fetch });
    const runner = openai.chat.completions.stream({
      model: 'hello',
      messages: [{ role: 'user', content: 'Hi' }],
      tee: true,
    });
    const final = await runner.finalChatCompletion();
    await expectProof(service(), final.attestation, { text: ANSWER, sent: recorded.body() });
    matrix.passed(client.name, 'stream', {
      asked: client.asks.body,
      found: '.stream(): finalChatCompletion().attestation',
    });
  });

  it('asks for the attestation again through itself, by the id of the completion', async () => {
    const recorded = recorder();
    const openai = new OpenAI({ baseURL: service().url, apiKey: service().key, fetch: recorded.fetch });
    const { id, attestation } = await openai.chat.completions.create({
      model: 'hello',
      messages: [{ role: 'user', content: 'Hi' }],
      tee: true,
    });
    expect(await openai.get(`/chat/completions/${id}/attestation`)).toEqual(attestation);
    const unknown = await openai.get('/chat/completions/chatcmpl-none/attestation').catch((error: unknown) => error);
    expect(unknown).toBeInstanceOf(APIError);
    expect(unknown).toMatchObject({ status: 404, code: 'not_found' });
    matrix.passed(client.name, 'whole', { asked: client.asks.body, found: 'client.get by completion id' });
  });

  it('has an attestation that one changed byte breaks', async () => {
    const openai = new OpenAI({ baseURL: service().url, apiKey: service().key });
    const { attestation } = await openai.chat.completions.create({
      model: 'hello',
      messages: [{ role: 'user', content: 'Hi' }],
      tee: true,
    });
    if (attestation === undefined) throw new Error('no attestation');
    const broken = { ...attestation, raw: attestation.raw.replace('traveller', 'traveler ') };
    expect((await verify(service(), broken)).status).toBe(422);
  });
});
