// The recorder of named events: however the bytes come, what it records and writes is the same.
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { NamedRecorder } from '../../../gateway/exchange/named-recorder.ts';
import { messageEvents, named, responseEvents } from '../../support/named-streams.ts';

type Form = 'response' | 'message';
const [CREATED = '', ...MORE] = responseEvents(['one', 'two']).map(named);
const DELTA = MORE.find((event) => event.startsWith('event: response.output_text.delta')) ?? '';

function cut(stream: string, sizes: readonly number[]): Buffer[] {
  const pieces: Buffer[] = [];
  for (let rest = Buffer.from(stream); rest.length > 0; ) {
    const piece = rest.subarray(0, sizes[pieces.length % sizes.length]);
    pieces.push(piece);
    rest = rest.subarray(piece.length);
  }
  return pieces;
}

/** Records as a delivery does. */
function record(form: Form, pieces: readonly Buffer[]) {
  const recorder = new NamedRecorder(form, 1 << 20);
  const written: Buffer[] = [];
  for (const piece of pieces)
    for (const event of recorder.reader.push(piece)) {
      recorder.observe(event);
      written.push(Buffer.from(recorder.write([event])));
    }
  return { ...recorder.finish(), written: Buffer.concat(written).toString() };
}

const CONTENT = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.constantFrom('a', ' word', 'é😀', '"', '\\', '\n', '","delta":"x', '', '\u0000'),
);
const SIZES = fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 1, maxLength: 5 });

describe('the recorder of named events', () => {
  it.each([
    ['response', responseEvents],
    ['message', messageEvents],
  ] as const)('records the same, however its bytes come: %s', (form, make) => {
    fc.assert(
      fc.property(fc.array(CONTENT, { maxLength: 12 }), SIZES, (texts, sizes) => {
        const events = make(texts).map(named);
        const whole = record(form, [Buffer.from(events.join(''))]);
        expect(whole.written).toBe(events.join(''));
        expect(record(form, cut(events.join(''), sizes))).toEqual(whole);
      }),
      { numRuns: 300 },
    );
  });

  it('hashes name and payload of each event', () => {
    const events = responseEvents(['a', 'b', 'c', 'd']);
    for (const sizes of [[1 << 20], [200], [7]])
      expect(record('response', cut(events.map(named).join(''), sizes))).toMatchObject({
        stream: { events: events.length, sha256: hashOf(events) },
      });
  });

  it('refuses an event that would not fit', () => {
    const recorder = new NamedRecorder('response', CREATED.length + DELTA.length);
    for (const event of recorder.reader.push(Buffer.from(CREATED + DELTA))) recorder.observe(event);
    const [event] = recorder.reader.push(Buffer.from(DELTA));
    expect(() => event !== undefined && recorder.observe(event)).toThrow('MAX_ANSWER_BYTES');
  });
});

function hashOf(events: readonly { type: string }[]): string {
  const hash = createHash('sha256');
  for (const event of events) hash.update(`${event.type}\n${JSON.stringify(event)}\n`);
  return hash.digest('hex');
}
