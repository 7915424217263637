import { describe, expect, it } from 'vitest';
import { TokenReader } from '../../../gateway/usage/llm-tokens.ts';

/** The tokens of an answer that comes in pieces of `size` bytes. */
function read(body: string, contentType: string, size = Number.POSITIVE_INFINITY) {
  const reader = new TokenReader(contentType.startsWith('text/event-stream'), 1 << 24);
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

  it('are found before and behind megabytes', () => {
    const usage = '"usage":{"prompt_tokens":3,"completion_tokens":2}';
    const more = (bytes: number) => `"more":${JSON.stringify('x'.repeat(bytes))}`;
    for (const size of [Number.POSITIVE_INFINITY, 60_000]) {
      expect(whole(`{${usage},${more(3_000_000)}}`, size)).toEqual(backend(3, 2));
      expect(whole(`{${more(3_000_000)},${usage},${more(200_000)}}`, size)).toEqual(backend(3, 2));
    }
    // A definition of a tool, which is the client's, comes back in an answer of /v1/responses.
    const tool = '"tools":[{"parameters":{"usage":{"input_tokens":0,"output_tokens":0}}}]';
    expect(whole(`{${usage},${tool}}`)).toEqual(backend(3, 2));
    expect(whole(`{${more(300_000)},${usage},${tool}}`)).toEqual(backend(3, 2));
  });

  it('are not read from an answer over the limit, nor where no memory is left; a small answer is always read', () => {
    const body = Buffer.from(`{"usage":{"prompt_tokens":3,"completion_tokens":2},"x":"${'x'.repeat(500_000)}"}`);
    const tokens = (max_bytes: number, hold: (bytes: number) => boolean, read = body) => {
      const reader = new TokenReader(false, max_bytes, hold);
      for (let at = 0; at < read.length; at += 60_000) reader.add(read.subarray(at, at + 60_000));
      return reader.tokens();
    };
    let held = 0;
    const counted = (bytes: number) => {
      held += bytes;
      return true;
    };
    expect(tokens(body.length - 1, counted)).toEqual(UNKNOWN);
    expect(tokens(body.length, () => false)).toEqual(UNKNOWN);
    held = 0;
    expect(tokens(body.length, counted)).toEqual(backend(3, 2));
    expect(held).toBe(body.length - 256 * 1024);
    const small = Buffer.from('{"usage":{"prompt_tokens":3,"completion_tokens":2}}');
    expect(tokens(body.length, () => false, small)).toEqual(backend(3, 2));
  });

  it("count Anthropic's cached input, which is none of its input tokens, and OpenAI's once", () => {
    const cached = '"cache_read_input_tokens":6,"cache_creation_input_tokens":5';
    expect(whole(`{"usage":{"input_tokens":4,${cached},"output_tokens":3}}`)).toEqual(backend(15, 3));
    expect(whole(`{"usage":{"prompt_tokens":15,${cached},"completion_tokens":3}}`)).toEqual(backend(15, 3));
    const details = '"prompt_tokens_details":{"cached_tokens":8}';
    expect(whole(`{"usage":{"prompt_tokens":15,"completion_tokens":3,${details}}}`)).toEqual(backend(15, 3));
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

  it('are found before and behind megabytes, and not in an event over the limit', () => {
    const usage = '"usage":{"prompt_tokens":3,"completion_tokens":2}';
    const more = `"more":"${'x'.repeat(2_000_000)}"`;
    const events = [chunk, `{${usage},${more}}`, chunk, '[DONE]'];
    for (const size of [Number.POSITIVE_INFINITY, 60_000]) {
      expect(streamed(events, size)).toEqual(backend(3, 2));
      expect(streamed([`{${more},${usage}}`, '[DONE]'], size)).toEqual(backend(3, 2));
    }
    const reader = new TokenReader(true, 1_000_000);
    const written = Buffer.from(events.map((one) => `data: ${one}\n\n`).join(''));
    for (let at = 0; at < written.length; at += 60_000) reader.add(written.subarray(at, at + 60_000));
    expect(reader.tokens()).toEqual({ input: 0, output: 4, source: 'events' });
  });

  it('are never those of a text, an argument or a null', () => {
    const fake = JSON.stringify('"usage":{"prompt_tokens":999,"completion_tokens":999}');
    const usage = '{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}';
    const said = `{"choices":[{"delta":{"content":${fake}}}]}`;
    const nested = '{"choices":[{"delta":{"usage":{"prompt_tokens":999,"completion_tokens":999}}}]}';
    expect(streamed([said, usage, nested, said, chunk])).toEqual(backend(3, 2));
    expect(streamed([said, nested, chunk])).toEqual(EVENTS);
  });

  it("are Anthropic's with its cached input, which either event may name", () => {
    const start = (usage: object) => JSON.stringify({ type: 'message_start', message: { usage } });
    const end = (usage: object) => JSON.stringify({ type: 'message_delta', delta: {}, usage });
    const cached = { cache_read_input_tokens: 6, cache_creation_input_tokens: 5 };
    const first = { input_tokens: 4, ...cached, output_tokens: 1 };
    expect(streamed([start(first), end({ output_tokens: 3 })])).toEqual(backend(15, 3));
    expect(streamed([start(first), end({ ...first, output_tokens: 3 })])).toEqual(backend(15, 3));
    expect(streamed([start({ input_tokens: 0, output_tokens: 0 }), end({ ...first, output_tokens: 3 })])).toEqual(
      backend(15, 3),
    );
    expect(streamed([start(first), chunk])).toEqual({ input: 15, output: 2, source: 'events' });
  });

  it('end their lines in whatever way', () => {
    for (const end of ['\n\n', '\r\n\r\n', '\r\r'])
      for (const size of [Number.POSITIVE_INFINITY, 1]) {
        const events = (payload: string) => `data: ${payload}${end}data: ${chunk}${end}data: [DONE]${end}`;
        const usage = '{"usage":{"prompt_tokens":3,"completion_tokens":2}}';
        expect(read(events(usage), 'text/event-stream', size)).toEqual(backend(3, 2));
        expect(read(events(chunk), 'text/event-stream', size)).toEqual(EVENTS);
      }
  });
});
