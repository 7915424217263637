// The recorder of named events reads most deltas of text without parsing them: what it records is the same, and nothing else is read so.
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { NamedRecorder } from '../../../gateway/exchange/named-recorder.ts';
import type { Problem } from '../../../gateway/http/problem.ts';
import { messageEvents, named, responseEvents } from '../../support/named-streams.ts';

type Form = 'response' | 'message';
const [CREATED = '', ...MORE] = responseEvents(['one', 'two']).map(named);
const DELTA = MORE.find((event) => event.startsWith('event: response.output_text.delta')) ?? '';
const START = messageEvents(['a']).slice(0, 3).map(named).join('');

function cut(stream: string, sizes: readonly number[]): Buffer[] {
  const pieces: Buffer[] = [];
  for (let rest = Buffer.from(stream); rest.length > 0; ) {
    const piece = rest.subarray(0, sizes[pieces.length % sizes.length]);
    pieces.push(piece);
    rest = rest.subarray(piece.length);
  }
  return pieces;
}

/** Records as a delivery does. `quick`: deltas that repeat are not parsed. */
function record(form: Form, pieces: readonly Buffer[], quick: boolean) {
  const recorder = new NamedRecorder(form, 1 << 20);
  let repeated = 0;
  const written: Buffer[] = [];
  try {
    for (const piece of pieces) {
      const taken = quick && !recorder.reader.midEvent && !recorder.complete ? recorder.takeRepeated(piece) : 0;
      if (taken > 0) repeated++;
      written.push(piece.subarray(0, taken));
      for (const event of recorder.reader.push(piece.subarray(taken))) {
        recorder.observe(event);
        written.push(Buffer.from(recorder.write([event])));
      }
    }
    return { ...recorder.finish(), repeated, written: Buffer.concat(written).toString() };
  } catch (error) {
    return { error: (error as Problem).message, repeated };
  }
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
  ] as const)('records the same, however its bytes come and whether it parses each delta or not: %s', (form, make) => {
    let repeated = 0;
    fc.assert(
      fc.property(fc.array(CONTENT, { maxLength: 12 }), SIZES, (pieces, sizes) => {
        const events = make(pieces).map(named);
        const whole = record(form, [Buffer.from(events.join(''))], false);
        for (const pieces of [events.map((event) => Buffer.from(event)), cut(events.join(''), sizes)]) {
          const quick = record(form, pieces, true);
          repeated += quick.repeated;
          expect(quick).toEqual({ ...whole, repeated: quick.repeated });
          expect(quick).toMatchObject({ written: events.join('') });
        }
      }),
      { numRuns: 400 },
    );
    expect(repeated).toBeGreaterThan(50);
  });

  it('hashes name and payload of each event, repeated or not', () => {
    const events = responseEvents(['a', 'b', 'c', 'd']);
    for (const sizes of [[1 << 20], [200], [7]])
      expect(record('response', cut(events.map(named).join(''), sizes), true)).toMatchObject({
        stream: { events: events.length, sha256: hashOf(events) },
      });
  });

  /** Whether the recorder, after this delta, takes the next bytes without parsing them. */
  const takes = (delta: string, next: string | Buffer, form: Form = 'response') => {
    const recorder = new NamedRecorder(form, 1 << 20);
    const start = form === 'response' ? CREATED : START;
    for (const event of recorder.reader.push(Buffer.from(start + delta))) recorder.observe(event);
    const bytes = Buffer.from(next);
    return recorder.takeRepeated(bytes) === bytes.length;
  };

  it('takes for a repetition a delta with other text, and a number that is not smaller', () => {
    const number = Number(/"sequence_number":(\d+)/.exec(DELTA)?.[1]);
    const next = (text: string, sequence: string | number) =>
      DELTA.replace('"one"', `"${text}"`).replace(/"sequence_number":\d+/, `"sequence_number":${sequence}`);
    for (const [text, sequence] of [
      ['two', number],
      ['é😀', number + 1],
      ['', 4_000_000],
    ] as const)
      expect(takes(DELTA, next(text, sequence))).toBe(true);
    for (const [text, sequence] of [
      ['two', number - 1],
      ['two', '-1'],
      ['two', '07'],
      ['two', '7.5'],
      ['two', '1e3'],
      ['two', ''],
      ['two', '9'.repeat(16)],
      ['a\\n', number],
      ['a"b', number],
      ['a\tb', number],
    ] as const)
      expect(takes(DELTA, next(text, sequence))).toBe(false);
    expect(takes(DELTA, DELTA.replace('output_text', 'refusal'))).toBe(false);
    expect(takes(DELTA, DELTA.replace('event: ', 'event:'))).toBe(false);
    expect(takes(DELTA, Buffer.from(next('\xff', number), 'latin1'))).toBe(false);
    for (let cut = 0; cut < DELTA.length; cut++) expect(takes(DELTA, DELTA.slice(0, cut))).toBe(cut === 0);
  });

  it.each([
    [
      'a second member of that name, deeper',
      (delta: string) => delta.replace('"delta":', '"x":{"delta":"one"},"delta": '),
    ],
    ['a space before its value', (delta: string) => delta.replace('"delta":', '"delta": ')],
    ['an escape anywhere', (delta: string) => delta.replace('"delta":', '"note":"\\u0041","delta":')],
    [
      'a number written in another way',
      (delta: string) => delta.replace(/"sequence_number":\d+/, '"sequence_number":5e3'),
    ],
    [
      'more bytes than a delta has',
      (delta: string) => delta.replace('"delta":', `"note":"${'x'.repeat(4_000)}","delta":`),
    ],
  ])('parses each event after one that has %s', (_name, change) => {
    const changed = change(DELTA);
    expect(changed).not.toBe(DELTA);
    expect(takes(changed, changed)).toBe(false);
  });

  it('adds nothing to a block of a message but the text of deltas of text', () => {
    const delta = (inner: object) => named({ type: 'content_block_delta', index: 0, delta: inner });
    const text = delta({ type: 'text_delta', text: 'a' });
    expect(takes(text, text.replace('"a"', '"b"'), 'message')).toBe(true);
    for (const other of [
      delta({ type: 'thinking_delta', thinking: 'a' }),
      delta({ type: 'text_delta', text: 1 }),
      delta({ type: 'citations_delta', citation: { text: 'a' } }),
    ])
      expect(takes(other, other, 'message')).toBe(false);
    expect(takes(text, text.replace('"index":0', '"index":1'), 'message')).toBe(false);
  });

  it('leaves an event that would not fit for the reading that says so', () => {
    const recorder = new NamedRecorder('response', CREATED.length + DELTA.length);
    for (const event of recorder.reader.push(Buffer.from(CREATED + DELTA))) recorder.observe(event);
    expect(recorder.takeRepeated(Buffer.from(DELTA))).toBe(0);
    const [event] = recorder.reader.push(Buffer.from(DELTA));
    expect(() => event !== undefined && recorder.observe(event)).toThrow('MAX_ANSWER_BYTES');
  });
});

function hashOf(events: readonly { type: string }[]): string {
  const hash = createHash('sha256');
  for (const event of events) hash.update(`${event.type}\n${JSON.stringify(event)}\n`);
  return hash.digest('hex');
}
