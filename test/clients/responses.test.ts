// Clients of /v1/responses: openai, @openai/agents, the AI SDK's own OpenAI provider, LangChain. The attestation is a member of the
// response object, also in a stream's last event: every one of them that keeps anything keeps it there.
import { createOpenAI } from '@ai-sdk/openai';
import type { AIMessageChunk } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';
import { Agent, tool as agentTool, OpenAIProvider, Runner } from '@openai/agents';
import { generateText, jsonSchema, streamText, type ToolSet, tool } from 'ai';
import OpenAI from 'openai';
import { describe, expect, it } from 'vitest';
import { verifyAttestation } from '../../verify/index.ts';
import { WEATHER } from './driver.ts';
import { FORM_ANSWER } from './form-scripts.ts';
import { type FormClient, type FormHeard, type FormQuestion, formSuite } from './form-suite.ts';
import { npmName, npmVersion } from './matrix.ts';
import { ANSWER, MODELS } from './scripts.ts';
import { serviceOf } from './service.ts';

const { matrix, service } = serviceOf('responses');
globalThis.AI_SDK_LOG_WARNINGS = false;

const PARAMETERS = { ...WEATHER.parameters, required: ['city'], additionalProperties: false as const };
const FUNCTION = { type: 'function' as const, name: WEATHER.name, parameters: PARAMETERS, strict: true };
const BOTH = ['whole', 'stream'] as const;

/** Where a program that knows nothing of its type finds it. */
const attestationOf = (value: unknown): unknown => (value as { attestation?: unknown } | null | undefined)?.attestation;
/** Without the places where nothing was. */
const put = (heard: FormHeard, place: string, found: unknown): void => {
  if (found !== undefined) heard.found[place] = found;
};

function connect({ baseURL, apiKey, fetch, tee }: FormQuestion): OpenAI {
  const headers = tee === 'header' ? { 'x-tee': '1' } : {};
  return new OpenAI({ baseURL, apiKey, fetch, maxRetries: 0, defaultHeaders: headers });
}

const openai: FormClient = {
  name: npmName('openai'),
  form: '/v1/responses',
  deliveries: BOTH,
  asks: { body: 'tee: true', header: 'defaultHeaders' },
  places: { whole: ['response.attestation'], stream: ['response.completed: event.response.attestation'] },
  async ask(question, heard) {
    const { model, content, tee, delivery } = question;
    const tools = model === 'tools' ? [FUNCTION] : [];
    const body = { model, input: content, tools, ...(tee === 'body' ? { tee: true } : {}) };
    const client = connect(question);
    if (delivery === 'whole') {
      const response = await client.responses.create(body);
      const call = response.output.find((item) => item.type === 'function_call');
      heard.text = response.output_text;
      heard.call = call === undefined ? null : JSON.parse(call.arguments);
      heard.ended = response.status === 'completed';
      heard.id = response.id;
      return put(heard, 'response.attestation', attestationOf(response));
    }
    let args = '';
    for await (const event of await client.responses.create({ ...body, stream: true })) {
      if (event.type === 'response.output_text.delta') heard.text += event.delta;
      if (event.type === 'response.function_call_arguments.delta') args += event.delta;
      if (event.type === 'response.completed') {
        heard.call = args === '' ? null : JSON.parse(args);
        heard.ended = true;
        heard.id = event.response.id;
        put(heard, 'response.completed: event.response.attestation', attestationOf(event.response));
      }
    }
    if (!heard.ended) throw new Error('the stream ended without its last event');
  },
};

function agentOf({ model, tee }: FormQuestion, executed: (args: unknown) => void) {
  return new Agent({
    name: 'Guide',
    model,
    modelSettings: tee === 'body' ? { providerData: { tee: true } } : {},
    tools: [
      agentTool({
        name: WEATHER.name,
        description: WEATHER.description,
        parameters: PARAMETERS,
        execute: (args) => {
          executed(args);
          return '18 degrees';
        },
      }),
    ],
  });
}

const runnerOf = (question: FormQuestion) =>
  new Runner({
    modelProvider: new OpenAIProvider({ openAIClient: connect(question) as never, useResponses: true }),
    tracingDisabled: true,
  });

const agents: FormClient = {
  name: npmName('@openai/agents'),
  form: '/v1/responses',
  deliveries: BOTH,
  asks: { body: 'modelSettings.providerData', header: "the client's defaultHeaders" },
  places: {
    whole: ['rawResponses[0].providerData.attestation'],
    stream: ['raw_model_stream_event: response_done.response.providerData.attestation'],
  },
  async ask(question, heard) {
    const agent = agentOf(question, (args) => {
      heard.call = args;
    });
    agent.toolUseBehavior = 'stop_on_first_tool';
    const runner = runnerOf(question);
    const keep = (result: { rawResponses: { responseId?: string | undefined; providerData?: unknown }[] }) => {
      const [raw] = result.rawResponses;
      heard.ended = true;
      heard.id = raw?.responseId ?? null;
      put(heard, 'rawResponses[0].providerData.attestation', attestationOf(raw?.providerData));
    };
    if (question.delivery === 'whole') {
      const result = await runner.run(agent, question.content);
      heard.text = result.finalOutput ?? '';
      return keep(result);
    }
    const result = await runner.run(agent, question.content, { stream: true });
    let found: unknown;
    for await (const event of result) {
      if (event.type !== 'raw_model_stream_event') continue;
      if (event.data.type === 'output_text_delta') heard.text += event.data.delta;
      if (event.data.type === 'response_done') found = attestationOf(event.data.response.providerData);
    }
    await result.completed;
    keep(result);
    put(heard, 'raw_model_stream_event: response_done.response.providerData.attestation', found);
  },
};

/** Which parts of an answer the AI SDK hands on: `include` since version 7, before it a setting of its own, and the body always. */
const AI_SDK_WHOLE = { include: { responseBody: true } };
const AI_SDK_STREAM = { include: { rawChunks: true }, includeRawChunks: true };

const aiSdk: FormClient = {
  name: `ai ${npmVersion('ai')} + ${npmName('@ai-sdk/openai')}`,
  form: '/v1/responses',
  deliveries: BOTH,
  asks: { body: null, header: 'headers' },
  places: { whole: ['response.body.attestation'], stream: ['raw chunks: rawValue.response.attestation'] },
  async ask({ baseURL, apiKey, fetch, model, content, delivery, tee }, heard) {
    const provider = createOpenAI({ baseURL, apiKey, fetch, headers: tee === 'header' ? { 'x-tee': '1' } : {} });
    const weather = tool({
      description: WEATHER.description,
      inputSchema: jsonSchema<{ city: string }>(PARAMETERS),
    });
    const tools = (model === 'tools' ? { [WEATHER.name]: weather } : {}) as ToolSet;
    const settings = { model: provider(model), prompt: content, maxRetries: 0, tools };
    if (delivery === 'whole') {
      const result = await generateText({ ...settings, ...AI_SDK_WHOLE });
      heard.text = result.text;
      heard.call = result.toolCalls[0]?.input ?? null;
      heard.ended = true;
      heard.id = result.response.id;
      return put(heard, 'response.body.attestation', attestationOf(result.response.body));
    }
    const result = streamText({ ...settings, ...AI_SDK_STREAM, onError: () => {} });
    for await (const part of result.fullStream) {
      if (part.type === 'error') throw part.error;
      if (part.type === 'text-delta') heard.text += part.text;
      if (part.type === 'tool-call') heard.call = part.input;
      if (part.type === 'finish-step') {
        heard.ended = part.finishReason === 'stop' || part.finishReason === 'tool-calls';
        heard.id = part.response.id;
      }
      if (part.type === 'raw') {
        const found = attestationOf((part.rawValue as { response?: unknown }).response);
        put(heard, 'raw chunks: rawValue.response.attestation', found);
      }
    }
  },
};

const langchain: FormClient = {
  name: npmName('@langchain/openai'),
  form: '/v1/responses',
  deliveries: BOTH,
  asks: { body: 'modelKwargs: {tee: true}', header: 'configuration.defaultHeaders' },
  places: { whole: [], stream: ['response_metadata.attestation'] },
  async ask({ baseURL, apiKey, fetch, model, content, delivery, tee }, heard) {
    const headers = tee === 'header' ? { 'x-tee': '1' } : {};
    const chat = new ChatOpenAI({
      model,
      apiKey,
      maxRetries: 0,
      useResponsesApi: true,
      modelKwargs: tee === 'body' ? { tee: true } : {},
      configuration: { baseURL, fetch, defaultHeaders: headers },
    });
    const bound = model === 'tools' ? chat.bindTools([{ type: 'function', function: { ...WEATHER } }]) : chat;
    let message: AIMessageChunk | Awaited<ReturnType<typeof chat.invoke>> | undefined;
    if (delivery === 'whole') message = await bound.invoke(content);
    else
      for await (const chunk of await bound.stream(content)) {
        heard.text += chunk.text;
        message = message === undefined ? chunk : (message as AIMessageChunk).concat(chunk);
      }
    if (delivery === 'whole') heard.text = message?.text ?? '';
    heard.call = message?.tool_calls?.[0]?.args ?? null;
    const { status, id, attestation } = (message?.response_metadata ?? {}) as Record<string, unknown>;
    heard.ended = status === 'completed';
    heard.id = String(id);
    put(heard, 'response_metadata.attestation', attestation);
  },
};

for (const client of [openai, agents, aiSdk, langchain])
  describe(`${client.name} and /v1/responses`, () => formSuite(client, matrix, service));

const connected = (given: Partial<FormQuestion> = {}): OpenAI =>
  connect({
    baseURL: service().url,
    apiKey: service().key,
    fetch,
    model: 'hello',
    content: '',
    delivery: 'whole',
    tee: 'off',
    ...given,
  });

describe('openai and /v1/responses beyond create', () => {
  it('finds the proof in the final response of its streaming helper, and asks for it again by its id', async () => {
    const client = connected();
    const body = { model: 'hello', input: 'Hi', tee: true };
    const response = await client.responses.stream(body).finalResponse();
    expect(response.output_text).toBe(FORM_ANSWER);
    const found = attestationOf(response);
    const { exchange } = await verifyAttestation(found, { simulatedRoot: service().simulatedRoot });
    expect(JSON.parse(exchange.request)).toEqual({ ...body, stream: true });
    expect(await client.get(`/responses/${response.id}/attestation`)).toEqual(found);
    matrix.passed(`${openai.name} /v1/responses`, 'stream', {
      asked: 'tee: true',
      found: '.stream(): finalResponse().attestation',
    });
  });

  it('lists the models with x-tee in every request', async () => {
    const ids: string[] = [];
    for await (const { id } of connected({ tee: 'header' }).models.list()) ids.push(id);
    expect(ids).toEqual([...MODELS]);
  });
});

describe.each(BOTH)('an agent of @openai/agents that calls its tool, %s', (delivery) => {
  it('has a proof of each answer of the model', async () => {
    const question = { model: 'tools', tee: 'body', delivery } as const;
    const calls: unknown[] = [];
    const agent = agentOf({ ...question, baseURL: '', apiKey: '', fetch, content: '' }, (args) => calls.push(args));
    const modelProvider = new OpenAIProvider({ openAIClient: connected() as never, useResponses: true });
    const runner = new Runner({ modelProvider, tracingDisabled: true });
    const found: unknown[] = [];
    let said: string | undefined;
    if (delivery === 'whole') {
      const { rawResponses, finalOutput } = await runner.run(agent, 'Weather?');
      found.push(...rawResponses.map(({ providerData }) => attestationOf(providerData)));
      said = finalOutput;
    } else {
      const result = await runner.run(agent, 'Weather?', { stream: true });
      for await (const event of result)
        if (event.type === 'raw_model_stream_event' && event.data.type === 'response_done')
          found.push(attestationOf(event.data.response.providerData));
      await result.completed;
      said = result.finalOutput;
    }
    expect([calls, said, found.length]).toEqual([[{ city: 'Paris' }], FORM_ANSWER, 2]);
    const proven = found.map((one) => verifyAttestation(one, { simulatedRoot: service().simulatedRoot }));
    const [first, second] = await Promise.all(proven);
    expect(first?.exchange.response).toContain('"function_call"');
    expect(second?.exchange.request).toContain('18 degrees');
    expect(second?.exchange.response).toContain(FORM_ANSWER);
  });
});

it('has the proof of both also where @openai/agents asks for chat completions', async () => {
  const modelProvider = new OpenAIProvider({ openAIClient: connected() as never, useResponses: false });
  const runner = new Runner({ modelProvider, tracingDisabled: true });
  const agent = new Agent({ name: 'Guide', model: 'hello', modelSettings: { providerData: { tee: true } } });
  const whole = await runner.run(agent, 'Hi');
  const found = [attestationOf(whole.rawResponses[0]?.providerData)];
  const stream = await runner.run(agent, 'Hi', { stream: true });
  for await (const event of stream)
    if (event.type === 'raw_model_stream_event' && event.data.type === 'model')
      found.push(attestationOf(event.data.event));
  await stream.completed;
  expect([whole.finalOutput, stream.finalOutput]).toEqual([ANSWER, ANSWER]);
  const carried = found.filter((one) => one !== undefined);
  expect(carried).toHaveLength(2);
  for (const one of carried) {
    const { exchange } = await verifyAttestation(one, { simulatedRoot: service().simulatedRoot });
    expect(exchange.endpoint).toBe('/v1/chat/completions');
    expect(exchange.response).toContain('chatcmpl-');
  }
});

it('keeps in LangChain the proof of an answer that it streams by itself', async () => {
  const chat = new ChatOpenAI({
    model: 'hello',
    apiKey: service().key,
    useResponsesApi: true,
    streaming: true,
    modelKwargs: { tee: true },
    configuration: { baseURL: service().url },
  });
  const { text, response_metadata } = await chat.invoke('Hi');
  const { attestation } = response_metadata as { attestation?: unknown };
  const { exchange } = await verifyAttestation(attestation, { simulatedRoot: service().simulatedRoot });
  expect([text, exchange.stream !== null]).toEqual([FORM_ANSWER, true]);
  matrix.passed(`${langchain.name} /v1/responses`, 'whole', {
    asked: 'modelKwargs: {tee: true}, streaming: true',
    found: 'response_metadata.attestation',
  });
});

it('drops what the AI SDK does not know from providerOptions, so that tee is a header', async () => {
  const provider = createOpenAI({ baseURL: service().url, apiKey: service().key });
  const providerOptions = { openai: { tee: true } };
  const { text } = await generateText({ model: provider('hello'), prompt: 'Hi', providerOptions });
  expect([text, service().seen.at(-1)?.body.includes('tee')]).toEqual([FORM_ANSWER, false]);
});
