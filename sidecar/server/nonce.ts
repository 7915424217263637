// Makes the nonce of raw: checks that raw has the form that is attested, and takes its SHA-256. Large raws go to a worker thread.
import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import { Worker } from 'node:worker_threads';
import { type Nonce, splitRaw } from '../../proto/attestation/raw.ts';
import { JsonTextError } from '../../proto/json.ts';

/** Above this size, hashing raw takes longer than handing it to a thread. */
const OFFLOAD_BYTES = 128 * 1024;

export interface ReadRaw {
  readonly nonce: Nonce;
  /** The session that raw names; null: none. */
  readonly session: string | null;
}

/** @throws {JsonTextError} unless raw is one JSON object of the form that is attested. */
export function nonceOfRaw(raw: string | Buffer): ReadRaw | Promise<ReadRaw> {
  return raw.length > OFFLOAD_BYTES ? nonceOnThread(typeof raw === 'string' ? Buffer.from(raw) : raw) : nonceHere(raw);
}

/** The same, on the calling thread. */
export function nonceHere(raw: string | Buffer): ReadRaw {
  if (typeof raw !== 'string' && !isUtf8(raw)) throw new JsonTextError('raw is not UTF-8');
  const { session = null } = splitRaw(typeof raw === 'string' ? raw : raw.toString('utf8'));
  return { nonce: hash('sha256', raw) as Nonce, session };
}

/** The thread's result for one raw. */
export type NonceResult = ReadRaw | { readonly refused: string };

interface Waiting {
  readonly resolve: (read: ReadRaw) => void;
  readonly reject: (error: Error) => void;
}

let worker: Worker | null = null;
/** In the order in which raws were posted, in which results arrive. */
const waiting: Waiting[] = [];

function nonceOnThread(raw: Buffer): Promise<ReadRaw> {
  return new Promise((resolve, reject) => {
    worker ??= startWorker();
    waiting.push({ resolve, reject });
    // The bytes are copied, because the message's memory may be shared with others.
    const bytes = new Uint8Array(raw);
    worker.postMessage(bytes, [bytes.buffer]);
  });
}

function startWorker(): Worker {
  const started = new Worker(new URL('./nonce-worker.ts', import.meta.url));
  started.unref();
  const lost = (error: Error) => {
    if (worker !== started) return;
    worker = null;
    for (const request of waiting.splice(0)) request.reject(error);
  };
  started.on('message', (result: NonceResult) => {
    const request = waiting.shift();
    if ('nonce' in result) request?.resolve(result);
    else request?.reject(new JsonTextError(result.refused));
  });
  started.on('error', lost);
  started.on('exit', () => lost(new Error('the thread that looks at raw ended')));
  return started;
}
