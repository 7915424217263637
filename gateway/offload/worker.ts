// The thread beside: nobody else waits while 4 MB are parsed, hashed and quoted.
import { bufferOf } from '../http/bytes.ts';
import { Problem } from '../http/problem.ts';
import { draft, parseGeneration, parsePassThrough } from './jobs.ts';
import type { Answer, Answers, Kind, Question, Questions } from './pool.ts';
import { answerQuestions } from './thread.ts';

const DOES: { readonly [K in Kind]: (of: Questions[K]) => Answers[K] } = {
  read({ endpoint, body, caller }) {
    const { request, forward, ...asked } = parseGeneration(endpoint, bufferOf(body), caller);
    return { ...asked, forward: bytesOf(forward) };
  },
  pass({ body, ...how }) {
    const { forward, stream } = parsePassThrough({ ...how, body: bufferOf(body) });
    return { forward: bytesOf(forward), stream };
  },
  draft: ({ request, answer, timestamp }) =>
    draft({
      request: typeof request === 'string' ? request : bufferOf(request),
      answer: 'body' in answer ? { body: bufferOf(answer.body) } : answer,
      timestamp,
    }),
};

answerQuestions<Question, Answer>(
  ({ kind, of }) => {
    try {
      return { result: (DOES[kind] as (of: Question['of']) => Answers[Kind])(of) };
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      const { code, message, param } = error;
      return { refused: { code, message, param } };
    }
  },
  (answer) => {
    if ('refused' in answer) return [];
    const { result } = answer;
    if ('raw' in result) return [result.raw.buffer, result.start.buffer];
    return result.forward === null ? [] : [result.forward.buffer];
  },
);

/** A text is what is left of the body without `tee`; anything else is the body. */
function bytesOf(forward: Buffer | string): Uint8Array<ArrayBuffer> | null {
  // Not as a Buffer: one of a short text lies in a pool, which cannot be handed over.
  return typeof forward === 'string' ? new TextEncoder().encode(forward) : null;
}
