import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Recorder, RepeatedEvents } from '../../../gateway/exchange/recorder.ts';
import { foldPayloads, parseChunk } from '../../../proto/stream/fold.ts';
import { PayloadReader } from '../../../proto/stream/sse.ts';

const chunk = (content: string, more = '') =>
  `{"id":"c","object":"chat.completion.chunk","created":1,"model":"m"${more},"choices":[{"index":0,"delta":{"content":"${content}"},"logprobs":null,"finish_reason":null}]}`;
const FINISH = '{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}';

const events = (payload: string, framing = (data: string) => `data: ${data}\n\n`) =>
  new PayloadReader(1 << 20).push(Buffer.from(framing(payload)));

/** Cuts the stream into pieces of so many bytes, in turn; as the delivery does, first what repeats and then what is left. */
function record(payloads: readonly string[], sizes: readonly number[]) {
  const recorder = new Recorder(1 << 24);
  const reader = new PayloadReader(1 << 20);
  const bytes = Buffer.from(payloads.map((payload) => `data: ${payload}\n\n`).join(''));
  for (let from = 0, i = 0; from < bytes.length; i++) {
    const piece = bytes.subarray(from, from + (sizes[i % sizes.length] as number));
    const repeated = reader.midEvent ? 0 : recorder.takeRepeated(piece);
    for (const payload of reader.push(piece.subarray(repeated))) recorder.observe(payload);
    from += piece.length;
  }
  const folded = recorder.finish();
  if (folded instanceof Promise) throw new Error('larger than what is folded at once');
  return folded;
}

function expectAsPublished(payloads: readonly string[], sizes: readonly number[] = [1 << 20]) {
  const { completion: response, stream } = record(payloads, sizes);
  expect(response).toBe(foldPayloads(payloads));
  const hash = createHash('sha256');
  for (const payload of payloads) hash.update(payload).update('\n');
  expect(stream).toEqual({ events: payloads.length, sha256: hash.digest('hex') });
}

describe('the recorder', () => {
  it.each([0, 300_000])(
    'says of a chunk nested too deep that it cannot be folded, however deep (%i bytes more)',
    async (more) => {
      for (const depth of [1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000, 8_000, 10_000, 100_000]) {
        for (const [before, after] of [
          ['{"a":', '}'],
          ['[', ']'],
        ] as const) {
          const recorder = new Recorder(1 << 24);
          const x = `${before.repeat(depth)}1${after.repeat(depth)}`;
          const payload = `{"choices":[{"index":0,"delta":{"content":"${'a'.repeat(more)}"},"finish_reason":"stop"}],"x":${x}}`;
          const made = async () => {
            for (const one of events(payload)) recorder.observe(one);
            await recorder.finish();
          };
          const code = await made().then(
            () => null,
            (error) => error.code ?? error,
          );
          expect([null, 'backend_bad_response']).toContain(code);
        }
      }
    },
  );

  it('folds and hashes a stream as the published rule says, whatever repeats in it', () => {
    const text = fc.oneof(
      fc.constantFrom('', ' the', 'é😀', '\\n', '\\"', '\\u0041', '"', '"}', '{', "'", '\u2028', 'x'.repeat(3_000)),
      fc.string({ maxLength: 8 }).map((one) => JSON.stringify(one).slice(1, -1)),
    );
    const payload = fc.oneof(
      { weight: 5, arbitrary: text.map((one) => chunk(one)) },
      text.map((one) => chunk(one, ',"system_fingerprint":"f"')),
      text.map((one) => chunk(one, ',"usage":null')),
      text.map((one) => chunk(one, ',"usage":{"n":1}')),
      text.map((one) => chunk(one).replace('"index":0', '"index":1')),
      text.map((one) => chunk(one).replace('"index":0', '"index":1.0')),
      text.map((one) => chunk(one).replace('"index":0', '"index":20000')),
      text.map((one) => chunk(one).replace('"index":0,', '')),
      text.map((one) => chunk(one).replace('{"content"', '{"role":"assistant","content"')),
      text.map((one) => chunk(one).replace('"}', '","reasoning":"r"}')),
      text.map((one) => chunk(one).replace('"}', '","content":"other"}')),
      text.map((one) => chunk(one).replace('"delta"', '"delta":{"content":"a"},"delta"')),
      text.map((one) => chunk(one).replace('"delta"', '"d\\u0065lta":{"content":"a"},"delta"')),
      text.map((one) => chunk(one).replace('"logprobs":null', '"delta":\n{"content":"b"}').replace('\n', ' ')),
      text.map((one) => chunk(one).replace('"logprobs":null', '"logprobs":{"content":[{"token":"a"}]}')),
      text.map((one) => chunk(one).replace('"logprobs":null', '"text":"a"')),
      text.map((one) => chunk(one).replace('"choices":[', '"choices":[{"index":2,"delta":{"content":"c"}},')),
      text.map((one) => chunk(one, ',"x":{"delta":{"content":"a"}}')),
      text.map((one) => chunk(one, ',"x":["a"]')),
      text.map((one) => chunk(one, ',"x":1.50')),
    );
    const parses = (one: string) => {
      try {
        parseChunk(one);
        return true;
      } catch {
        return false;
      }
    };
    const sizes = fc.array(fc.oneof(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 200, max: 4_000 })), {
      minLength: 1,
      maxLength: 8,
    });
    fc.assert(
      fc.property(fc.array(payload.filter(parses), { maxLength: 30 }), sizes, (payloads, sizes) => {
        const indexes = [1, 2, 20000].map((index) => FINISH.replace('"index":0', `"index":${index}`));
        expectAsPublished([...payloads, FINISH, ...indexes], sizes);
      }),
      { numRuns: 1_500 },
    );
  });

  it('reads a repeated event without taking it apart, and nothing that only looks like one', () => {
    const repeat = new RepeatedEvents();
    const learn = (payload: string, framing?: (data: string) => string) => {
      const [read] = events(payload, framing);
      if (read !== undefined) repeat.learn(read, parseChunk(payload));
    };
    const read = (payload: string, before = '') => {
      const got = repeat.read(Buffer.from(`${before}data: ${payload}\n\n`), Buffer.byteLength(before));
      return got === null ? null : { ...got, data: Buffer.from(got.data).toString() };
    };
    learn(chunk('one'));
    for (const content of [' two', 'é😀', ''])
      expect(read(chunk(content), 'what came before')).toEqual({
        index: 0,
        content,
        data: chunk(content),
        end: Buffer.byteLength(`what came beforedata: ${chunk(content)}\n\n`),
      });
    for (const other of ['\\n', 'a"b', 'a\tb', 'a\nb', '"},"x":{"content":"']) expect(read(chunk(other))).toBeNull();
    expect(read(FINISH)).toBeNull();
    expect(read(chunk('two').slice(0, -1))).toBeNull();
    const whole = Buffer.from(`data: ${chunk('two')}\n\n`);
    for (let cut = 0; cut < whole.length; cut++) expect(repeat.read(whole.subarray(0, cut), 0)).toBeNull();
    expect(repeat.read(Buffer.from(`data: ${chunk('\xff')}\n\n`, 'latin1'), 0)).toBeNull();
    learn(FINISH);
    expect(read(chunk(' two'))).toBeNull();
  });

  it('refuses a chunk in which a member stands twice: of the two each reader takes another', () => {
    for (const payload of [
      '{"choices":[{"index":0,"delta":{"content":"a"},"delta":{"content":null}}]}',
      '{"choices":[{"delta":{"content":"a"}}],"choices":[{"index":0,"delta":{"content":"real"}}]}',
      '{"choices":[{"index":0,"delta":{"content":"other","content":"a"}}]}',
      '{"choices":[{"index":0,"delta":{},"finish_reason":"stop","finish_reason":null}]}',
      '{"choices":[{"index":0,"delta":{},"finish_reason":"stop","finish\\u005freason":null}]}',
    ])
      expect(() => record([chunk('x'), payload, FINISH], [1 << 20])).toThrow('names a member twice');
  });

  it('takes for a repetition nothing that is written otherwise than the gateway writes events', () => {
    const half = chunk('one').indexOf('"choices"');
    const framings: ((data: string) => string)[] = [
      (data) => `\ufeffdata: ${data}\n\n`,
      (data) => `data: ${data.slice(0, half)}\ndata: ${data.slice(half)}\n\n`,
      (data) => `data:${data}\n\n`,
      (data) => `data: ${data}\r\n\r\n`,
      (data) => `: a comment\ndata: ${data}\n\n`,
    ];
    for (const framing of framings) {
      const repeat = new RepeatedEvents();
      const [payload] = events(chunk('one'), framing);
      expect(payload).toBeDefined();
      if (payload !== undefined) repeat.learn(payload, parseChunk(chunk('one')));
      expect(repeat.read(Buffer.from(framing(chunk('two'))), 0)).toBeNull();
    }
  });

  it('leaves an event that would not fit for the reading that says so', () => {
    const recorder = new Recorder(3 * chunk('one').length);
    const stream = Buffer.from(['one', 'two', 'six', 'ten'].map((one) => `data: ${chunk(one)}\n\n`).join(''));
    const [first, ...rest] = new PayloadReader(1 << 20).push(stream);
    if (first !== undefined) recorder.observe(first);
    const length = (first?.length ?? 0) + 'data: \n\n'.length;
    expect(recorder.takeRepeated(stream.subarray(length))).toBe(length);
    expect(() => recorder.observe(rest[1] as Uint8Array)).toThrow('MAX_ANSWER_BYTES');
  });
});
