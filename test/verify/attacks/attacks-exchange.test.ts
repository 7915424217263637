// Attacks on what the answer is: raw, the request, the response that carries the attestation.
import { describe, expect, test } from 'vitest';
import { withLastMember } from '../../../proto/json.ts';
import { OTHER, rawOf, WHOLE } from '../../../scripts/vectors/exchange.ts';
import { forge } from '../../../scripts/vectors/forge.ts';
import { codeOf, good, refused, within, world } from './attacks.ts';

const raw = rawOf(WHOLE);
const withRaw = (text: string) => forge(world, { raw: text });
const ending = (member: string) => raw.replace(/\}$/, `,${member}}`);

describe('raw', () => {
  test('with a member that is not known is refused', async () => {
    for (const member of ['"model":"x"', '"":1', '"__proto__":{}', '"constructor":{}', '"Request":{}'])
      await refused('raw_malformed', await withRaw(ending(member)));
  });
  test('with a member given twice, by escape too, is refused', async () => {
    for (const member of [
      '"request":{}',
      '"r\\u0065quest":{}',
      '"\\u0072\\u0065quest":{}',
      '"response":{}',
      '"timestamp":1',
      '"time\\u0073tamp":1',
      '"stream":1,"stream":1',
    ])
      await refused('raw_malformed', await withRaw(ending(member)));
  });
  test('with other types than it must have is refused', async () => {
    for (const text of [
      '{}',
      '[]',
      'null',
      '""',
      '{"request":{},"response":{}}',
      '{"request":[],"response":{},"timestamp":1}',
      '{"request":{},"response":"","timestamp":1}',
      '{"request":{},"response":{},"timestamp":"1"}',
      '{"request":{},"response":{},"timestamp":-1}',
      '{"request":{},"response":{},"timestamp":1e3}',
      '{"request":{},"response":{},"timestamp":1,"stream":{"events":1}}',
      '{"request":{},"response":{},"timestamp":1,"stream":{"events":1,"sha256":"00"}}',
    ])
      await refused('raw_malformed', await withRaw(text));
  });
  test('with text around it is refused', async () => {
    for (const text of [`${raw} {}`, `${raw}\u0000`, `\uFEFF${raw}`])
      await refused('raw_malformed', await withRaw(text));
  });
  // An encoder writes U+FFFD for it, so that two texts would have one hash.
  test('with a lone surrogate in the place of U+FFFD is refused, as text and as an object', async () => {
    const attestation = await withRaw(rawOf({ ...WHOLE, response: OTHER.response.replace('"id":"', '$&\ufffd') }));
    expect(await codeOf(attestation)).toBe('valid');
    for (const [written, surrogate] of [
      ['\\ud800', '\ud800'],
      ['\\udc00', '\udc00'],
    ] as const) {
      await refused('raw_hash_mismatch', JSON.stringify(attestation).replace('\ufffd', written));
      await refused('raw_hash_mismatch', { ...attestation, raw: attestation.raw.replace('\ufffd', surrogate) });
    }
  });
});

describe('the request', () => {
  const request = (text: string) => codeOf(good, { expected: { request: text } });
  test('that differs in white space between its tokens alone is the one that was sent', async () => {
    expect(await request(WHOLE.request.replaceAll(':', ' : ').replaceAll(',"', ',\n\t"'))).toBe('valid');
  });
  test('that differs in an escape is another', async () => {
    expect(await request(WHOLE.request.replace('\\u0068', 'h'))).toBe('request_mismatch');
    expect(await request(WHOLE.request.replace('Say', '\\u0053ay'))).toBe('request_mismatch');
  });
  test('that differs in white space inside of a string is another', async () => {
    expect(await request(WHOLE.request.replace('Say ', 'Say  '))).toBe('request_mismatch');
    expect(await request(WHOLE.request.replace('Say ', 'Say\\t'))).toBe('request_mismatch');
  });
  test('that writes a number otherwise is another', async () => {
    expect(await request(WHOLE.request.replace('1.0', '1'))).toBe('request_mismatch');
    expect(await request(WHOLE.request.replace('12345678901234567890', '12345678901234567891'))).toBe(
      'request_mismatch',
    );
  });
  test('that orders its members otherwise is another', async () => {
    expect(await request(WHOLE.request.replace('"model":"demo",', '').replace('{', '{"seed":1,'))).toBe(
      'request_mismatch',
    );
  });
  // Taking white space away would join what it kept apart.
  test('that is no JSON, its numbers apart, is another', async () => {
    expect(await request(WHOLE.request.replace('12345678901234567890', '1234567890 1234567890'))).toBe(
      'request_mismatch',
    );
  });
  test('of megabytes is compared in time', async () => {
    const big = (space: string) => `{"messages":${space}[{"role":"user","content":"${'a\\n'.repeat(4_000_000)}"}]}`;
    const attestation = await withRaw(rawOf({ ...WHOLE, request: big('') }));
    await within(4000, 1000, async () =>
      expect(await codeOf(attestation, { expected: { request: big(' ') } })).toBe('valid'),
    );
  });
});

describe('the response that carries the attestation', () => {
  const carried = (response: string, attestation: unknown = good) =>
    withLastMember(response, 'attestation', JSON.stringify(attestation));
  test('passes as it was sent, and not with another answer', async () => {
    expect(await codeOf(carried(WHOLE.response))).toBe('valid');
    await refused('response_mismatch', carried(OTHER.response));
    await refused('response_mismatch', JSON.parse(carried(OTHER.response)));
  });
  test('is compared byte for byte', async () => {
    await refused('response_mismatch', carried(WHOLE.response.replace('"index":0', '"index":0.0')));
    await refused('response_mismatch', carried(WHOLE.response.replace('"index"', '"\\u0069ndex"')));
    await refused('not_an_attestation', carried(WHOLE.response.replace('"id":', '"id":"x","id":')));
  });
  test('handed in with its attestation is the same, and with another or one that has a member twice it is not', async () => {
    const received = (attestation: string) =>
      codeOf(good, { expected: { response: withLastMember(WHOLE.response, 'attestation', attestation) } });
    const text = JSON.stringify(good);
    expect(await received(text)).toBe('valid');
    const other = JSON.stringify(await withRaw(rawOf(OTHER)));
    for (const evil of ['{}', 'null', other, text.replace('{', '{"raw":"evil",')])
      expect(await received(evil)).toBe('response_mismatch');
  });
  test('with a second attestation is refused', () =>
    refused('not_an_attestation', withLastMember(carried(WHOLE.response), 'attestation', '{}')));
  // Whatever it calls itself, it is the answer that the caller holds.
  test('is compared although it calls itself a chunk', async () => {
    for (const object of ['chat.completion.chunk', 'text_completion.chunk']) {
      const evil = OTHER.response.replace('"object":"chat.completion"', `"object":"${object}"`);
      expect(await codeOf(carried(evil), { expected: { request: WHOLE.request } })).not.toBe('valid');
      expect(await codeOf(JSON.parse(carried(evil)), { expected: { request: WHOLE.request } })).not.toBe('valid');
    }
  });
  test('is compared although it has the members of an attestation itself', async () => {
    const evil = JSON.stringify({ ...JSON.parse(OTHER.response), ...good });
    for (const beside of ['0', JSON.stringify(good)]) {
      const text = withLastMember(evil, 'attestation', beside);
      expect(await codeOf(text, { expected: { request: WHOLE.request } })).not.toBe('valid');
      expect(await codeOf(JSON.parse(text), { expected: { request: WHOLE.request } })).not.toBe('valid');
    }
  });
  test('may have a member of its own that is called as one of the attestation', async () => {
    const response = withLastMember(WHOLE.response, 'raw', '"1.0"');
    const text = carried(response, await withRaw(rawOf({ ...WHOLE, response })));
    expect(await codeOf(text)).toBe('valid');
    expect(await codeOf(JSON.parse(text))).toBe('valid');
  });
  // A comparison by recursion would run out of stack.
  test('parsed, and of great depth, is refused with a code', async () => {
    const response = `{"a":${'['.repeat(50_000)}${']'.repeat(50_000)}}`;
    const attestation = await withRaw(rawOf({ ...WHOLE, response }));
    await codeOf({ ...JSON.parse(response), attestation });
  });
});
