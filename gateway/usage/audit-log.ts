// The audit log: one JSON line for each request except GET that reached the backend, never its content. Each line holds the SHA-256 of the
// line before it, by which `countersign audit-log check` finds a line that was removed or changed.
import { hash } from 'node:crypto';
import {
  closeSync,
  existsSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readdirSync,
  readSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import type { Logger } from 'pino';
import { ConfigError, type GatewayConfig } from '../base/config.ts';

/** A line without its number, its predecessor's hash and its time. */
interface AuditEntry {
  /** The id of the request and of its attestation. */
  readonly id: string;
  readonly key: string;
  readonly endpoint: string;
  readonly model: string;
  readonly status: number;
  readonly input_tokens: number;
  readonly output_tokens: number;
  /** The source of the counts: `backend`, `events`, `estimate` or `unknown`. */
  readonly tokens: string;
  /** The nonce of an attested response. */
  readonly nonce?: string;
  /** The devices that signed, by their `ueid`. */
  readonly devices?: readonly string[];
  /** The highest level that the evidence can show: `none` (simulated), `gpu`, `gpu+cpu`. */
  readonly level?: string;
}

export interface AuditLog {
  add(entry: AuditEntry): void;
  state(): AuditState;
  /** Writes the waiting lines. */
  close(): void;
}

export interface AuditState {
  /** The number of the last line, counted from 1. */
  readonly lines: number;
  /** Entries that were not written, because writing failed for too long. */
  readonly lost: number;
  /** The error's code while lines cannot be written; else null. */
  readonly failing: string | null;
}

/** The predecessor's hash in the first line of all. */
export const NO_LINE = '0'.repeat(64);
export const lineHash = (line: string): string => hash('sha256', line);

const FLUSH_MS = 100;
const FLUSH_LENGTH = 64 * 1024;
/** Limit for lines that wait while writing fails, in bytes. */
const MAX_WAITING = 8 * 1024 * 1024;
const MAX_LINE = 16 * 1024;
const RETRY_MS = 1_000;
/** Rotated files are `FILE.` and the number of their first line, so that names sort as lines do. */
const NUMBER = /^\d{12}$/;

interface AuditOptions {
  readonly file: string;
  /** A file that is longer is rotated. */
  readonly max_bytes: number;
  /** Limit for rotated files, of which the oldest are removed; 0: no limit. */
  readonly max_files: number;
}

/** The log that the configuration names; null: none. @throws {ConfigError} where its file cannot be an audit log. */
export function auditLogOf(
  {
    audit_log,
    audit_log_bytes,
    audit_log_files,
  }: Pick<GatewayConfig, 'audit_log' | 'audit_log_bytes' | 'audit_log_files'>,
  log: Logger,
): AuditLog | null {
  if (audit_log === null) return null;
  return openAuditLog({ file: audit_log, max_bytes: audit_log_bytes, max_files: audit_log_files }, log);
}

/** @throws {ConfigError} when the file cannot be written, or its last line is not one of an audit log. */
function openAuditLog({ file, max_bytes, max_files }: AuditOptions, log: Logger): AuditLog {
  let { fd, seq, prev, bytes, first } = open(file, log);
  let waiting = '';
  let lost = 0;
  /** Entries lost since the last line, which the next line reports. */
  let unreported = 0;
  let failing: string | null = null;
  let timer: NodeJS.Timeout | null = null;

  function append(members: object): void {
    const line = inAscii(JSON.stringify({ seq: seq + 1, prev, time: new Date().toISOString(), ...members }));
    seq++;
    prev = lineHash(line);
    waiting += `${line}\n`;
  }

  function add(entry: AuditEntry): void {
    if (waiting.length > MAX_WAITING) {
      lost++;
      unreported++;
      return;
    }
    if (unreported > 0) append({ lost: unreported });
    unreported = 0;
    append(entry);
    if (waiting.length > FLUSH_LENGTH && failing === null) flush();
    else timer ??= setTimeout(flush, FLUSH_MS).unref();
  }

  /** Writes the waiting lines to the kernel's cache, ten times a second. Lines that cannot be written stay in `waiting`. */
  function flush(): void {
    clearTimeout(timer ?? undefined);
    timer = null;
    const problem = writeWaiting() ?? (bytes >= max_bytes ? rotate() : null);
    setFailing(problem);
    if (problem !== null) timer = setTimeout(flush, RETRY_MS).unref();
  }

  /** @returns the error's code; null when all is written. */
  function writeWaiting(): string | null {
    try {
      while (waiting !== '') {
        const written = writeSync(fd, waiting);
        bytes += written;
        waiting = waiting.slice(written);
      }
      return null;
    } catch (error) {
      return codeOf(error);
    }
  }

  function setFailing(code: string | null): void {
    if (failing === code) return;
    failing = code;
    if (code === null) log.info('AUDIT_LOG is written again');
    else log.error({ code }, 'AUDIT_LOG cannot be written');
  }

  /** The old file stays in use until the new one is open. @returns the error's code; null when it was done. */
  function rotate(): string | null {
    const old = rotated(file, first);
    try {
      renameSync(file, old);
    } catch (error) {
      return codeOf(error);
    }
    try {
      const fresh = openSync(file, 'a', 0o600);
      closeSync(fd);
      fd = fresh;
      bytes = 0;
      first = seq + 1;
    } catch (error) {
      renameSync(old, file);
      return codeOf(error);
    }
    return removeOldest(file, max_files);
  }

  function end(): void {
    clearTimeout(timer ?? undefined);
    if (unreported > 0) append({ lost: unreported });
    const problem = writeWaiting();
    if (problem !== null) log.error({ code: problem }, 'AUDIT_LOG: the last lines are lost');
  }
  process.once('exit', end);
  return {
    add,
    state: () => ({ lines: seq, lost, failing }),
    close() {
      process.off('exit', end);
      end();
      closeSync(fd);
    },
  };
}

const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? 'unknown';

/** In ASCII, a partial write cannot divide a character. */
const inAscii = (json: string): string =>
  json.replace(/[\u0080-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

const rotated = (file: string, first: number): string => `${file}.${String(first).padStart(12, '0')}`;

/** The rotated files beside `file`, the oldest first. */
export function rotatedFiles(file: string): string[] {
  const prefix = `${basename(file)}.`;
  return readdirSync(dirname(file))
    .filter((name) => name.startsWith(prefix) && NUMBER.test(name.slice(prefix.length)))
    .sort()
    .map((name) => join(dirname(file), name));
}

/** Removes rotated files beyond `max_files`. @returns the error's code; null when it was done. */
function removeOldest(file: string, max_files: number): string | null {
  try {
    for (const one of max_files === 0 ? [] : rotatedFiles(file).slice(0, -max_files)) rmSync(one, { force: true });
    return null;
  } catch (error) {
    return codeOf(error);
  }
}

interface Opened {
  fd: number;
  seq: number;
  prev: string;
  bytes: number;
  /** The number of the file's first line. */
  first: number;
}

function open(file: string, log: Logger): Opened {
  try {
    const last = rotatedFiles(file).at(-1);
    // A crash right after a rotation leaves no file, or an empty one: the chain continues from the rotated one.
    const before = last === undefined ? null : lastLine(last, log);
    const fd = openSync(file, 'a+', 0o600);
    const own = lastLine(file, log);
    const { seq, prev } = own ?? before ?? { seq: 0, prev: NO_LINE };
    return { fd, seq, prev, bytes: fstatSync(fd).size, first: own === null ? seq + 1 : firstSeq(file) };
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    throw new ConfigError(`AUDIT_LOG cannot be written: ${(error as NodeJS.ErrnoException).code}`, { cause: error });
  }
}

/** The last line's number and hash. A line that a crash cut off is removed: it was never complete. null: there is no line. */
function lastLine(file: string, log: Logger): { seq: number; prev: string } | null {
  if (!existsSync(file)) return null;
  const fd = openSync(file, 'r+');
  try {
    const { size } = fstatSync(fd);
    const from = Math.max(0, size - 2 * MAX_LINE);
    const tail = readAt(fd, from, size - from);
    const end = tail.lastIndexOf(0x0a) + 1;
    if (end < tail.length) {
      if (end === 0 && from > 0) throw notOurs(file);
      log.warn({ bytes: tail.length - end }, 'AUDIT_LOG: a line that was cut off is removed');
      ftruncateSync(fd, from + end);
    }
    if (end === 0) return null;
    const line = tail.toString('utf8', tail.lastIndexOf(0x0a, end - 2) + 1, end - 1);
    return { seq: seqOf(line, file), prev: lineHash(line) };
  } finally {
    closeSync(fd);
  }
}

function firstSeq(file: string): number {
  const fd = openSync(file, 'r');
  try {
    const head = readAt(fd, 0, MAX_LINE);
    return seqOf(head.toString('utf8', 0, head.indexOf(0x0a)), file);
  } finally {
    closeSync(fd);
  }
}

function readAt(fd: number, position: number, length: number): Buffer {
  const buffer = Buffer.alloc(length);
  return buffer.subarray(0, readSync(fd, buffer, 0, length, position));
}

function seqOf(line: string, file: string): number {
  try {
    const { seq } = JSON.parse(line) as { seq?: unknown };
    if (Number.isSafeInteger(seq) && (seq as number) > 0) return seq as number;
  } catch {}
  throw notOurs(file);
}

const notOurs = (file: string) => new ConfigError(`AUDIT_LOG: ${file} holds something else than an audit log's lines`);
