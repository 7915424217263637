// POST /v1/embeddings: a vector for each text. The demo model's is the mean of its words' meanings: texts with words in common are near.
import { usage } from './answer.ts';
import type { Engine } from './engine.ts';
import { at } from './linear.ts';
import type { Model } from './model.ts';
import { Problem } from './problem.ts';
import { textPrompts } from './prompt.ts';
import type { EmbeddingRequest } from './request.ts';
import { SHAPE, STREAM } from './shape.ts';

export async function embeddings(engine: Engine, request: EmbeddingRequest, signal: AbortSignal): Promise<Response> {
  const prompts = await textPrompts(engine, request.input, 'input', signal);
  const data: object[] = [];
  for (const [index, tokens] of prompts.entries()) {
    signal.throwIfAborted();
    const vector = (await engine.llama?.embed(tokens)) ?? meaning(engine.model, tokens);
    const embedding = written(cut(vector, request.dimensions ?? vector.length), request.encoding_format);
    data.push({ object: 'embedding', index, embedding });
  }
  const { prompt_tokens, total_tokens } = usage(
    prompts.reduce((sum, tokens) => sum + tokens.length, 0),
    0,
  );
  return Response.json({ object: 'list', data, model: engine.model_id, usage: { prompt_tokens, total_tokens } });
}

function meaning({ weights, vocabulary }: Model, tokens: readonly number[]): Float32Array {
  const mean = new Float32Array(SHAPE.dim - STREAM.meaning);
  for (const token of tokens) {
    const row = (token + 1) * SHAPE.dim - mean.length;
    for (let i = 0; i < mean.length; i++) mean[i] = at(mean, i) + at(weights.embedding.data, row + i);
  }
  // A text of bytes that mean nothing has a vector too.
  if (mean.every((value) => value === 0)) mean[at(tokens, 0) % mean.length] = vocabulary.tokens.length;
  return mean;
}

/** The first `dimensions`, of length 1. */
function cut(vector: Float32Array, dimensions: number): Float32Array {
  if (dimensions > vector.length)
    throw new Problem(400, `dimensions: this model's vectors have ${vector.length}.`, {
      param: 'dimensions',
      code: 'invalid_value',
    });
  const first = vector.slice(0, dimensions);
  const length = Math.hypot(...first);
  return first.map((value) => (length === 0 ? 0 : value / length));
}

function written(vector: Float32Array, format: EmbeddingRequest['encoding_format']): string | number[] {
  return format === 'base64' ? Buffer.from(vector.buffer).toString('base64') : [...vector];
}
