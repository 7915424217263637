// What a right answer looks like. A proxy that answers wrongly is not fast, it is broken: its row is marked.
import { STAMP, STAMP_DIGITS } from '../answer.ts';
import { now_us } from '../system/clock.ts';
import type { Reader } from './connection.ts';

export interface Expected {
  /** The backend's whole answer, byte for byte; with an attestation, what is left when it is taken out. */
  readonly body: Buffer | null;
  /** How many stamped chunks a stream has. */
  readonly chunks: number;
  readonly attestation: boolean;
  /** Texts without which a stream has not ended. */
  readonly ends: readonly string[];
}

export interface Finished {
  readonly asked_us: number;
  readonly ended_us: number;
  readonly first_us: number;
  readonly chunks: number;
  /** Why the answer is wrong; null when it is right. */
  readonly wrong: string | null;
}

const ATTESTATION = Buffer.from(',"attestation":{"raw":"');
const PROOF = Buffer.from('"evidence":[{"arch":"');
const FINISH = Buffer.from('"finish_reason":"stop"');
const EMPTY = Buffer.alloc(0);

/** Reads one whole answer. */
export function wholeReader(expected: Expected, finish: (finished: Finished) => void): Reader {
  const asked_us = now_us();
  let status = 0;
  let first_us = 0;
  let parts: Buffer[] = [];
  const settle = (wrong: string | null) => finish({ asked_us, ended_us: now_us(), first_us, chunks: 0, wrong });
  return {
    head(got) {
      status = got;
      first_us = now_us();
    },
    body: (bytes) => void parts.push(Buffer.from(bytes)),
    end() {
      const body = parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts);
      parts = [];
      settle(status === 200 ? wrongBody(body, expected) : `status ${status}`);
    },
    broken: settle,
  };
}

function wrongBody(body: Buffer, expected: Expected): string | null {
  if (!expected.attestation) {
    if (expected.body === null) return body.includes(FINISH) ? null : 'no finish_reason in the answer';
    return body.equals(expected.body) ? null : 'not the bytes of the backend';
  }
  const at = body.lastIndexOf(ATTESTATION);
  if (at < 0 || !body.includes(PROOF, at)) return 'no attestation in the answer';
  const { body: original } = expected;
  return original === null || body.subarray(0, at).equals(original.subarray(0, -1))
    ? null
    : 'not the bytes of the backend';
}

/** Reads one stream; `onChunk` gets each chunk's age in microseconds. */
export function streamReader(
  expected: Expected,
  onChunk: (age_us: number, now_us: number) => void,
  finish: (finished: Finished) => void,
): Reader {
  const asked_us = now_us();
  let status = 0;
  let first_us = 0;
  let chunks = 0;
  /** A stamp that is not all here. After the last chunk everything is kept, and no stamp is looked for: raw repeats them. */
  let tail: Buffer = EMPTY;
  const settle = (wrong: string | null) => finish({ asked_us, ended_us: now_us(), first_us, chunks, wrong });
  return {
    head: (got) => {
      status = got;
    },
    body(bytes) {
      const now = now_us();
      const text = tail.length === 0 ? bytes : Buffer.concat([tail, bytes]);
      let from = 0;
      while (chunks < expected.chunks) {
        const at = text.indexOf(STAMP, from);
        if (at < 0 || at + STAMP_DIGITS + 1 >= text.length) {
          tail = at < 0 ? EMPTY : Buffer.from(text.subarray(at));
          return;
        }
        if (chunks++ === 0) first_us = now;
        onChunk(now - Number(text.toString('latin1', at + 1, at + 1 + STAMP_DIGITS)), now);
        from = at + STAMP_DIGITS + 2;
      }
      tail = Buffer.from(text.subarray(from));
    },
    end: () => settle(status === 200 ? wrongStream(chunks, tail, expected) : `status ${status}`),
    broken: settle,
  };
}

function wrongStream(chunks: number, tail: Buffer, expected: Expected): string | null {
  if (chunks !== expected.chunks) return `${chunks} of ${expected.chunks} chunks`;
  const missing = expected.ends.find((text) => !tail.includes(text));
  if (missing !== undefined) return `no ${missing}`;
  if (expected.attestation && !(tail.includes(ATTESTATION) && tail.includes(PROOF)))
    return 'no attestation in the stream';
  return null;
}
