import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { HeadCache, type ParsedHead, parseResponseHead } from '../../../gateway/backend/response.ts';
import { share } from '../../../gateway/http/outgoing.ts';
import { PlainResponse } from '../../../gateway/http/plain-path/response.ts';
import { answer, startBackend } from '../../support/backend.ts';
import { startGateway } from '../../support/harness.ts';

const DATE = 'Sun, 22 Nov 2026 04:22:51 GMT';
const OTHER_DATE = 'Mon, 23 Nov 2026 05:33:02 GMT';
const head = (...lines: string[]) =>
  Buffer.from(`HTTP/1.1 200 OK\r\n${lines.map((line) => `${line}\r\n`).join('')}\r\n`);
const read = (heads: HeadCache, bytes: Buffer) => heads.read(bytes, 0, bytes.length);

describe('a head that a backend says again', () => {
  const lines = [`date: ${DATE}`, 'server: uvicorn', 'content-length: 512', 'content-type: application/json'];

  it('shares what was made of it, whatever its length and its date', () => {
    const heads = new HeadCache();
    const first = read(heads, head(...lines));
    const second = read(
      heads,
      head(`date: ${OTHER_DATE}`, lines[1] as string, 'content-length: 7', lines[3] as string),
    );
    const other = read(heads, head(...lines, 'x-mark: 1'));
    expect(first).toMatchObject({ status: 200, length: 512, framing: 512 });
    expect(second).toMatchObject({ status: 200, length: 7, framing: 7 });
    expect(second?.cache).toBe(first?.cache);
    expect(second?.headers).toEqual({ server: 'uvicorn', 'content-type': 'application/json' });
    expect(other?.cache).not.toBe(first?.cache);
    expect(read(heads, head(...lines))?.cache).toBe(first?.cache);
  });

  it('is known among a few others only', () => {
    const heads = new HeadCache();
    const made = (mark: number) => read(heads, head(...lines, `x-mark: ${mark}`))?.cache;
    const [first, second] = [made(1), made(2)];
    expect([made(1), made(2)]).toEqual([first, second]);
    for (let mark = 3; mark < 20; mark++) made(mark);
    expect(made(1)).not.toBe(first);
  });

  it('has a length of fifteen digits at most', () => {
    const heads = new HeadCache();
    const long = (digits: string) => head(...lines.slice(0, 2), `content-length: ${digits}`, ...lines.slice(3));
    expect(read(heads, long('1'))?.length).toBe(1);
    expect(read(heads, long('123456789012345'))?.length).toBe(123_456_789_012_345);
    expect(() => read(heads, long('1234567890123456'))).toThrow('a length that is none');
  });

  it('is not remembered when it is large', () => {
    const heads = new HeadCache();
    const large = head(...lines, `x-mark: ${'a'.repeat(2_048)}`);
    expect(read(heads, large)?.cache).not.toBe(read(heads, large)?.cache);
  });

  it('is no head when its answer has no body', () => {
    const heads = new HeadCache();
    const empty = (length: number) => Buffer.from(`HTTP/1.1 204 No Content\r\ncontent-length: ${length}\r\n\r\n`);
    expect(read(heads, empty(0))?.framing).toBe(0);
    expect(read(heads, empty(5))?.framing).toBe(0);
  });

  it('is read as if it were the first, whatever changed in it', () => {
    let again = 0;
    const text = fc.oneof(
      fc
        .stringMatching(/^(0{0,2}[0-9]{1,16}| 2|2 |)$/)
        .map((length) => [...lines.slice(0, 2), `content-length: ${length}`, ...lines.slice(3)]),
      fc.constant([`date: ${OTHER_DATE}`, ...lines.slice(1)]),
      fc.constant([...lines, lines[2] as string]),
      fc.constant([...lines, 'content-length: 513']),
      fc.constant([...lines, lines[0] as string]),
      fc.constant([lines[1] as string, 'transfer-encoding: chunked', lines[3] as string, 'Date: now']),
      fc.shuffledSubarray(lines),
    );
    const change = fc.oneof(
      fc.record({ lines: text }),
      fc.record({ at: fc.nat(150), byte: fc.nat(255) }),
      fc.record({ cut: fc.nat(150) }),
    );
    const changed = (by: typeof change extends fc.Arbitrary<infer Change> ? Change : never): Buffer => {
      if ('lines' in by) return head(...by.lines);
      const bytes = head(...lines);
      if ('cut' in by) return bytes.subarray(0, by.cut);
      if (by.at < bytes.length) bytes[by.at] = by.byte;
      return bytes;
    };
    const outcome = (run: () => ParsedHead | null) => {
      try {
        const got = run();
        return got === null ? null : { ...got, headers: { ...got.headers }, made: null };
      } catch (error) {
        return (error as Error).message;
      }
    };
    fc.assert(
      fc.property(fc.array(fc.tuple(change, fc.nat(20), fc.nat(20)), { minLength: 1, maxLength: 6 }), (changes) => {
        const heads = new HeadCache();
        const first = read(heads, head(...lines));
        for (const [by, before, after] of changes) {
          const bytes = changed(by);
          // In the middle of a buffer that others were read into: what is around it is not part of it.
          const landing = Buffer.concat([head(...lines).subarray(0, before), bytes, head(...lines).subarray(-after)]);
          let got: ParsedHead | null = null;
          const reading = outcome(() => {
            got = heads.read(landing, before, before + bytes.length);
            return got;
          });
          expect(reading).toEqual(outcome(() => parseResponseHead(bytes)));
          if ((got as ParsedHead | null)?.cache === first?.cache) again++;
        }
      }),
      { numRuns: 3_000 },
    );
    expect(again).toBeGreaterThan(100);
  });
});

describe('an answer with headers that are shared', () => {
  const common = share({ 'x-common': 'a', vary: 'origin' });
  const linesWith = (act: (answer: PlainResponse) => void, set: Record<string, string>, first = common) => {
    const pieces: string[] = [];
    const write = (bytes: Buffer) => pieces.push(bytes.toString('latin1'));
    const socket = { writableLength: 0, writableCorked: 1, timeout: 0, setTimeout() {}, write };
    const answer = new PlainResponse(socket as never, 5_000, () => {});
    answer.setShared(first);
    for (const [name, value] of Object.entries(set)) answer.setHeader(name, value);
    act(answer);
    return pieces.join('').split('\r\n\r\n')[0]?.split('\r\n').slice(1) ?? [];
  };
  const dated = (headers: Record<string, string | string[]>, set: Record<string, string>, first = common) =>
    linesWith((answer) => answer.writeHead(200, headers).end('{}'), set, first);
  const written = (set: Record<string, string>, headers: Record<string, string | string[]>, first = common) =>
    dated(headers, set, first).filter((line) => !line.startsWith('date: '));
  const KEPT = ['connection: keep-alive', 'keep-alive: timeout=5'];

  it('has each of them once', () => {
    const theirs = share({ 'content-type': 'application/json', 'x-many': ['1', '2'] });
    for (let i = 0; i < 2; i++)
      expect(written({ 'x-id': String(i), 'content-length': '2' }, theirs)).toEqual([
        `x-id: ${i}`,
        'content-length: 2',
        'x-common: a',
        'vary: origin',
        'content-type: application/json',
        'x-many: 1',
        'x-many: 2',
        ...KEPT,
      ]);
    expect(written({ 'content-length': '2' }, theirs, share({ 'x-common': 'b' }))).toContain('x-common: b');
  });

  it('says how long it is, and what becomes of its connection, each time anew', () => {
    const theirs = share({ a: 'b' });
    const lines = ['x-common: a', 'vary: origin', 'a: b'];
    for (let i = 0; i < 2; i++) {
      expect(written({ 'content-length': '2' }, theirs)).toEqual(['content-length: 2', ...lines, ...KEPT]);
      expect(written({}, theirs)).toEqual([...lines, 'transfer-encoding: chunked', ...KEPT]);
      const last = linesWith(
        (answer) => {
          answer.last = true;
          answer.writeHead(200, theirs).end('{}');
        },
        { 'content-length': '2' },
      );
      expect(last.at(-1)).toBe('connection: close');
    }
  });

  it('has the time of its second', async () => {
    // What was written before stands until its second is over.
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    vi.useFakeTimers({ now: Date.parse(DATE) });
    try {
      const theirs = share({ a: 'b' });
      const date = () => dated(theirs, { 'content-length': '2' }).find((line) => line.startsWith('date: '));
      for (const second of ['51', '52', '53']) {
        expect([date(), date()]).toEqual(Array(2).fill(`date: Sun, 22 Nov 2026 04:22:${second} GMT`));
        vi.advanceTimersByTime(1_000);
      }
    } finally {
      vi.useRealTimers();
    }
  });

  it('has the last word where one name is said twice', () => {
    const theirs = share({ 'x-common': 'b', 'x-id': '2' });
    expect(written({ 'content-length': '2' }, share({ 'x-common': 'b' }))).toEqual(
      expect.arrayContaining(['x-common: b', 'vary: origin']),
    );
    expect(written({ 'content-length': '2' }, share({ 'x-common': 'b' }))).not.toContain('x-common: a');
    const lines = [...written({ 'x-id': '1', 'content-length': '2' }, theirs)].sort();
    expect(lines).toEqual(['content-length: 2', 'vary: origin', 'x-common: b', 'x-id: 2', ...KEPT].sort());
    expect(written({ vary: 'accept', 'content-length': '2' }, share({ a: 'b' })).sort()).toEqual(
      ['a: b', 'content-length: 2', 'vary: accept', 'x-common: a', ...KEPT].sort(),
    );
    expect(written({ 'content-length': '2' }, { ...theirs, 'x-id': '3' })).toContain('x-id: 3');
  });

  it('is refused where one of them cannot be sent', () => {
    expect(() => written({ 'content-length': '2' }, share({ a: 'b\r\nc: d' }))).toThrow('cannot be sent');
    expect(() => written({ 'content-length': '2', 'x-id': 'é\u0100' }, share({}))).toThrow('cannot be sent');
  });
});

describe('one backend, answer after answer', () => {
  it('is passed on with what each of them said', async () => {
    const backend = await startBackend();
    const gateway = await startGateway({ BACKEND_URL: backend.url, SIDECAR_SOCKET: '/none' });
    try {
      for (const [mark, body] of [
        ['a', '{"a":"one"}'],
        ['a', '{"a":"a longer one"}'],
        ['b', '{}'],
        ['a', '[]'],
      ] as const) {
        backend.script = answer(body, 200, { 'x-mark': mark });
        const request = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'hi' }] });
        const got = await fetch(`${gateway.url}/v1/chat/completions`, { method: 'POST', body: request });
        expect(got.headers.get('x-mark')).toBe(mark);
        expect(got.headers.get('content-length')).toBe(String(body.length));
        expect(await got.text()).toBe(body);
      }
    } finally {
      await gateway.close();
      await backend.close();
    }
  });
});
