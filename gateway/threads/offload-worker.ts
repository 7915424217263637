// The worker thread that parses, hashes and serializes large bodies, so that the event loop does not wait for 4 MB.
import { bufferOf } from '../base/bytes.ts';
import { Problem } from '../base/problem.ts';
import { draft, modelInForm, parseGeneration, parsePassThrough } from './jobs.ts';
import type { Job, Jobs, Kind, Result, Results } from './offload.ts';
import { serveJobs } from './thread.ts';

const HANDLERS: { readonly [K in Kind]: (input: Jobs[K]) => Results[K] | Promise<Results[K]> } = {
  parse({ endpoint, body, caller, metering }) {
    const { request, forward, ...rest } = parseGeneration(endpoint, bufferOf(body), caller, metering);
    return { ...rest, forward: bytesOf(forward) };
  },
  passThrough({ body, ...rest }) {
    const { forward, ...parsed } = parsePassThrough({ ...rest, body: bufferOf(body) });
    return { ...parsed, forward: bytesOf(forward) };
  },
  form: async ({ type, body }) => ({ model: await modelInForm(type, bufferOf(body)) }),
  draft: ({ request, response, ...rest }) =>
    draft({
      ...rest,
      request: typeof request === 'string' ? request : bufferOf(request),
      response: 'body' in response ? { body: bufferOf(response.body) } : response,
    }),
};

serveJobs<Job, Result>(
  async ({ kind, input }) => {
    try {
      const handle = HANDLERS[kind] as (input: Job['input']) => Results[Kind] | Promise<Results[Kind]>;
      return { result: await handle(input) };
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      const { code, message, param } = error;
      return { problem: { code, message, param } };
    }
  },
  (message) => {
    if ('problem' in message) return [];
    const { result } = message;
    if ('model' in result && !('forward' in result)) return [];
    if ('raw' in result) return [result.raw.buffer, result.start.buffer];
    return result.forward === null ? [] : [result.forward.buffer];
  },
);

/** Returns the body without `tee`, or null for an unchanged body. */
function bytesOf(forward: Buffer | string): Uint8Array<ArrayBuffer> | null {
  // The bytes are no Buffer, because a short Buffer is part of a shared pool and cannot be transferred.
  return typeof forward === 'string' ? new TextEncoder().encode(forward) : null;
}
