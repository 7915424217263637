// What each SDK shows of a stream at its end, and the same of a whole response. Names of what is shown: `0.text` is choice 0's text.

import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import Anthropic from '@anthropic-ai/sdk';
import type { BaseMessageChunk } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';
import { dynamicTool, jsonSchema, type LanguageModel, streamText } from 'ai';
import OpenAI from 'openai';
import { CHAT, type Endpoint, type Json, MESSAGES, RESPONSES, type Stream, TEXT, textOf } from './stream.ts';

/** By name; null, an empty text and an empty list are all nothing. */
export type Shown = Record<string, Json>;

export interface Client {
  readonly name: string;
  readonly endpoint: Endpoint;
  /** @throws {Error} where the SDK throws, or reports an error: it shows no end of an answer then. */
  show(stream: Stream): Promise<Shown>;
  /** What it must show of a signed response. */
  signed(response: Json): Shown;
}

globalThis.AI_SDK_LOG_WARNINGS = false;
const MODEL = 'm';
const PROMPT = 'Hi';
const messages = [{ role: 'user' as const, content: PROMPT }];

function settings(stream: Stream) {
  const headers = { 'content-type': 'text/event-stream' };
  const fetch = async (): Promise<Response> => new Response(textOf(stream), { headers });
  return { apiKey: 'k', baseURL: 'http://countersign.test/v1', fetch };
}

const openai = (stream: Stream) => new OpenAI({ ...settings(stream), maxRetries: 0, logLevel: 'off' });
const list = (value: Json): Json[] => (Array.isArray(value) ? value.filter((item) => item !== undefined) : []);
const joined = (texts: readonly Json[]): string => texts.map((text) => text ?? '').join('');

// Chat completions: what a message of the OpenAI API shows.

/** The texts of content that is a list of parts: those that are the answer, and those that lead to it. */
/** Clients read the texts of a thought by their type. */
const isLeaf = (part: Json): boolean => typeof part === 'string' || /text$/.test(part?.type);

function textsIn(content: Json): { text: string; thinking: string } {
  if (!Array.isArray(content)) return { text: content ?? '', thinking: '' };
  const isAnswer = (part: Json) => part?.type === 'text' || part?.type === undefined;
  const leaves = (part: Json): string =>
    typeof part === 'string'
      ? part
      : joined(
          list(part?.thinking ?? part?.summary)
            .filter(isLeaf)
            .map(leaves),
        ) + (part?.text ?? '');
  return {
    text: joined(content.filter(isAnswer).map(({ text }: Json) => text)),
    thinking: joined(content.filter((part: Json) => !isAnswer(part)).map(leaves)),
  };
}

function shownChoice(choice: Json): Shown {
  const { role, content, refusal, reasoning_content, reasoning, tool_calls, function_call, audio } =
    choice.message ?? {};
  const { text, thinking } = textsIn(content);
  const calls = list(tool_calls).map((call: Json) => call.function ?? call.custom);
  return {
    role,
    text,
    thinking,
    refusal,
    reasoning: reasoning_content || reasoning,
    calls: calls.map((call) => ({ name: call?.name ?? '', input: call?.arguments ?? call?.input ?? '' })),
    ids: list(tool_calls).map(({ id }: Json) => id),
    function: function_call && { name: function_call.name ?? '', input: function_call.arguments ?? '' },
    audio: audio && { id: audio.id, data: audio.data, transcript: audio.transcript },
    finish: choice.finish_reason,
  };
}

function shownCompletion(completion: Json, shown: (choice: Json) => Shown = shownChoice): Shown {
  const choices = list(completion.choices).map((choice: Json): [number, Shown] => [choice.index, shown(choice)]);
  const named = choices.flatMap(([index, of]) =>
    Object.entries(of).map(([name, value]) => [`${index}.${name}`, value]),
  );
  return { model: completion.model, ...Object.fromEntries(named) };
}

/** The first that says something. */
const once = (before: Json, value: Json): Json => before || value;
const added = (before: Json, value: Json): Json => ((value ?? '') === '' ? before : (before ?? '') + value);

/** As the applications do that read chunks themselves: by the choices' and the calls' indices, texts joined. */
function addDelta(message: Json, delta: Json): void {
  message.role = once(message.role, delta.role);
  const parts = Array.isArray(delta.content)
    ? delta.content
    : delta.content
      ? [{ type: 'text', text: delta.content }]
      : [];
  message.content.push(...parts);
  for (const name of ['refusal', 'reasoning', 'reasoning_content']) message[name] = added(message[name], delta[name]);
  for (const { index, id, function: called, custom } of delta.tool_calls ?? []) {
    message.tool_calls[index] ??= {};
    const call = message.tool_calls[index];
    call.id = once(call.id, id);
    for (const [kind, member, part] of [
      ['function', 'arguments', called],
      ['custom', 'input', custom],
    ] as const)
      if (part)
        call[kind] = { name: once(call[kind]?.name, part.name), [member]: added(call[kind]?.[member], part[member]) };
  }
  const { function_call, audio } = delta;
  if (function_call) {
    const { name, arguments: input } = message.function_call ?? {};
    message.function_call = { name: once(name, function_call.name), arguments: added(input, function_call.arguments) };
  }
  if (audio) {
    const { id, data, transcript } = message.audio ?? {};
    message.audio = {
      id: once(id, audio.id),
      data: added(data, audio.data),
      transcript: added(transcript, audio.transcript),
    };
  }
}

const chatChunks: Client = {
  name: 'openai, the chunks of a chat',
  endpoint: CHAT,
  async show(stream) {
    const completion: Json = { choices: [] };
    const chunks = await openai(stream).chat.completions.create({ model: MODEL, messages, stream: true });
    for await (const chunk of chunks as AsyncIterable<Json>) {
      completion.model = once(completion.model, chunk?.model);
      for (const { index, delta, finish_reason } of chunk?.choices ?? []) {
        completion.choices[index] ??= { index, message: { content: [], tool_calls: [] } };
        const choice = completion.choices[index];
        addDelta(choice.message, delta ?? {});
        choice.finish_reason = once(choice.finish_reason, finish_reason);
      }
    }
    return shownCompletion(completion);
  },
  signed: shownCompletion,
};

const chatStream: Client = {
  name: 'openai, chat.completions.stream()',
  endpoint: CHAT,
  async show(stream) {
    const runner = openai(stream).chat.completions.stream({ model: MODEL, messages, n: stream.choices });
    return shownCompletion(await runner.finalChatCompletion());
  },
  signed: shownCompletion,
};

const textChunks: Client = {
  name: 'openai, the chunks of a text',
  endpoint: TEXT,
  async show(stream) {
    const completion: Json = { choices: [] };
    const chunks = await openai(stream).completions.create({ model: MODEL, prompt: PROMPT, stream: true });
    for await (const chunk of chunks as AsyncIterable<Json>) {
      completion.model = once(completion.model, chunk?.model);
      for (const { index, text, finish_reason } of chunk?.choices ?? []) {
        completion.choices[index] ??= { index };
        const choice = completion.choices[index];
        choice.text = added(choice.text, text);
        choice.finish_reason = once(choice.finish_reason, finish_reason);
      }
    }
    return shownCompletion(completion, shownText);
  },
  signed: (response) => shownCompletion(response, shownText),
};
const shownText = ({ text, finish_reason }: Json): Shown => ({ text, finish: finish_reason });

// The AI SDK, by streamText. It has one choice, and mixes a refusal into the text as it comes.

const tools = Object.fromEntries(
  ['get_weather', 'find'].map((name) => [
    name,
    dynamicTool({ inputSchema: jsonSchema({}), execute: undefined as never }),
  ]),
);

async function byStreamText(model: LanguageModel): Promise<Shown> {
  const shown: Shown = { text: '', reasoning: '', calls: [], ids: [] };
  const { fullStream } = streamText({ model, prompt: PROMPT, maxRetries: 0, tools, onError: () => {} });
  for await (const part of fullStream) {
    if (part.type === 'error') throw part.error;
    if (part.type === 'text-delta') shown.text += part.text;
    if (part.type === 'reasoning-delta') shown.reasoning += part.text;
    if (part.type === 'tool-call' && part.providerExecuted !== true) {
      shown.calls.push({ name: part.toolName, input: part.input === '' ? {} : part.input });
      shown.ids.push(part.toolCallId);
    }
    if (part.type === 'finish-step')
      Object.assign(shown, { model: part.response.modelId, finish: part.rawFinishReason });
  }
  return { ...shown, model: shown.model === MODEL ? null : shown.model }; // else the request's
}

function parsed(input: string): Json {
  try {
    return JSON.parse(input.trim() === '' ? '{}' : input);
  } catch {
    return input;
  }
}

function signedForStreamText(response: Json): Shown {
  const { message, text: plain, finish_reason: finish } = response.choices.find(({ index }: Json) => index === 0);
  const { text, thinking, refusal, reasoning, calls, ids } = shownChoice({ message });
  return {
    model: response.model,
    text: message === undefined ? plain : text + (refusal ?? ''),
    reasoning: (reasoning ?? '') + thinking,
    calls: calls.map(({ name, input }: Json) => ({ name, input: parsed(input) })),
    ids,
    finish,
  };
}

const compatible = (stream: Stream) => createOpenAICompatible({ name: 'countersign', ...settings(stream) });

const chatCompatible: Client = {
  name: '@ai-sdk/openai-compatible, chat',
  endpoint: CHAT,
  show: (stream) => byStreamText(compatible(stream).chatModel(MODEL)),
  signed: signedForStreamText,
};

const textCompatible: Client = {
  name: '@ai-sdk/openai-compatible, text',
  endpoint: TEXT,
  show: (stream) => byStreamText(compatible(stream).completionModel(MODEL)),
  signed: signedForStreamText,
};

const chatAiSdk: Client = {
  name: '@ai-sdk/openai, chat',
  endpoint: CHAT,
  show: (stream) => byStreamText(createOpenAI(settings(stream)).chat(MODEL)),
  signed: signedForStreamText,
};

// LangChain: chunks are concatenated.

async function concatenated(stream: Stream, useResponsesApi: boolean): Promise<{ all: Json; texts: string }> {
  const { apiKey, ...configuration } = settings(stream);
  const model = new ChatOpenAI({ model: MODEL, apiKey, configuration, maxRetries: 0, useResponsesApi });
  let all: BaseMessageChunk | undefined;
  let texts = '';
  for await (const chunk of await model.stream(PROMPT)) {
    texts += chunk.text;
    all = all?.concat(chunk as never) ?? chunk;
  }
  return { all: all ?? {}, texts };
}

const langchainCalls = (all: Json): Shown => ({
  calls: list(all.tool_call_chunks).map(({ name, args }) => ({ name: name ?? '', input: args ?? '' })),
  ids: list(all.tool_call_chunks).map(({ id }) => id),
});

const chatLangchain: Client = {
  name: '@langchain/openai, chat',
  endpoint: CHAT,
  async show(stream) {
    const { all } = await concatenated(stream, false);
    const { additional_kwargs: { reasoning_content, function_call, audio } = {}, response_metadata } = all;
    const { finish_reason, model_name } = response_metadata ?? {};
    const message = { content: all.content, reasoning_content, function_call, audio };
    const { role: _, ...shown } = shownChoice({ message, finish_reason });
    return { model: model_name, ...shown, ...langchainCalls(all) };
  },
  signed(response) {
    const { role: _, ...shown } = shownChoice(response.choices.find(({ index }: Json) => index === 0));
    return { model: response.model, ...shown };
  },
};

// Responses.

const partsOf = (output: readonly Json[], member: string, type: string): string =>
  joined(
    output
      .flatMap((item) => list(item?.[member]).filter((part) => part?.type === type))
      .map((part) => part.text ?? part.refusal),
  );

function signedResponse({ model, output: items }: Json): Shown {
  const output = list(items);
  const calls = output.filter(({ type }) => type === 'function_call' || type === 'custom_tool_call');
  return {
    model,
    text: partsOf(output, 'content', 'output_text'),
    refusal: partsOf(output, 'content', 'refusal'),
    reasoning: partsOf(output, 'content', 'reasoning_text'),
    summary: partsOf(output, 'summary', 'summary_text'),
    code: joined(output.filter(({ type }) => type === 'code_interpreter_call').map(({ code }) => code)),
    mcp: joined(output.filter(({ type }) => type === 'mcp_call').map((call) => call.arguments)),
    calls: calls.map((call) => ({ name: call.name ?? '', input: call.arguments ?? call.input ?? '' })),
    ids: calls.map(({ call_id }) => call_id),
  };
}

const KINDS: Readonly<Record<string, string>> = {
  'response.output_text.delta': 'text',
  'response.refusal.delta': 'refusal',
  'response.reasoning_text.delta': 'reasoning',
  'response.reasoning_summary_text.delta': 'summary',
  'response.code_interpreter_call_code.delta': 'code',
  'response.mcp_call_arguments.delta': 'mcp',
};
const INPUTS: Readonly<Record<string, string>> = {
  'response.function_call_arguments': 'arguments',
  'response.custom_tool_call_input': 'input',
};

const responseEvents: Client = {
  name: 'openai, the events of a response',
  endpoint: RESPONSES,
  async show(stream) {
    const shown: Shown = {};
    const begun: Json[] = [];
    const done: Json[] = [];
    for await (const event of (await openai(stream).responses.create({
      model: MODEL,
      input: PROMPT,
      stream: true,
    })) as AsyncIterable<Json>) {
      const { type, delta, item, output_index } = event;
      const kind = KINDS[type];
      if (kind !== undefined) shown[kind] = added(shown[kind], delta);
      shown.model ??= event.response?.model;
      // https://platform.openai.com/docs/guides/function-calling#streaming
      if (type === 'response.output_item.added') begun[output_index] = { ...item };
      const call = begun[output_index];
      const member = INPUTS[type?.replace(/\.(delta|done)$/, '')];
      if (member !== undefined && call !== undefined)
        call[member] = type.endsWith('.done') ? event[member] : added(call[member], delta);
      if (type === 'response.output_item.done') done[output_index] = item;
    }
    // An application reads the one or the other.
    const { calls, ids } = signedResponse({ output: list(done) });
    const early = signedResponse({ output: list(begun) });
    return { ...shown, calls, ids, 'calls begun': early.calls, 'ids begun': early.ids };
  },
  signed(response) {
    const shown = signedResponse(response);
    return { ...shown, 'calls begun': shown.calls, 'ids begun': shown.ids };
  },
};

const responseStream: Client = {
  name: 'openai, responses.stream()',
  endpoint: RESPONSES,
  async show(stream) {
    const runner = openai(stream).responses.stream({ model: MODEL, input: PROMPT });
    let streamed = '';
    runner.on('response.output_text.delta', ({ delta }) => {
      streamed += delta;
    });
    const response: Json = await runner.finalResponse();
    return { ...signedResponse(response), streamed, output_text: response.output_text };
  },
  signed(response) {
    const shown = signedResponse(response);
    return { ...shown, streamed: shown.text, output_text: shown.text };
  },
};

const responseAiSdk: Client = {
  name: '@ai-sdk/openai, responses',
  endpoint: RESPONSES,
  show: (stream) => byStreamText(createOpenAI(settings(stream)).responses(MODEL)),
  signed(response) {
    const { model, text, refusal, summary, ids } = signedResponse(response);
    const finish = response.incomplete_details?.reason;
    const called = list(response.output).filter(({ call_id }) => call_id !== undefined);
    const calls = called.map((call) => ({ name: call.name, input: call.input || parsed(call.arguments ?? '') }));
    return { model, text: text + refusal, reasoning: summary, calls, ids, finish };
  },
};

const responseLangchain: Client = {
  name: '@langchain/openai, responses',
  endpoint: RESPONSES,
  async show(stream) {
    const { all, texts } = await concatenated(stream, true);
    const { additional_kwargs, response_metadata } = all;
    const summary = joined(list(additional_kwargs?.reasoning?.summary).map(({ text }) => text));
    return {
      model: response_metadata?.model_name,
      text: texts,
      'text in all': all.text,
      refusal: additional_kwargs?.refusal,
      summary,
      ...langchainCalls(all),
    };
  },
  signed(response) {
    const { model, text, refusal, summary, calls, ids } = signedResponse(response);
    return { model, text, 'text in all': text, refusal, summary, calls, ids };
  },
};

// Messages.

function signedMessage({ id, model, role, content, stop_reason }: Json): Shown {
  const blocks = list(content);
  const of = (type: string, member: string) =>
    joined(blocks.filter((block) => block?.type === type).map((block) => block[member]));
  return {
    id,
    model,
    role,
    content: blocks,
    finish: stop_reason,
    text: of('text', 'text'),
    thinking: of('thinking', 'thinking'),
  };
}

const messageStream: Client = {
  name: '@anthropic-ai/sdk, messages.stream()',
  endpoint: MESSAGES,
  async show(stream) {
    const { baseURL, ...connection } = settings(stream);
    const client = new Anthropic({ ...connection, baseURL: baseURL.replace('/v1', ''), maxRetries: 0 });
    const runner = client.messages.stream({ model: MODEL, max_tokens: 9, messages });
    let text = '';
    runner.on('text', (delta) => {
      text += delta;
    });
    return { ...signedMessage(await runner.finalMessage()), text };
  },
  // Thoughts in a block of text, as LiteLLM writes them, are in its events only.
  signed: ({ content, ...response }) =>
    signedMessage({
      ...response,
      content: list(content).map(({ thinking, ...block }: Json) =>
        block.type === 'text' || thinking === undefined ? block : { ...block, thinking },
      ),
    }),
};

const messageEvents: Client = {
  name: '@anthropic-ai/sdk, the events of a message',
  endpoint: MESSAGES,
  async show(stream) {
    const { baseURL, ...connection } = settings(stream);
    const client = new Anthropic({ ...connection, baseURL: baseURL.replace('/v1', ''), maxRetries: 0 });
    const shown: Shown = {};
    const blocks: Json[] = [];
    for await (const event of (await client.messages.create({
      model: MODEL,
      max_tokens: 9,
      messages,
      stream: true,
    })) as AsyncIterable<Json>) {
      const { type, message, index, content_block, delta } = event;
      if (type === 'message_start') Object.assign(shown, { id: message.id, model: message.model, role: message.role });
      if (type === 'content_block_start') blocks[index] = { ...content_block, partial: '' };
      if (type === 'message_delta') shown.finish = once(shown.finish, delta.stop_reason);
      if (type !== 'content_block_delta') continue;
      const [kind, text] =
        ({ text_delta: ['text', delta.text], thinking_delta: ['thinking', delta.thinking] } as Json)[delta.type] ?? [];
      if (kind !== undefined) shown[kind] = added(shown[kind], text);
      if (delta.type === 'input_json_delta') blocks[index].partial += delta.partial_json;
    }
    const inputs = blocks.filter(({ input, partial }) => input !== undefined || partial !== '');
    return {
      ...shown,
      inputs: inputs.map(({ name, input, partial }) => [name, partial === '' ? input : JSON.parse(partial)]),
    };
  },
  signed(response) {
    const { content, ...shown } = signedMessage(response);
    shown.thinking = joined(content.map(({ thinking }: Json) => thinking));
    const inputs = content.filter(({ input }: Json) => input !== undefined);
    return { ...shown, inputs: inputs.map(({ name, input }: Json) => [name, input]) };
  },
};

export const CLIENTS: readonly Client[] = [
  chatChunks,
  chatStream,
  chatCompatible,
  chatAiSdk,
  chatLangchain,
  textChunks,
  textCompatible,
  responseEvents,
  responseStream,
  responseAiSdk,
  responseLangchain,
  messageStream,
  messageEvents,
];
