// Shared by AMD's and Intel's endorsements: a rate-limited client, and a folder that keeps what was fetched. Nothing from here is
// trusted before the verifier has checked it.
import { LRUCache } from 'lru-cache';
import { readLimited } from '../../verify/service.ts';
import { networkReason, retryAfterMs } from '../common/http.ts';
import { createKeptFiles } from '../common/kept-files.ts';
import { unavailable } from './cpu-collector.ts';

export interface EndorsementOptions {
  /** Where endorsements are kept across restarts. */
  readonly cache_dir: string;
  readonly fetch: typeof globalThis.fetch;
  /** For each request; 10,000 by default. */
  readonly timeout_ms?: number | undefined;
  readonly now_ms?: (() => number) | undefined;
  /** Called with one line about a failure that another source or a later attempt makes up for. */
  readonly onFailure?: ((message: string) => void) | undefined;
  /** PEM of roots to trust in place of the pinned ones. */
  readonly roots?: string | undefined;
}

/** Whether `now` is less than `length` after `since`; false where the clock was set back since. */
export const isWithin = (length_ms: number, since_ms: number, now_ms: number): boolean =>
  now_ms >= since_ms && now_ms - since_ms < length_ms;

/** An instant, as errors and the log show it. */
export const iso = (ms: number): string => new Date(ms).toISOString().replace('.000Z', 'Z');

// A rate-limited client: at most one request a minute for each id, whatever the outcome.

interface Fetched {
  readonly bytes: Buffer;
  readonly headers: Headers;
}

/** @throws {AttesterError} no response in time, too large a one, or another status than 200. */
export type Get = (url: string, max_bytes: number) => Promise<Fetched>;

export interface Service<T> {
  /**
   * Runs `work`, which fetches the documents that `id` names, in words. Callers within a minute share one run and its outcome.
   * @throws {AttesterError}
   */
  fetchOnce(id: string, work: (get: Get) => Promise<T>): Promise<T>;
}

const MIN_INTERVAL_MS = 60_000;
const MAX_PAUSE_MS = 3_600_000;
const TIMEOUT_MS = 10_000;
const MAX_OUTCOMES = 64;

export function createService<T>(options: EndorsementOptions): Service<T> {
  const { fetch, timeout_ms = TIMEOUT_MS, now_ms = Date.now } = options;
  const outcomes = new LRUCache<string, { readonly requested_ms: number; readonly outcome: Promise<T> }>({
    max: MAX_OUTCOMES,
  });
  /** After 429 or 503: no request before its end. */
  let pause: { readonly since_ms: number; readonly length_ms: number; readonly host: string } | null = null;

  async function get(id: string, url: string, max_bytes: number): Promise<Fetched> {
    const { host } = new URL(url);
    let response: Response;
    let bytes: Buffer;
    try {
      // A redirect is refused: it would lead to a host that is not configured.
      response = await fetch(url, { signal: AbortSignal.timeout(timeout_ms), redirect: 'error' });
      bytes = Buffer.from(await readLimited(response, max_bytes));
    } catch (cause) {
      throw unavailable(`the ${id} is not at hand: ${host} ${networkReason(cause, { timeout_ms, max_bytes })}`, {
        cause,
      });
    }
    const { status, headers } = response;
    if (status === 200) return { bytes, headers };
    if (status === 429 || status === 503) {
      const wait_ms = retryAfterMs(headers, now_ms()) ?? MIN_INTERVAL_MS;
      const length_ms = Math.min(Math.max(wait_ms, MIN_INTERVAL_MS), MAX_PAUSE_MS);
      pause = { since_ms: now_ms(), length_ms, host };
    }
    throw unavailable(`the ${id} is not at hand: ${host} answered ${status}`);
  }

  async function run(id: string, work: (get: Get) => Promise<T>): Promise<T> {
    if (pause !== null && isWithin(pause.length_ms, pause.since_ms, now_ms())) {
      const { host, since_ms, length_ms } = pause;
      throw unavailable(`the ${id} is not at hand: ${host} wants no request before ${iso(since_ms + length_ms)}`);
    }
    return work((url, max_bytes) => get(id, url, max_bytes));
  }

  return {
    fetchOnce(id, work) {
      const requested_ms = now_ms();
      const last = outcomes.get(id);
      if (last !== undefined && isWithin(MIN_INTERVAL_MS, last.requested_ms, requested_ms)) return last.outcome;
      const outcome = run(id, work);
      outcomes.set(id, { requested_ms, outcome });
      return outcome;
    },
  };
}

// The folder. Used entries are in memory too: a folder that cannot be written costs requests only after a restart.

export interface Kept {
  readonly bytes: Buffer;
  /** When it was fetched. */
  readonly fetched_ms: number;
}

export interface Store {
  /** null: it was never kept, or its file was damaged and has been removed. */
  read(id: string): Promise<Kept | null>;
  /** Replaces an earlier entry of this id. */
  write(id: string, kept: Kept): Promise<void>;
}

const MAX_FILE_BYTES = 4 * 1024 * 1024;
/** An AMD processor needs three, and a leaf more for each firmware; an Intel processor needs one. */
const MAX_FILES = 64;

export function createStore({ cache_dir, onFailure = () => {} }: EndorsementOptions): Store {
  const memory = new LRUCache<string, Kept>({ max: MAX_FILES });
  const files = createKeptFiles({
    folder: cache_dir,
    magic: 'countersign endorsement 1 ',
    kinds: ['endorsement'],
    max_file_bytes: MAX_FILE_BYTES,
    max_files: MAX_FILES,
    onFailure,
  });
  return {
    async read(id) {
      const known = memory.get(id);
      if (known !== undefined) return known;
      const contents = await files.read('endorsement', id);
      if (contents === null) return null;
      const kept = unpacked(contents);
      memory.set(id, kept);
      return kept;
    },
    write(id, kept) {
      memory.set(id, kept);
      return files.write('endorsement', id, packed(kept));
    },
  };
}

// A file's contents: the time of the fetch in milliseconds, LF, the endorsement.

const packed = ({ bytes, fetched_ms }: Kept): Buffer => Buffer.concat([Buffer.from(`${fetched_ms}\n`), bytes]);

function unpacked(contents: Uint8Array): Kept {
  const bytes = Buffer.from(contents);
  const end = bytes.indexOf('\n');
  return { bytes: bytes.subarray(end + 1), fetched_ms: Number(bytes.toString('latin1', 0, end)) };
}
