import { describe, expect, it } from 'vitest';
import { TokenReader } from '../../../gateway/usage/tokens.ts';

/** The tokens of an answer that comes in pieces of `size` bytes. */
function read(body: string, contentType: string, size = Number.POSITIVE_INFINITY) {
  const reader = new TokenReader(contentType.startsWith('text/event-stream'));
  const bytes = Buffer.from(body);
  const step = Math.min(size, bytes.length);
  for (let at = 0; at < bytes.length; at += step) reader.add(bytes.subarray(at, at + step));
  return reader.tokens();
}
const whole = (body: string, size?: number) => read(body, 'application/json', size);
const streamed = (payloads: readonly string[], size?: number) =>
  read(payloads.map((one) => `data: ${one}\n\n`).join(''), 'text/event-stream; charset=utf-8', size);
const backend = (input: number, output: number) => ({ input, output, source: 'backend' });
const UNKNOWN = { input: 0, output: 0, source: 'unknown' };
const EVENTS = { input: 0, output: 3, source: 'events' };

describe('the tokens of a whole answer', () => {
  it.each([
    ["a chat's", '{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}', backend(3, 2)],
    [
      'with members behind it',
      '{"usage":{"prompt_tokens":3,"completion_tokens":2},"id":"x","timings":{"a":[1]}}',
      backend(3, 2),
    ],
    [
      'with details inside',
      '{"a":1,"usage":{"prompt_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":1}}}',
      backend(3, 2),
    ],
    ['with spaces', '{ "a": 1, "usage": { "input_tokens": 4, "output_tokens": 1 } }\n', backend(4, 1)],
    ['embeddings', `{"data":[${'0.1,'.repeat(50_000)}1],"usage":{"prompt_tokens":9,"total_tokens":9}}`, backend(9, 0)],
    ["rerank's total", '{"results":[],"usage":{"total_tokens":12}}', backend(12, 0)],
    ['none', '{"choices":[]}', UNKNOWN],
    ['null', '{"usage":null}', UNKNOWN],
    ['of another form', '{"usage":{"prompt_tokens":"3"}}', UNKNOWN],
    ['negative', '{"usage":{"prompt_tokens":-3}}', UNKNOWN],
    ['a number', '{"usage":7}', UNKNOWN],
    ['no JSON', 'usage', UNKNOWN],
    ['cut off', '{"usage":{"prompt_tokens":3', UNKNOWN],
    ['nothing', '', UNKNOWN],
  ])('%s', (_name, body, expected) => {
    for (const size of [Number.POSITIVE_INFINITY, 1_000, 7]) expect(whole(body, size), String(size)).toEqual(expected);
  });

  it('are no member of a member, and no text that looks like one', () => {
    expect(whole('{"metadata":{"usage":{"prompt_tokens":1,"completion_tokens":1}}}')).toEqual(UNKNOWN);
    expect(whole('{"choices":[{"usage":{"prompt_tokens":1}}]}')).toEqual(UNKNOWN);
    const said = JSON.stringify({ content: '"usage":{"prompt_tokens":1}}', more: 'x' });
    expect(whole(said)).toEqual(UNKNOWN);
    expect(
      whole(
        `{"usage":{"prompt_tokens":3,"completion_tokens":2},"text":${JSON.stringify('{"usage":{"prompt_tokens":1}}')}}`,
      ),
    ).toEqual(backend(3, 2));
  });

  it('are found whatever follows them, up to 256 KiB, and in a longer answer at its end', () => {
    const usage = '"usage":{"prompt_tokens":3,"completion_tokens":2}';
    const more = (bytes: number) => `"more":${JSON.stringify('x'.repeat(bytes))}`;
    expect(whole(`{${usage},${more(250_000)}}`)).toEqual(backend(3, 2));
    expect(whole(`{${more(1_000_000)},${usage},${more(200_000)}}`)).toEqual(backend(3, 2));
    expect(whole(`{${usage},${more(270_000)}}`)).toEqual(UNKNOWN);
    // A definition of a tool, which is the client's, comes back in an answer of /v1/responses.
    const tool = '"tools":[{"parameters":{"usage":{"input_tokens":0,"output_tokens":0}}}]';
    expect(whole(`{${usage},${tool}}`)).toEqual(backend(3, 2));
    expect(whole(`{${more(300_000)},${usage},${tool}}`)).toEqual(backend(3, 2));
  });
});

describe('the tokens of a stream', () => {
  const chunk = '{"choices":[{"delta":{"content":"x"}}],"usage":null}';
  it.each([
    [
      "a chat's last chunk",
      [chunk, '{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}', '[DONE]'],
      backend(3, 2),
    ],
    [
      'the last of several',
      ['{"usage":{"prompt_tokens":3,"completion_tokens":1}}', '{"usage":{"prompt_tokens":3,"completion_tokens":2}}'],
      backend(3, 2),
    ],
    [
      "a response's",
      [
        chunk,
        '{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":5,"output_tokens":6},"user":null}}',
      ],
      backend(5, 6),
    ],
    [
      "a message's",
      ['{"type":"message_delta","delta":{},"usage":{"input_tokens":5,"output_tokens":6}}', '{"type":"message_stop"}'],
      backend(5, 6),
    ],
    ['none: its events count', [chunk, chunk, '[DONE]'], EVENTS],
    [
      "a message's, whose prompt the first event has",
      [
        '{"type":"message_start","message":{"usage":{"input_tokens":50,"output_tokens":1}}}',
        '{"type":"message_delta","delta":{},"usage":{"output_tokens":7}}',
      ],
      backend(50, 7),
    ],
    [
      'none, of a message that was left',
      ['{"type":"message_start","message":{"usage":{"input_tokens":50}}}', '{"type":"content_block_delta"}'],
      { input: 50, output: 2, source: 'events' },
    ],
  ])('%s', (_name, payloads, expected) => {
    for (const size of [Number.POSITIVE_INFINITY, 100, 3])
      expect(streamed(payloads, size), String(size)).toEqual(expected);
  });

  it('end their lines in whatever way', () => {
    for (const end of ['\n\n', '\r\n\r\n', '\r\r'])
      expect(
        read(`data: {"usage":{"prompt_tokens":3,"completion_tokens":2}}${end}data: [DONE]${end}`, 'text/event-stream'),
      ).toEqual(backend(3, 2));
  });
});
