// Makes an attestation: builds raw from the exchange, has the sidecar sign it, keeps it for retrieval.
import { hash } from 'node:crypto';
import { MAX_RAW_LENGTH } from '../proto/frames.ts';
import { buildRaw, type Nonce, type Raw, type StreamDigest } from '../proto/raw.ts';
import type { Exchange } from './delivery/exchange.ts';
import { Problem } from './problem.ts';
import type { Sidecar } from './sidecar/client.ts';
import type { Store } from './store/store.ts';

export interface Answer {
  /** The backend's body exactly as received, or what its chunks fold into. */
  readonly response: string;
  readonly stream?: StreamDigest;
  readonly completionId: string | null;
}

/** The attestation as JSON, in UTF-8. Whoever has written it may let go of it, for what brings it can live for longer. */
export interface Attested {
  json: Buffer;
}

export interface Attestor {
  /** The backend has said the completion's id: who asks for its attestation by that is told that it comes. */
  name(exchange: Exchange, completionId: string): void;
  /**
   * `onLeft` takes what is to be called when the client leaves.
   * @throws {Problem} attestation_unavailable. @throws {ClientGone}
   */
  attest(exchange: Exchange, answer: Answer, onLeft: (left: () => void) => void): Promise<Attested>;
}

/** Beyond this, work on raw is done in slices, so that other exchanges are not kept waiting. */
const SLICE = 256 * 1024;
/** In place of bytes that were let go of. */
export const NOTHING = Buffer.alloc(0);

export function createAttestor(sidecar: Sidecar, store: Store, now_ms: () => number): Attestor {
  return {
    name: ({ owner, id }, completionId) => store.name(owner, id, completionId),
    async attest(exchange, answer, onLeft) {
      const { response, stream } = answer;
      const timestamp = Math.floor(now_ms() / 1000);
      const raw = buildRaw({
        request: exchange.request,
        response,
        timestamp,
        ...(stream === undefined ? {} : { stream }),
      });
      if (raw.length > MAX_RAW_LENGTH)
        throw new Problem('backend_bad_response', 'Request and answer together are larger than what is attested.');
      const bytes = Buffer.from(raw, 'utf8');
      const nonce = bytes.length > SLICE ? await hashedAside(bytes) : hashed(bytes);
      exchange.watch.attests();
      const answered = await sidecar.attest(exchange.owner, exchange.id, bytes, nonce, onLeft);
      const { members, phases } = answered;
      // Its promise has waited longer than the young live, and would hold the bytes until the old are looked through.
      answered.members = NOTHING;
      exchange.watch.attested(phases);
      const rawJson = raw.length > SLICE ? await quotedInSlices(raw) : JSON.stringify(raw);
      const json = Buffer.concat([Buffer.from(`{"raw":${rawJson},"nonce":"${nonce}",`), members.subarray(1)]);
      store.keep(exchange.owner, exchange.id, answer.completionId, json);
      return { json };
    },
  };
}

function hashed(bytes: Buffer): Nonce {
  return hash('sha256', bytes) as Nonce;
}

/** On a thread of its own: 4 MB take as long as a hundred requests. */
async function hashedAside(bytes: Buffer<ArrayBuffer>): Promise<Nonce> {
  return Buffer.from(await crypto.subtle.digest('SHA-256', bytes)).toString('hex') as Nonce;
}

/** `JSON.stringify(raw)`, with a turn for others after each slice. */
async function quotedInSlices(raw: Raw): Promise<string> {
  let json = '"';
  for (let from = 0; from < raw.length; ) {
    let to = Math.min(raw.length, from + SLICE);
    // Two halves of one character stay together.
    if (to < raw.length && isHighSurrogate(raw.charCodeAt(to - 1))) to--;
    json += JSON.stringify(raw.slice(from, to)).slice(1, -1);
    from = to;
    await new Promise((resolve) => setImmediate(resolve));
  }
  return `${json}"`;
}

function isHighSurrogate(code: number): boolean {
  return code >= 0xd800 && code <= 0xdbff;
}
