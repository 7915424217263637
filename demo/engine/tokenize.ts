// POST /tokenize and /detokenize, as vLLM has them: a chat or a text to tokens, and tokens to the text with its special tokens.
import type { Engine } from './engine.ts';
import { chatPrompt, textPrompts } from './prompt.ts';
import type { DetokenizeRequest, TokenizeRequest } from './request.ts';
import { SHAPE } from './shape.ts';
import { createDecoder } from './tokenizer.ts';

export async function tokenize(engine: Engine, request: TokenizeRequest, signal: AbortSignal): Promise<Response> {
  const { messages, prompt } = request;
  const tokens =
    messages === undefined
      ? (await textPrompts(engine, prompt ?? '', 'prompt', signal)).flat()
      : await chatPrompt(engine, messages, signal);
  const max_model_len = engine.llama?.max_context_tokens ?? SHAPE.max_context_tokens;
  return Response.json({ count: tokens.length, max_model_len, tokens, token_strs: null });
}

export async function detokenize(engine: Engine, request: DetokenizeRequest, signal: AbortSignal): Promise<Response> {
  const [tokens = []] = request.tokens.length === 0 ? [] : await textPrompts(engine, request.tokens, 'tokens', signal);
  if (engine.llama !== null) return Response.json({ prompt: engine.llama.decode(tokens) });
  const { vocabulary } = engine.model;
  const decoder = createDecoder(vocabulary);
  const isSpecial = (token: number) => vocabulary.tokens[token]?.bytes.length === 0;
  const texts = tokens.map((token) =>
    isSpecial(token) ? decoder.end() + vocabulary.tokens[token]?.text : decoder.push(token),
  );
  return Response.json({ prompt: texts.join('') + decoder.end() });
}
