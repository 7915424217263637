import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Recorder } from '../../gateway/recorder/recorder.ts';
import { Repeat } from '../../gateway/recorder/repeat.ts';
import { foldPayloads, parseChunk } from '../../proto/fold.ts';
import { SseSplitter } from '../../proto/sse.ts';

const chunk = (content: string, more = '') =>
  `{"id":"c","object":"chat.completion.chunk","created":1,"model":"m"${more},"choices":[{"index":0,"delta":{"content":"${content}"},"logprobs":null,"finish_reason":null}]}`;
const FINISH = '{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}';

function record(payloads: readonly string[]) {
  const recorder = new Recorder(1 << 24);
  const splitter = new SseSplitter(1 << 20);
  for (const payload of payloads)
    for (const event of splitter.push(Buffer.from(`data: ${payload}\n\n`))) recorder.observe(event);
  return recorder.finish();
}

function expectAsPublished(payloads: readonly string[]) {
  const { response, stream } = record(payloads);
  expect(response).toBe(foldPayloads(payloads));
  const hash = createHash('sha256');
  for (const payload of payloads) hash.update(payload).update('\n');
  expect(stream).toEqual({ events: payloads.length, sha256: hash.digest('hex') });
}

describe('the recorder', () => {
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
    fc.assert(
      fc.property(fc.array(payload.filter(parses), { maxLength: 30 }), (payloads) => {
        const indexes = [1, 2, 20000].map((index) => FINISH.replace('"index":0', `"index":${index}`));
        expectAsPublished([...payloads, FINISH, ...indexes]);
      }),
      { numRuns: 1_500 },
    );
  });

  it('reads a repeated chunk without parsing it, and nothing that only looks like one', () => {
    const repeat = new Repeat();
    const learned = chunk('one');
    repeat.learn(Buffer.from(learned), parseChunk(learned));
    const read = (payload: string) => repeat.read(Buffer.from(payload));
    expect(read(chunk(' two'))).toEqual({ index: 0, content: ' two' });
    expect(read(chunk('é😀'))).toEqual({ index: 0, content: 'é😀' });
    expect(read(chunk(''))).toEqual({ index: 0, content: '' });
    for (const other of ['\\n', 'a"b', 'a\tb', '"},"x":{"content":"']) expect(read(chunk(other))).toBeNull();
    expect(read(FINISH)).toBeNull();
    expect(read(chunk('two').slice(0, -1))).toBeNull();
    expect(repeat.read(Buffer.from(chunk('\xff'), 'latin1'))).toBeNull();
    repeat.learn(Buffer.from(FINISH), parseChunk(FINISH));
    expect(read(chunk(' two'))).toBeNull();
  });
});
