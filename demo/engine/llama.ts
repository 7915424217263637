// A real model, by llama.cpp: the library node-llama-cpp, which `npm start -- --model` fetches and this project does not depend on.
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { pathToFileURL } from 'node:url';
import type { ChoiceEvent } from './choices.ts';
import { type Message, type Sampling, textsOf } from './request.ts';
import { createStopper } from './stopper.ts';

const MAX_CONTEXT_TOKENS = 4096;
/** Choices that are made at once; others wait. */
const SEQUENCES = 4;
/** Several threads wait for each other in a loop: on a busy machine a token then takes seconds. */
const THREADS = 1;
const SIZE = { contextSize: MAX_CONTEXT_TOKENS, threads: THREADS };
/** As the model's authors advise. */
const TEMPERATURE = 0.2;
/** A character has four bytes at most, and so four tokens. */
const MAX_HELD_TOKENS = 4;

/** The model cannot be loaded. The message is one line. */
export class LlamaError extends Error {
  override readonly name = 'LlamaError';
}

export interface Llama {
  readonly fingerprint: string;
  readonly max_context_tokens: number;
  readonly vocabulary_size: number;
  /** The default. */
  readonly temperature: number;
  chatTokens(messages: readonly Message[]): number[];
  tokens(text: string): number[];
  decode(tokens: readonly number[]): string;
  /** One choice for each prompt, one after the other. */
  choices(
    prompts: readonly (readonly number[])[],
    sampling: Sampling,
    signal: AbortSignal,
  ): AsyncGenerator<ChoiceEvent>;
  embed(tokens: readonly number[]): Promise<Float32Array>;
}

/** What is used of node-llama-cpp 3. */
interface Library {
  getLlama(options: object): Promise<{ loadModel(options: { modelPath: string }): Promise<LibraryModel> }>;
}
interface LibraryModel {
  readonly fileInfo: { readonly metadata: { readonly tokenizer: { readonly ggml: { readonly tokens: unknown[] } } } };
  tokenize(text: string, special_tokens?: boolean): number[];
  detokenize(tokens: readonly number[], special_tokens?: boolean, last?: readonly number[]): string;
  createContext(options: object): Promise<Context>;
  createEmbeddingContext(options: object): Promise<EmbeddingContext>;
}
interface EmbeddingContext {
  getEmbeddingFor(tokens: readonly number[]): Promise<{ readonly vector: readonly number[] }>;
}
interface Context {
  readonly sequencesLeft: number;
  getSequence(): Sequence;
}
interface Sequence {
  evaluate(tokens: readonly number[], options: object): AsyncGenerator<number, void>;
  dispose(): void;
}

/** @throws {LlamaError} */
export async function loadLlama(library: string, file: string): Promise<Llama> {
  try {
    const { getLlama } = (await import(pathToFileURL(library).href)) as Library;
    const gpu = process.platform === 'darwin' && process.arch === 'arm64' ? 'metal' : false;
    const llama = await getLlama({ gpu, build: 'never', skipDownload: true, progressLogs: false, logLevel: 'error' });
    const model = await llama.loadModel({ modelPath: file });
    const context = await model.createContext({ ...SIZE, sequences: SEQUENCES });
    return createLlama(model, context, `fp_${(await sha256(file)).slice(0, 10)}`);
  } catch (error) {
    const [line] = String((error as Error).message).split('\n');
    throw new LlamaError(`cannot load the model: ${line}; npm start without --model runs the demo's own`);
  }
}

async function sha256(file: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file)) hash.update(chunk);
  return hash.digest('hex');
}

function createLlama(model: LibraryModel, context: Context, fingerprint: string): Llama {
  let embedding: Promise<EmbeddingContext> | null = null;
  const waiting: (() => void)[] = [];
  const acquire = async (): Promise<Sequence> => {
    while (context.sequencesLeft === 0) await new Promise<void>((resolve) => waiting.push(resolve));
    return context.getSequence();
  };
  const release = (sequence: Sequence): void => {
    sequence.dispose();
    waiting.shift()?.();
  };

  /** @param index of the choice: each has a seed of its own */
  async function* generate(
    prompt: readonly number[],
    sampling: Sampling,
    index: number,
    signal: AbortSignal,
  ): AsyncGenerator<ChoiceEvent> {
    const max_tokens = Math.min(sampling.max_tokens, MAX_CONTEXT_TOKENS - prompt.length);
    const stopper = createStopper(sampling.stops);
    const decoder = createDecoder(model);
    const said: number[] = [];
    const sequence = await acquire();
    const tokens = sequence.evaluate(prompt, optionsOf(sampling, index, said));
    try {
      signal.throwIfAborted();
      let ended = false;
      let sent = 0;
      while (said.length < max_tokens && stopper.stop === null) {
        const { value: token, done } = await tokens.next();
        signal.throwIfAborted();
        ended = done === true;
        if (typeof token !== 'number') break;
        const piece = stopper.push(decoder.push(token), { token, logprob: 0, top: [], rank: 0 });
        said.push(token);
        if (piece === null) continue;
        sent += piece.tokens.length;
        yield { type: 'piece', index, piece };
      }
      const rest = stopper.stop === null ? stopper.end(decoder.end()) : null;
      sent += rest?.tokens.length ?? 0;
      if (rest !== null) yield { type: 'piece', index, piece: rest };
      const { stop } = stopper;
      const finish_reason = ended || stop !== null ? 'stop' : 'length';
      const rest_ids = said.slice(sent);
      yield { type: 'ending', index, ending: { finish_reason, stop, completion_tokens: said.length, rest: rest_ids } };
    } finally {
      await tokens.return();
      release(sequence);
    }
  }

  return {
    fingerprint,
    max_context_tokens: MAX_CONTEXT_TOKENS - 1,
    vocabulary_size: model.fileInfo.metadata.tokenizer.ggml.tokens.length,
    temperature: TEMPERATURE,
    // In small quantisations it answers better without the first message that its template adds.
    chatTokens: (messages) => {
      const turns = messages.map((message) => [...marked(message.role), ...model.tokenize(textsOf(message).join(''))]);
      const end = model.tokenize('<|im_end|>\n', true);
      return [...turns.flatMap((turn) => [...turn, ...end]), ...marked('assistant')];
    },
    tokens: (text) => model.tokenize(text),
    decode: (tokens) => model.detokenize(tokens),
    async *choices(prompts, sampling, signal) {
      for (const [index, prompt] of prompts.entries()) yield* generate(prompt, sampling, index, signal);
    },
    async embed(tokens) {
      embedding ??= model.createEmbeddingContext(SIZE);
      return Float32Array.from((await (await embedding).getEmbeddingFor(tokens)).vector);
    },
  };

  function marked(role: string): number[] {
    const speaker = role === 'developer' ? 'system' : role;
    const known = ['system', 'assistant', 'user'].includes(speaker);
    return model.tokenize(`<|im_start|>${known ? speaker : 'user'}\n`, true);
  }
}

/** @param said the tokens so far, which the penalties are for */
function optionsOf(sampling: Sampling, index: number, said: readonly number[]): object {
  const { temperature, top_p, frequency_penalty, presence_penalty, seed } = sampling;
  const punished = frequency_penalty !== 0 || presence_penalty !== 0;
  const repeatPenalty = {
    penalty: 1,
    frequencyPenalty: frequency_penalty,
    presencePenalty: presence_penalty,
    punishTokens: () => [...said],
  };
  return {
    temperature,
    topP: top_p,
    seed: (seed + index) >>> 0,
    ...(punished ? { repeatPenalty } : {}),
  };
}

/** Text of tokens one by one: an incomplete character waits for its last token. */
function createDecoder(model: LibraryModel) {
  let held: number[] = [];
  let last: number[] = [];
  const take = (): string => {
    const text = model.detokenize(held, false, last);
    last = [...last, ...held].slice(-MAX_HELD_TOKENS);
    held = [];
    return text;
  };
  return {
    push(token: number): string {
      held.push(token);
      const whole = !model.detokenize(held, false, last).endsWith('\ufffd');
      return whole || held.length >= MAX_HELD_TOKENS ? take() : '';
    },
    end: take,
  };
}
