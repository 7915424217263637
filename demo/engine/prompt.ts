// What the model reads: a chat in the model's template, or a completion's text or tokens.
import { Problem } from './problem.ts';
import type { CompletionRequest, Message } from './request.ts';
import { SHAPE } from './shape.ts';
import { encode } from './tokenizer.ts';
import { breathe } from './turn.ts';
import type { Vocabulary } from './vocabulary.ts';

const TOKENS_A_TURN = 4096;

export async function chatPrompt(
  vocabulary: Vocabulary,
  messages: readonly Message[],
  signal: AbortSignal,
): Promise<number[]> {
  return collect(chatTokens(vocabulary, messages), 'messages', signal);
}

/** One list of tokens a prompt. */
export async function completionPrompts(
  vocabulary: Vocabulary,
  prompt: CompletionRequest['prompt'],
  signal: AbortSignal,
): Promise<number[][]> {
  const prompts: (string | readonly number[])[] = [];
  if (prompt === null || prompt === undefined) prompts.push('');
  else if (typeof prompt === 'string' || isTokens(prompt)) prompts.push(prompt);
  else prompts.push(...prompt);
  const all: number[][] = [];
  for (const one of prompts) {
    const tokens = typeof one === 'string' ? encode(vocabulary, one) : known(vocabulary, one);
    all.push(await collect(tokens, 'prompt', signal));
  }
  return all;
}

function* chatTokens(vocabulary: Vocabulary, messages: readonly Message[]): Generator<number> {
  const { speakers } = vocabulary;
  const speaker = (role: string): number =>
    speakers.get(role === 'developer' ? 'system' : role) ?? speakers.get('user') ?? 0;
  for (const { role, content } of messages) {
    yield speaker(role);
    const parts = typeof content === 'string' ? [content] : (content ?? []).map((part) => part.text ?? '');
    for (const part of parts) yield* encode(vocabulary, part);
    yield vocabulary.end_of_turn;
  }
  yield speaker('assistant');
}

function* known(vocabulary: Vocabulary, tokens: readonly number[]): Generator<number> {
  for (const token of tokens) {
    if (token >= vocabulary.tokens.length)
      throw new Problem(400, `prompt: there is no token ${token}; the vocabulary has ${vocabulary.tokens.length}.`, {
        param: 'prompt',
        code: 'invalid_value',
      });
    yield token;
  }
}

/** A long text is tokenized over many turns of the event loop. @throws {Problem} when it does not fit into the context */
async function collect(tokens: Iterable<number>, param: string, signal: AbortSignal): Promise<number[]> {
  const all: number[] = [];
  for (const token of tokens) {
    all.push(token);
    if (all.length > SHAPE.max_context_tokens)
      throw new Problem(400, `This model's maximum context length is ${SHAPE.max_context_tokens} tokens.`, {
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
