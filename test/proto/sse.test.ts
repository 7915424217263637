import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isDone, PayloadReader, SseError, writeEvents } from '../../proto/stream/sse.ts';
import { readPayloads } from '../support/payloads.ts';

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('utf8');
const BOM = '\uFEFF';

/** The payloads of a stream that comes in pieces, each of which is overwritten once it was taken. */
function read(stream: string | Buffer, cuts: readonly number[] = []): string[] {
  const bytes = Buffer.from(stream);
  const reader = new PayloadReader(1 << 20);
  const payloads: string[] = [];
  let from = 0;
  for (const cut of [...cuts, bytes.length]) {
    const piece = Uint8Array.from(bytes.subarray(from, cut));
    payloads.push(...reader.push(piece).map(text));
    piece.fill(0x21);
    from = cut;
  }
  const last = reader.end();
  return last === null ? payloads : [...payloads, text(last)];
}

/** The same as a reason where it is refused. */
function outcome(stream: string | Buffer, cuts: readonly number[] = []): string[] | string {
  try {
    return read(stream, cuts);
  } catch (error) {
    if (error instanceof SseError) return error.reason;
    throw error;
  }
}

describe('the profile of a stream', () => {
  const STREAM =
    ': hello\n\ndata: {"a":1}\n\ndata: one\r\ndata:two\r\n\r\ndata: é😀\n\n\ndata:\n\ndata:\ndata: \ndata: x\n\ndata: [DONE]\n\n';
  const PAYLOADS = ['{"a":1}', 'one\ntwo', 'é😀', '', '\n\nx', '[DONE]'];

  it('has data lines, comments and empty lines, each ended by LF or CR LF', () => {
    expect(read(STREAM)).toEqual(PAYLOADS);
    expect(read(BOM + STREAM)).toEqual(PAYLOADS);
  });

  it('is read alike wherever the network cuts', () => {
    for (const stream of [STREAM, BOM + STREAM]) {
      const length = Buffer.byteLength(stream);
      for (let cut = 1; cut < length; cut++) expect(read(stream, [cut])).toEqual(PAYLOADS);
      const bytewise = Array.from({ length: length - 1 }, (_, i) => i + 1);
      expect(read(stream, bytewise)).toEqual(PAYLOADS);
    }
  });

  it.each([
    ['a byte order mark in front of a later line', `data: a\n\n${BOM}data: b\n\n`],
    ['a second byte order mark', `${BOM}${BOM}data: a\n\n`],
    ['a name', 'event: x\ndata: a\n\n'],
    ['the name that is none', 'event: message\ndata: a\n\n'],
    ['an id', 'id: 1\ndata: a\n\n'],
    ['a time to wait', 'retry: 1\n\ndata: a\n\n'],
    ['another field', 'error: a\n\n'],
    ['data without a colon', 'data\n\n'],
    ['data in capitals', 'Data: a\n\n'],
    ['a space before data', ' data: a\n\n'],
    ['a space behind data', 'data : a\n\n'],
    ['a zero before data', '\0data: a\n\n'],
    ['a CR that ends a line', 'data: a\rdata: b\n\n'],
    ['a CR that ends an event', 'data: a\r\rdata: b\n\n'],
    ['a CR in a comment', ': a\rdata: b\n\n'],
    ['two CRs before an LF', 'data: a\r\r\n\n'],
    ['a comment with a line separator', ': a\u2028data: b\n\n'],
    ['a comment with a next-line character', ': a\u0085data: b\n\n'],
    ['a comment with a vertical tab', ': a\vdata: b\n\n'],
    ['a comment with a form feed', ': a\fdata: b\n\n'],
    ['a comment that is not UTF-8', Buffer.from([0x3a, 0xff, 0x0a, 0x0a])],
    ['anything else behind its last line', 'data: a\n\nx'],
  ])('has not %s', (_name, stream) => {
    expect(outcome(stream)).toBe('malformed');
  });

  it('gives a last event that was left without its end', () => {
    expect(read('data: a\n\ndata: b')).toEqual(['a', 'b']);
    expect(read('data: a\n\ndata: b\r')).toEqual(['a', 'b']);
    expect(read('data: a\n\ndata: b\n')).toEqual(['a', 'b']);
  });

  it('counts comments', () => {
    const reader = new PayloadReader(100);
    reader.push(Buffer.from(': a\n\n: b\n\nda'));
    expect(reader.comments).toBe(2);
  });

  it.each([
    ['in one line', [`data: ${'x'.repeat(200)}`]],
    ['in one line of many pieces', Array.from({ length: 200 }, (_, i) => (i === 0 ? 'data: ' : 'x'))],
    ['in many lines', ['data: x\n'.repeat(60)]],
    ['in empty lines of data', ['data:\n'.repeat(200)]],
    ['in a comment', [`: ${'x'.repeat(200)}`]],
  ])('has no event larger than its limit, %s', (_name, pieces) => {
    const reader = new PayloadReader(100);
    const push = () => {
      for (const piece of pieces) reader.push(Buffer.from(piece));
    };
    expect(push).toThrow(expect.objectContaining({ reason: 'too_large' }));
  });
});

describe('events as they are written', () => {
  it('are what nearly every backend writes', () => {
    expect(text(writeEvents([Buffer.from('{"a":1}'), Buffer.from('[DONE]')]))).toBe(
      'data: {"a":1}\n\ndata: [DONE]\n\n',
    );
    expect(isDone(Buffer.from('[DONE]'))).toBe(true);
    for (const other of ['[DONE] ', ' [DONE]', '[DONE', '[done]']) expect(isDone(Buffer.from(other))).toBe(false);
  });

  it('are read again as the payloads that were written, whatever these are and wherever the network cuts', () => {
    const payload = fc.stringMatching(/^([^\r]|\n)*$/);
    fc.assert(
      fc.property(fc.array(payload, { maxLength: 6 }), fc.array(fc.nat(200)), (payloads, cuts) => {
        const events = writeEvents(payloads.map((one) => Buffer.from(one)));
        const sorted = [...new Set(cuts.filter((cut) => cut < events.length))].sort((a, b) => a - b);
        expect(read(Buffer.from(events), sorted)).toEqual(payloads.map((one) => Buffer.from(one).toString()));
      }),
      { numRuns: 2_000 },
    );
  });

  it('are all that a reader of the standard gets of any stream that has the profile', () => {
    const piece = fc.constantFrom(
      ...['data: ', 'data:', 'data', ':', 'x', '\n', '\r', '\r\n', '\n\n', 'id: 1', '{"a"}', ' ', BOM, '\u2028'],
    );
    let malformed = 0;
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 30 }), fc.array(fc.nat(60)), (pieces, cuts) => {
        const stream = pieces.join('');
        const sorted = [...new Set(cuts.filter((cut) => cut < stream.length))].sort((a, b) => a - b);
        const payloads = outcome(stream, sorted);
        expect(payloads).toEqual(outcome(stream));
        if (typeof payloads === 'string') malformed++;
        else expect(payloads).toEqual(reference(stream));
      }),
      { numRuns: 3_000 },
    );
    expect(malformed).toBeGreaterThan(0);
    expect(readPayloads(Buffer.from('data: a\n\n'), 100).map(text)).toEqual(['a']);
  });
});

/** The plain reading of the standard, line by line, its last event included. */
function reference(stream: string): string[] {
  const payloads: string[] = [];
  let data: string[] | null = null;
  for (const line of [...stream.replace(/^\uFEFF/, '').split(/\r\n|\n|\r/), '']) {
    if (line === '') {
      if (data !== null) payloads.push(data.join('\n'));
      data = null;
      continue;
    }
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
    if (field === 'data') data = [...(data ?? []), value as string];
  }
  return payloads;
}
