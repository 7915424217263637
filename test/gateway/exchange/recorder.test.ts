import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Recorder } from '../../../gateway/exchange/recorder.ts';
import { foldPayloads } from '../../../proto/stream/fold.ts';
import { PayloadReader } from '../../../proto/stream/sse.ts';

const chunk = (content: string, more = '') =>
  `{"id":"c","object":"chat.completion.chunk","created":1,"model":"m"${more},"choices":[{"index":0,"delta":{"content":"${content}"},"logprobs":null,"finish_reason":null}]}`;
/** What the request asks for. */
const CHOICES = 3;
const FINISH = '{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}';

const events = (payload: string, framing = (data: string) => `data: ${data}\n\n`) =>
  new PayloadReader(1 << 20).push(Buffer.from(framing(payload)));

/** Cuts the stream into pieces of so many bytes, in turn. */
function record(payloads: readonly string[], sizes: readonly number[]) {
  const recorder = new Recorder(1 << 24, CHOICES);
  const reader = new PayloadReader(1 << 20);
  const bytes = Buffer.from(payloads.map((payload) => `data: ${payload}\n\n`).join(''));
  for (let from = 0, i = 0; from < bytes.length; i++) {
    const piece = bytes.subarray(from, from + (sizes[i % sizes.length] as number));
    for (const payload of reader.push(piece)) recorder.observe(payload);
    from += piece.length;
  }
  const folded = recorder.finish();
  if (folded instanceof Promise) throw new Error('larger than what is folded at once');
  return folded;
}

function expectAsPublished(payloads: readonly string[], sizes: readonly number[] = [1 << 20]) {
  const { completion: response, stream } = record(payloads, sizes);
  expect(response).toBe(foldPayloads(payloads, CHOICES));
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

  it('folds and hashes a stream as the published rule says, however its bytes come', () => {
    const text = fc.oneof(
      fc.constantFrom('', ' the', 'é😀', '\\n', '\\"', '\\u0041', '{', "'", '\u2028', 'x'.repeat(3_000)),
      fc.string({ maxLength: 8 }).map((one) => JSON.stringify(one).slice(1, -1)),
    );
    const payload = fc.oneof(
      { weight: 5, arbitrary: text.map((one) => chunk(one)) },
      text.map((one) => chunk(one, ',"usage":{"n":1}')),
      text.map((one) => chunk(one).replace('"index":0', '"index":1')),
      text.map((one) => chunk(one).replace('{"content"', '{"role":"assistant","content"')),
      text.map((one) => chunk(one).replace('"logprobs":null', '"logprobs":{"content":[{"token":"a"}]}')),
      text.map((one) => chunk(one).replace('"choices":[', '"choices":[{"index":2,"delta":{"content":"c"}},')),
      text.map((one) => chunk(one, ',"x":1.50')),
    );
    const sizes = fc.array(fc.oneof(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 200, max: 4_000 })), {
      minLength: 1,
      maxLength: 8,
    });
    fc.assert(
      fc.property(fc.array(payload, { maxLength: 30 }), sizes, (payloads, sizes) => {
        const others = [1, 2].map((index) => FINISH.replace('"index":0', `"index":${index}`));
        expectAsPublished([...payloads, FINISH, ...others], sizes);
      }),
      { numRuns: 500 },
    );
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

  it('refuses an event that would not fit', () => {
    const recorder = new Recorder(3 * chunk('one').length);
    const stream = Buffer.from(['one', 'two', 'six', 'ten'].map((one) => `data: ${chunk(one)}\n\n`).join(''));
    const [first, second, third] = new PayloadReader(1 << 20).push(stream) as [Uint8Array, Uint8Array, Uint8Array];
    recorder.observe(first);
    recorder.observe(second);
    expect(() => recorder.observe(third)).toThrow('MAX_ANSWER_BYTES');
  });
});
