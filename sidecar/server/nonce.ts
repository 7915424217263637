// From raw to its nonce: is it {request, response, timestamp}, and what is its SHA-256. A large one is looked at on a thread of its own.
import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import { Worker } from 'node:worker_threads';
import { JsonTextError } from '../../proto/json.ts';
import { type Nonce, splitRaw } from '../../proto/raw.ts';

/** Beyond this, looking at raw takes longer than handing it over. */
const ASIDE_BYTES = 128 * 1024;

/** @throws {JsonTextError} unless raw is one JSON object of the form that is attested. */
export function nonceOfRaw(raw: string | Buffer): Nonce | Promise<Nonce> {
  return raw.length > ASIDE_BYTES ? nonceAside(typeof raw === 'string' ? Buffer.from(raw) : raw) : nonceHere(raw);
}

/** The same on this thread. */
export function nonceHere(raw: string | Buffer): Nonce {
  if (typeof raw !== 'string' && !isUtf8(raw)) throw new JsonTextError('raw is not UTF-8');
  splitRaw(typeof raw === 'string' ? raw : raw.toString('utf8'));
  return hash('sha256', raw) as Nonce;
}

/** What the thread says of one raw. */
export type Looked = { readonly nonce: Nonce } | { readonly refused: string };

interface Waiting {
  readonly resolve: (nonce: Nonce) => void;
  readonly reject: (error: Error) => void;
}

let worker: Worker | null = null;
/** In the order in which they were handed over: the thread answers in it. */
const waiting: Waiting[] = [];

function nonceAside(raw: Buffer): Promise<Nonce> {
  return new Promise((resolve, reject) => {
    worker ??= startWorker();
    waiting.push({ resolve, reject });
    // Copied: the message's own memory may be shared with others.
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
    for (const one of waiting.splice(0)) one.reject(error);
  };
  started.on('message', (looked: Looked) => {
    const one = waiting.shift();
    if ('nonce' in looked) one?.resolve(looked.nonce);
    else one?.reject(new JsonTextError(looked.refused));
  });
  started.on('error', lost);
  started.on('exit', () => lost(new Error('the thread that looks at raw ended')));
  return started;
}
