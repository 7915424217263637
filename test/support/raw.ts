// Bytes to the gateway as they are, over a bare socket, and its answers read back one by one: what a client library would hide.
import { connect } from 'node:net';
import { expect } from 'vitest';
import { expectServing } from './refusals.ts';

export interface RawAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export interface RawResult {
  readonly answers: RawAnswer[];
  /** The server ended the connection. */
  readonly closed: boolean;
  readonly text: string;
  readonly ms: number;
}

export interface RawOptions {
  /** Resolves when this many answers are complete, or the server ends the connection. */
  readonly answers?: number;
  /** Stays this long after the last answer: would the server send more, or end? */
  readonly linger_ms?: number;
  readonly timeout_ms?: number;
  /** Sends the bytes one by one, with this long between them. */
  readonly drip_ms?: number;
  /** Ends the sending side at once. */
  readonly halfClose?: boolean;
  /** The request is a HEAD: its answer has no body. */
  readonly head?: boolean;
}

/**
 * Sends bytes and reads the answers. After a refusal the server must serve a new connection. Latin-1: each character is one byte.
 * @throws when neither an answer nor an end comes in time, which is a hang; when the server accepts no connection, before or afterwards
 */
export async function raw(url: string, text: string, options: RawOptions = {}): Promise<RawResult> {
  const result = await speak(url, text, options);
  if (result.closed || result.answers.some(({ status }) => status >= 400)) await expectServing(url);
  return result;
}

/** Does the same as `raw`, without the request after a refusal: for many of them at once, which one request may follow. */
export function speak(url: string, text: string, options: RawOptions = {}): Promise<RawResult> {
  const { answers: wanted = 1, linger_ms = 0, timeout_ms = 5_000, drip_ms, halfClose = false, head = false } = options;
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const began = performance.now();
    let all = '';
    let drip: NodeJS.Timeout | undefined;
    let lingering: NodeJS.Timeout | undefined;
    const socket = connect({ port: Number(port), host: hostname, allowHalfOpen: true });
    const timer = setTimeout(() => {
      socket.destroy();
      clearInterval(drip);
      reject(new Error(`a hang: nothing complete in ${timeout_ms} ms, so far ${JSON.stringify(all.slice(0, 500))}`));
    }, timeout_ms);
    const done = (closed: boolean) => {
      clearTimeout(timer);
      clearTimeout(lingering);
      clearInterval(drip);
      socket.destroy();
      resolve({ answers: answersOf(all, head), closed, text: all, ms: performance.now() - began });
    };
    let connected = false;
    socket.on('connect', () => {
      connected = true;
      const bytes = Buffer.from(text, 'latin1');
      if (drip_ms === undefined) return void (halfClose ? socket.end(bytes) : socket.write(bytes));
      let at = 0;
      drip = setInterval(() => {
        if (at < bytes.length && socket.writable) socket.write(bytes.subarray(at, ++at));
      }, drip_ms);
    });
    socket.on('data', (data) => {
      all += data.toString('latin1');
      if (lingering === undefined && answersOf(all, head).length >= wanted)
        lingering = setTimeout(() => done(false), linger_ms);
    });
    socket.on('end', () => done(true));
    socket.on('error', (error) => {
      if (connected) return done(true);
      clearTimeout(timer);
      reject(error);
    });
  });
}

/** The complete final answers in a text. */
function answersOf(text: string, head: boolean): RawAnswer[] {
  const found: RawAnswer[] = [];
  for (let rest = text; ; ) {
    const end = rest.indexOf('\r\n\r\n');
    const status = /^HTTP\/1\.1 (\d{3}) /.exec(rest)?.[1];
    if (end < 0 || status === undefined) return found;
    const headers: Record<string, string> = {};
    for (const line of rest.slice(0, end).split('\r\n').slice(1)) {
      const colon = line.indexOf(':');
      headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim();
    }
    const body = head ? { text: '', length: 0 } : bodyOf(rest.slice(end + 4), headers, Number(status));
    if (body === null) return found;
    // An interim answer is not the answer.
    if (Number(status) >= 200) found.push({ status: Number(status), headers, body: body.text });
    rest = rest.slice(end + 4 + body.length);
  }
}

function bodyOf(
  rest: string,
  headers: Record<string, string>,
  status: number,
): { text: string; length: number } | null {
  if (status < 200 || status === 204 || status === 304) return { text: '', length: 0 };
  if (headers['transfer-encoding'] !== 'chunked') {
    const length = Number(headers['content-length'] ?? 0);
    return rest.length < length ? null : { text: rest.slice(0, length), length };
  }
  let text = '';
  for (let at = 0; ; ) {
    const size = /^([0-9a-f]+)\r\n/i.exec(rest.slice(at, at + 20));
    if (size === null) return null;
    const length = Number.parseInt(size[1] as string, 16);
    at += size[0].length;
    if (rest.length < at + length + 2) return null;
    text += rest.slice(at, at + length);
    at += length + 2;
    if (length === 0) return { text, length: at };
  }
}

/** OpenAI's shape, and the headers of every answer of ours. */
export function expectRefusal(answer: RawAnswer | undefined, status: number, code: string): void {
  expect(answer, 'there is an answer').toBeDefined();
  const { error } = JSON.parse(answer?.body ?? '');
  expect([answer?.status, error.code]).toEqual([status, code]);
  expect(Object.keys(error)).toEqual(['message', 'type', 'param', 'code']);
  expect(answer?.headers).toMatchObject({
    'content-type': 'application/json',
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
  });
  expect(answer?.headers['x-request-id']).toMatch(/^req-/);
}

export function post(path: string, body: string, headers: readonly string[] = []): string {
  return `${[`POST ${path} HTTP/1.1`, 'host: h', `content-length: ${Buffer.byteLength(body, 'latin1')}`, ...headers].join('\r\n')}\r\n\r\n${body}`;
}

export function get(path: string, headers: readonly string[] = []): string {
  return `${[`GET ${path} HTTP/1.1`, 'host: h', ...headers].join('\r\n')}\r\n\r\n`;
}
