// What the model reads: a chat in the model's template, or texts or tokens.
import type { Engine } from './engine.ts';
import { Problem } from './problem.ts';
import { type EmbeddingRequest, type Message, textsOf } from './request.ts';
import { SHAPE } from './shape.ts';
import { encode } from './tokenizer.ts';
import { breathe } from './turn.ts';
import type { Vocabulary } from './vocabulary.ts';

const TOKENS_A_TURN = 4096;

export async function chatPrompt(
  { llama, model }: Engine,
  messages: readonly Message[],
  signal: AbortSignal,
): Promise<number[]> {
  const tokens = llama?.chatTokens(messages) ?? chatTokens(model.vocabulary, messages);
  return collect(tokens, contextOf(llama), 'messages', signal);
}

/** One list of tokens for each text or list of tokens in `input`, the request's member `param`. */
export async function textPrompts(
  { llama, model }: Engine,
  input: EmbeddingRequest['input'],
  param: string,
  signal: AbortSignal,
): Promise<number[][]> {
  const texts = typeof input === 'string' || isTokens(input) ? [input] : input;
  const { vocabulary } = model;
  const size = llama?.vocabulary_size ?? vocabulary.tokens.length;
  const all: number[][] = [];
  for (const one of texts) {
    const encoded = (text: string) => llama?.tokens(text) ?? encode(vocabulary, text);
    const tokens = typeof one === 'string' ? encoded(one) : known(size, one, param);
    all.push(await collect(tokens, contextOf(llama), param, signal));
  }
  return all;
}

const contextOf = (llama: Engine['llama']): number => llama?.max_context_tokens ?? SHAPE.max_context_tokens;

function* chatTokens(vocabulary: Vocabulary, messages: readonly Message[]): Generator<number> {
  const { speakers } = vocabulary;
  const speaker = (role: string): number =>
    speakers.get(role === 'developer' ? 'system' : role) ?? speakers.get('user') ?? 0;
  for (const message of messages) {
    yield speaker(message.role);
    for (const part of textsOf(message)) yield* encode(vocabulary, part);
    yield vocabulary.end_of_turn;
  }
  yield speaker('assistant');
}

function* known(size: number, tokens: readonly number[], param: string): Generator<number> {
  for (const token of tokens) {
    if (token >= size)
      throw new Problem(400, `${param}: there is no token ${token}; the vocabulary has ${size}.`, {
        param,
        code: 'invalid_value',
      });
    yield token;
  }
}

/** A long text is tokenized over many turns of the event loop. @throws {Problem} when it does not fit into the context */
async function collect(tokens: Iterable<number>, max: number, param: string, signal: AbortSignal): Promise<number[]> {
  const all: number[] = [];
  for (const token of tokens) {
    all.push(token);
    if (all.length > max)
      throw new Problem(400, `This model's maximum context length is ${max} tokens.`, {
        param,
        code: 'context_length_exceeded',
      });
    if (all.length % TOKENS_A_TURN === 0) await breathe(signal);
  }
  return all;
}

function isTokens(
  prompt: readonly string[] | readonly number[] | readonly (readonly number[])[],
): prompt is readonly number[] {
  return typeof prompt[0] === 'number';
}
