// The thread beside: nobody else waits while 4 MB are parsed, hashed and quoted.
import { bufferOf } from '../http/bytes.ts';
import { Problem } from '../http/problem.ts';
import { draft, parseGeneration, parsePassThrough } from './jobs.ts';
import type { Job, Jobs, Kind, Result, Results } from './pool.ts';
import { serveJobs } from './thread.ts';

const HANDLERS: { readonly [K in Kind]: (input: Jobs[K]) => Results[K] } = {
  parse({ endpoint, body, caller }) {
    const { request, forward, ...rest } = parseGeneration(endpoint, bufferOf(body), caller);
    return { ...rest, forward: bytesOf(forward) };
  },
  passThrough({ body, ...rest }) {
    const { forward, stream } = parsePassThrough({ ...rest, body: bufferOf(body) });
    return { forward: bytesOf(forward), stream };
  },
  draft: ({ request, response, timestamp }) =>
    draft({
      request: typeof request === 'string' ? request : bufferOf(request),
      response: 'body' in response ? { body: bufferOf(response.body) } : response,
      timestamp,
    }),
};

serveJobs<Job, Result>(
  ({ kind, input }) => {
    try {
      return { result: (HANDLERS[kind] as (input: Job['input']) => Results[Kind])(input) };
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      const { code, message, param } = error;
      return { problem: { code, message, param } };
    }
  },
  (message) => {
    if ('problem' in message) return [];
    const { result } = message;
    if ('raw' in result) return [result.raw.buffer, result.start.buffer];
    return result.forward === null ? [] : [result.forward.buffer];
  },
);

/** A text is what is left of the body without `tee`; anything else is the body. */
function bytesOf(forward: Buffer | string): Uint8Array<ArrayBuffer> | null {
  // Not as a Buffer: one of a short text lies in a pool, which cannot be handed over.
  return typeof forward === 'string' ? new TextEncoder().encode(forward) : null;
}
