// The decoders of the clients for Node: openai, the AI SDK, LangChain.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI } from '@langchain/openai';
import { streamText } from 'ai';
import OpenAI from 'openai';
import { npmName, npmVersion } from '../clients/matrix.ts';
import { NEWEST_CLIENTS } from '../clients/newest.ts';
import { type Answer, canonical, type Decoder, type Reading } from './reading.ts';
import { responseOf } from './stream.ts';

globalThis.AI_SDK_LOG_WARNINGS = false;
const baseURL = 'http://127.0.0.1/v1';
const apiKey = 'sk-decoders';
const messages = [{ role: 'user' as const, content: 'Hi' }];

/** Calls `take` with each value that the client hands to a program. @throws whatever the client throws at it. */
type Program = (fetch: typeof globalThis.fetch, take: (value: unknown) => void) => Promise<void>;

function decoder(name: string, program: Program, ofValue?: (value: unknown) => unknown): Decoder {
  const readOne = async (answer: Answer): Promise<Reading> => {
    const read: string[] = [];
    try {
      await program(
        async () => responseOf(answer),
        (value) => void read.push(canonical(value)),
      );
      return { read, threw: null };
    } catch (error) {
      return { read, threw: `${(error as Error)?.name}: ${(error as Error)?.message}`.slice(0, 300) };
    }
  };
  const read = async (answers: readonly Answer[]) => {
    const readings: Reading[] = [];
    for (const answer of answers) readings.push(await readOne(answer));
    return readings;
  };
  return { name, gives: 'values', read, ...(ofValue === undefined ? {} : { ofValue }) };
}

interface Chunk {
  readonly choices?: readonly ({ readonly finish_reason?: unknown } | null)[];
}

export const openai = decoder(
  npmName('openai', NEWEST_CLIENTS),
  async (fetch, take) => {
    const client = new OpenAI({ baseURL, apiKey, fetch, maxRetries: 0, logLevel: 'off' });
    for await (const chunk of await client.chat.completions.create({ model: 'm', messages, stream: true })) take(chunk);
  },
  // It gives each choice a finish reason.
  (value) => {
    const chunk = value as Chunk | null;
    if (!Array.isArray(chunk?.choices)) return value;
    const choices = chunk.choices.map((choice) => ({ ...choice, finish_reason: choice?.finish_reason ?? null }));
    return { ...chunk, choices };
  },
);

export const aiSdk = decoder(
  `ai ${npmVersion('ai', NEWEST_CLIENTS)} + ${npmName('@ai-sdk/openai-compatible', NEWEST_CLIENTS)}`,
  async (fetch, take) => {
    const { chatModel } = createOpenAICompatible({ name: 'm', baseURL, apiKey, fetch });
    const { fullStream } = streamText({
      model: chatModel('m'),
      messages,
      maxRetries: 0,
      includeRawChunks: true,
      onError: () => {},
    });
    for await (const part of fullStream) {
      if (part.type === 'raw' && part.rawValue !== undefined) take(part.rawValue);
      // In this client's stream an error is a part like any other; a program that reads it throws it.
      if (part.type === 'error') throw part.error;
      if (part.type === 'abort') throw new Error('aborted');
    }
  },
);

export const langchain = decoder(
  npmName('@langchain/openai', NEWEST_CLIENTS),
  async (fetch, take) => {
    const model = new ChatOpenAI({
      model: 'm',
      apiKey,
      maxRetries: 0,
      configuration: { baseURL, fetch, logLevel: 'off' },
    });
    for await (const { content } of await model.stream('Hi')) if (content !== '') take(content);
  },
  // It hands on the first choice's text.
  (value) => {
    const { choices } = (value ?? {}) as { choices?: readonly ({ delta?: { content?: unknown } | null } | null)[] };
    const content = choices?.[0]?.delta?.content;
    return typeof content === 'string' && content !== '' ? content : undefined;
  },
);

export const nodeDecoders: readonly Decoder[] = [openai, aiSdk, langchain];
