// What AMD's and Intel's endorsements have in common: a service that is asked sparingly, and a folder that keeps what it gave.
// Nothing that comes from here is trusted before the verifier has checked it.
import { createHash } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { readLimited } from '../../verify/index.ts';
import { type AttesterError, failed } from '../common/attester.ts';

export interface EndorsementOptions {
  /** Where endorsements are kept across restarts. */
  readonly cache_dir: string;
  readonly fetch: typeof globalThis.fetch;
  /** For each request; 10,000 by default. */
  readonly timeout_ms?: number | undefined;
  readonly now_ms?: (() => number) | undefined;
  /** Called with one line about what failed where another source or a later attempt makes up for it. */
  readonly onFailure?: ((message: string) => void) | undefined;
  /** PEM of roots to trust in place of the pinned ones. */
  readonly roots?: string | undefined;
}

/** An endorsement is not at hand, and may be later. */
export const unavailable = (words: string, options?: ErrorOptions): AttesterError =>
  failed('collection_failed', 'cpu_unavailable', words, 'retry', options);

/** The verifier refuses the processor's own evidence. */
export const refused = (words: string): AttesterError => failed('appraisal_failed', 'cpu_refused', words, 'retry');

/** Whether `now` is less than `length` after `since`; false where the clock was set back since. */
export const isWithin = (length_ms: number, since_ms: number, now_ms: number): boolean =>
  now_ms >= since_ms && now_ms - since_ms < length_ms;

/** As errors and the log show an instant. */
export const iso = (ms: number): string => new Date(ms).toISOString().replace('.000Z', 'Z');

// A service. It is asked for one thing once a minute at the most, whatever became of it.

interface Fetched {
  readonly bytes: Buffer;
  readonly headers: Headers;
}

/** @throws {AttesterError} no response in time, too large a one, or another status than 200. */
export type Get = (url: string, max_bytes: number) => Promise<Fetched>;

export interface Service<T> {
  /**
   * Runs `work`, which asks for what `id` names, in words. Callers at the same time share one run, and its result or failure
   * stands for a minute.
   * @throws {AttesterError}
   */
  ask(id: string, work: (get: Get) => Promise<T>): Promise<T>;
}

const MIN_INTERVAL_MS = 60_000;
const MAX_PAUSE_MS = 3_600_000;
const TIMEOUT_MS = 10_000;
const MAX_OUTCOMES = 64;

export function createService<T>(options: EndorsementOptions): Service<T> {
  const { fetch, timeout_ms = TIMEOUT_MS, now_ms = Date.now } = options;
  const outcomes = new Map<string, { readonly asked_ms: number; readonly outcome: Promise<T> }>();
  /** Where the service said 429 or 503: nothing is asked before. */
  let pause: { readonly since_ms: number; readonly length_ms: number; readonly host: string } | null = null;

  async function get(id: string, url: string, max_bytes: number): Promise<Fetched> {
    const { host } = new URL(url);
    let response: Response;
    let bytes: Buffer;
    try {
      // No redirect: it would lead to a host that nobody named.
      response = await fetch(url, { signal: AbortSignal.timeout(timeout_ms), redirect: 'error' });
      bytes = Buffer.from(await readLimited(response, max_bytes));
    } catch (cause) {
      throw unavailable(`the ${id} is not at hand: ${host} ${networkReason(cause, timeout_ms, max_bytes)}`, { cause });
    }
    const { status, headers } = response;
    if (status === 200) return { bytes, headers };
    if (status === 429 || status === 503)
      pause = { since_ms: now_ms(), length_ms: retryAfterMs(headers.get('retry-after'), now_ms()), host };
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
    ask(id, work) {
      const asked_ms = now_ms();
      const last = outcomes.get(id);
      if (last !== undefined && isWithin(MIN_INTERVAL_MS, last.asked_ms, asked_ms)) return last.outcome;
      if (outcomes.size >= MAX_OUTCOMES) outcomes.clear();
      const outcome = run(id, work);
      outcomes.set(id, { asked_ms, outcome });
      return outcome;
    },
  };
}

/** RFC 9110 §10.2.3: seconds, or a date. Never less than the interval between two requests. */
function retryAfterMs(header: string | null, now_ms: number): number {
  const text = header?.trim() ?? '';
  const wait = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - now_ms;
  return Number.isNaN(wait) ? MIN_INTERVAL_MS : Math.min(Math.max(wait, MIN_INTERVAL_MS), MAX_PAUSE_MS);
}

/** fetch has the reason in `cause`. */
function networkReason(error: unknown, timeout_ms: number, max_bytes: number): string {
  if (error instanceof RangeError) return `sent more than ${max_bytes} bytes`;
  if (!(error instanceof Error)) return 'could not be asked';
  if (error.name === 'TimeoutError') return `did not answer within ${timeout_ms} ms`;
  const { code } = (error.cause ?? {}) as NodeJS.ErrnoException;
  return `could not be asked (${code ?? error.message})`;
}

// The folder. What is in it is in memory too, once it was used: a folder that cannot be written costs requests after a restart alone.

export interface Kept {
  readonly bytes: Buffer;
  /** When it came from its service. */
  readonly fetched_ms: number;
}

export interface Store {
  /** null: it was never kept, or its file was damaged and has been removed. */
  read(id: string): Promise<Kept | null>;
  /** Replaces what was kept before. */
  write(id: string, kept: Kept): Promise<void>;
}

const MAX_FILE_BYTES = 4 * 1024 * 1024;
/** One processor needs four; each firmware of it one more. The ones not written for longest go first. */
const MAX_FILES = 64;
const ABANDONED_MS = 60_000;
/** A file is this and the SHA-256 of all that follows in hex; the id; when it was fetched; the contents. A line feed ends each of the first three. */
const MAGIC = 'countersign endorsement 1 ';
const NAME = /^endorsement-[0-9a-f]{64}$/;
const HALF_WRITTEN = /^endorsement-[0-9a-f]{64}\.\d+\.tmp$/;

export function createStore({ cache_dir, onFailure = () => {} }: EndorsementOptions): Store {
  const memory = new Map<string, Kept>();
  const path = (id: string) => join(cache_dir, `endorsement-${sha256(id)}`);
  let turn: Promise<unknown> = Promise.resolve();

  function remember(id: string, kept: Kept): Kept {
    if (memory.size >= MAX_FILES) memory.clear();
    memory.set(id, kept);
    return kept;
  }

  /** Runs one change of the folder at a time. */
  function change(work: () => Promise<void>): Promise<void> {
    const done = turn.then(work).catch((error: unknown) => {
      onFailure(`${cache_dir} cannot keep what was fetched (${reason(error)}); it is fetched again after a restart`);
    });
    turn = done;
    return done;
  }

  return {
    async read(id) {
      const known = memory.get(id);
      if (known !== undefined) return known;
      const file = path(id);
      try {
        if ((await stat(file)).size > MAX_FILE_BYTES) throw new Error('too large');
        return remember(id, unpacked(await readFile(file), id));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
        onFailure(`${file} is damaged (${reason(error)}) and is fetched again`);
        await change(() => rm(file, { force: true }));
        return null;
      }
    },
    write(id, kept) {
      remember(id, kept);
      return change(() => put(cache_dir, path(id), packed(id, kept)));
    },
  };
}

/** The file is there whole or not at all. */
async function put(folder: string, file: string, bytes: Buffer): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const temporary = `${file}.${process.pid}.tmp`;
  const handle = await open(temporary, 'w', 0o600);
  try {
    await handle.writeFile(bytes);
    await handle.sync();
  } finally {
    await handle.close();
  }
  await rename(temporary, file);
  await shrink(folder);
}

/** Removes the oldest files above the limit, and half-written files of a killed process. */
async function shrink(folder: string): Promise<void> {
  const ours = (await readdir(folder)).filter((name) => NAME.test(name) || HALF_WRITTEN.test(name));
  const files = await Promise.all(
    ours.map(async (name) => {
      const file = join(folder, name);
      const { mtimeMs } = await stat(file).catch(() => ({ mtimeMs: 0 }));
      return { file, mtimeMs, isWhole: NAME.test(name) };
    }),
  );
  const whole = files.filter(({ isWhole }) => isWhole).sort((a, b) => b.mtimeMs - a.mtimeMs);
  const abandoned = files.filter(({ isWhole, mtimeMs }) => !isWhole && mtimeMs < Date.now() - ABANDONED_MS);
  for (const { file } of [...whole.slice(MAX_FILES), ...abandoned]) await rm(file, { force: true });
}

const sha256 = (bytes: string | Buffer): string => createHash('sha256').update(bytes).digest('hex');

function packed(id: string, { bytes, fetched_ms }: Kept): Buffer {
  const rest = Buffer.concat([Buffer.from(`${id}\n${fetched_ms}\n`), bytes]);
  return Buffer.concat([Buffer.from(`${MAGIC}${sha256(rest)}\n`), rest]);
}

function unpacked(file: Buffer, id: string): Kept {
  const rest = file.subarray(MAGIC.length + 65);
  if (file.toString('latin1', 0, MAGIC.length + 65) !== `${MAGIC}${sha256(rest)}\n`)
    throw new Error('its checksum is another');
  const [name = '', time = ''] = rest.toString('latin1', 0, id.length + 32).split('\n');
  if (name !== id) throw new Error('it is of something else');
  return { bytes: Buffer.from(rest.subarray(name.length + time.length + 2)), fetched_ms: Number(time) };
}

const reason = (error: unknown) =>
  (error as NodeJS.ErrnoException).code ?? (error instanceof Error ? error.message : 'unknown');
