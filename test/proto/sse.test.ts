import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type SseEvent, SseLimitError, SseSplitter } from '../../proto/sse.ts';

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('utf8');

function split(stream: string | Buffer, cuts: readonly number[] = []): SseEvent[] {
  const bytes = Buffer.from(stream);
  const splitter = new SseSplitter(1 << 20);
  const events: SseEvent[] = [];
  let from = 0;
  for (const cut of [...cuts, bytes.length]) {
    events.push(...splitter.push(Buffer.from(bytes.subarray(from, cut))));
    from = cut;
  }
  const rest = splitter.end();
  return rest === null ? events : [...events, rest];
}

/** The plain reading of the standard, line by line, to compare with. */
function reference(stream: string): (string | null)[] {
  const events: (string | null)[] = [];
  let data: string[] | null = null;
  const lines = stream.split(/\r\n|\n|\r/);
  const ended = lines.pop() === '';
  let seen = false;
  for (const line of lines) {
    if (line === '') {
      events.push(data === null ? null : data.join('\n'));
      data = null;
      seen = false;
      continue;
    }
    seen = true;
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
    if (field === 'data') data = [...(data ?? []), value as string];
  }
  if (seen && ended) events.push(data === null ? null : data.join('\n'));
  return events;
}

describe('SSE splitter', () => {
  const STREAM =
    ': hello\n\ndata: {"a":1}\n\nevent: x\r\ndata: one\r\ndata:two\r\n\r\ndata: é😀\r\rdata\n\ndata: [DONE]\n\n';

  it('gives every event with its exact bytes, whatever the line ends', () => {
    const events = split(STREAM);
    expect(events.map((event) => text(event.bytes)).join('')).toBe(STREAM);
    expect(events.map((event) => event.data && text(event.data))).toEqual([
      null,
      '{"a":1}',
      'one\ntwo',
      'é😀',
      '',
      '[DONE]',
    ]);
  });

  it('gives the same events wherever the network cuts', () => {
    const whole = split(STREAM).map((event) => text(event.bytes));
    const length = Buffer.byteLength(STREAM);
    for (let cut = 1; cut < length; cut++) {
      const events = split(STREAM, [cut]);
      // A bare CR at a cut may end its event one push later, and an LF after it would still be its own.
      expect(events.map((event) => text(event.bytes))).toEqual(whole);
    }
    const bytewise = split(
      STREAM,
      Array.from({ length: length - 1 }, (_, i) => i + 1),
    );
    expect(bytewise.map((event) => text(event.bytes))).toEqual(whole);
  });

  it('reads any stream as the standard does', () => {
    const piece = fc.constantFrom(
      'data: ',
      'data:',
      'data',
      ':',
      'x',
      '\n',
      '\r',
      '\r\n',
      '\n\n',
      'id: 1',
      '{"a"}',
      ' ',
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 30 }), fc.array(fc.nat(60)), (pieces, cuts) => {
        const stream = pieces.join('');
        const sorted = [...new Set(cuts.filter((cut) => cut < stream.length))].sort((a, b) => a - b);
        const events = split(stream, sorted);
        expect(events.map((event) => text(event.bytes)).join('')).toBe(stream);
        const complete = events.filter((event) => event.complete || /[\r\n]$/.test(text(event.bytes)));
        const got = complete.map((event) => event.data && text(event.data)).filter((data) => data !== null);
        expect(got).toEqual(reference(stream).filter((data) => data !== null));
      }),
      { numRuns: 3_000 },
    );
  });

  it('says that a last event was left without its end', () => {
    expect(split('data: a\n\ndata: b').map((event) => event.complete)).toEqual([true, false]);
  });

  it('refuses an event larger than its limit instead of keeping it', () => {
    const splitter = new SseSplitter(100);
    expect(() => splitter.push(Buffer.from(`data: ${'x'.repeat(200)}`))).toThrow(SseLimitError);
  });
});
