import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { buildRaw, nonceOf, splitRaw } from '../../proto/attestation/raw.ts';
import {
  hasAtMost,
  JsonTextError,
  parseJson,
  topLevelMembers,
  withLastMember,
  withoutMember,
} from '../../proto/json.ts';

const ODD_BODIES = [
  '{"a":1.0,"b":1e-05,"c":-0}',
  '{"n":12345678901234567890}',
  '{"2":"two","1":"one","b":0,"a":0}',
  '{"a":1,"a":2}',
  '{"escaped":"\\u00e9\\ud83d\\ude00\\/","raw":"é😀\u2028"}',
  '{ "spaced" :\t[ 1 , {"x":"}"} ] ,\r\n"end" : null }',
  '{"__proto__":{"a":1},"constructor":"\\"}\\\\"}',
  '{}',
];

describe('raw', () => {
  it.each(ODD_BODIES)('holds the exact bytes of %s on both sides', (body) => {
    const stream = { events: 3, sha256: 'ab'.repeat(32) };
    const raw = buildRaw({ request: body, response: body, stream, timestamp: 1_700_000_000 });
    expect(raw).toBe(
      `{"request":${body},"response":${body},"stream":{"events":3,"sha256":"${'ab'.repeat(32)}"},"timestamp":1700000000}`,
    );
    expect(splitRaw(raw)).toEqual({ request: body, response: body, stream, timestamp: 1_700_000_000 });
  });

  it('has a nonce that is the SHA-256 of its UTF-8 bytes', async () => {
    // printf '{"request":{},"response":{"a":"é"},"timestamp":1}' | sha256sum
    expect(await nonceOf('{"request":{},"response":{"a":"é"},"timestamp":1}')).toBe(
      '457570fe84f665378f882e1b38d5817980a1a78a3244c72e01e25a52f588b270',
    );
  });

  it.each([
    ['not JSON', '{"request":{}'],
    ['no timestamp', '{"request":{},"response":{}}'],
    ['a request given twice', '{"request":{},"request":{},"response":{},"timestamp":1}'],
    ['an unknown member', '{"request":{},"response":{},"timestamp":1,"more":1}'],
    ['a request that is no object', '{"request":[],"response":{},"timestamp":1}'],
    ['a fractional timestamp', '{"request":{},"response":{},"timestamp":1.5}'],
    ['a stream digest of another shape', '{"request":{},"response":{},"stream":{"events":1},"timestamp":1}'],
    ['an escaped duplicate', '{"request":{},"response":{},"\\u0072equest":{},"timestamp":1}'],
  ])('is refused with %s', (_name, raw) => {
    expect(() => splitRaw(raw)).toThrow(JsonTextError);
  });
});

describe('members of a JSON text', () => {
  it('are found as a parse finds them, for any object', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.integer({ min: 0, max: 4 }), (object, indent) => {
        const text = JSON.stringify(object, null, indent);
        const found = topLevelMembers(text).map(({ key, valueStart, valueEnd }) => [
          key,
          JSON.parse(text.slice(valueStart, valueEnd)),
        ]);
        expect(found).toEqual(Object.entries(parseJson(text) as object));
      }),
      { numRuns: 300 },
    );
  });

  it('can be cut out and put back at the end without touching another byte', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue(), { minKeys: 1 }), fc.nat(), (object, pick) => {
        const text = JSON.stringify(object);
        const members = topLevelMembers(text);
        const index = pick % members.length;
        const cut = withoutMember(text, members, index);
        const rest = Object.entries(parseJson(text) as object).filter((_, i) => i !== index);
        expect(Object.entries(parseJson(cut) as object)).toEqual(rest);
        const spliced = withLastMember(text, 'attestation', '{"raw":"}"}');
        const again = topLevelMembers(spliced);
        expect(withoutMember(spliced, again, again.length - 1)).toBe(text);
      }),
      { numRuns: 300 },
    );
  });

  it('end where their text ends, whatever is escaped in it', () => {
    const letters = fc.string({ unit: fc.constantFrom('"', '\\', 'a', '{', ',', '\n') });
    fc.assert(
      fc.property(fc.dictionary(letters, letters, { minKeys: 1 }), (object) => {
        const text = JSON.stringify(object);
        const found = topLevelMembers(text).map(({ key, valueStart, valueEnd }) => [
          key,
          JSON.parse(text.slice(valueStart, valueEnd)),
        ]);
        // Not what JSON.parse says of the text: see parseJson.
        expect(found).toEqual(Object.entries(object));
      }),
      { numRuns: 1_000 },
    );
    for (const open of ['{"a":"b', '{"a":"b\\', '{"a":"b\\"', '{"a":"b\\\\\\"}', '{"a', '{"'])
      expect(() => topLevelMembers(open)).toThrow(new JsonTextError('a string does not end'));
  });

  it('have the names that their text has, also where V8 has seen one with a backslash before', () => {
    const name = (text: string) => Object.keys(parseJson(text) as object)[1];
    // What V8 reads second as what it has read first: nodejs/node#63785.
    for (const [seen, escaped, meant] of [
      ['t\\\\u', 't\\u0065e', 'tee'],
      ['mod\\\\u', 'mod\\u0065l', 'model'],
      ['\\\\', '\\n', '\n'],
      ['\\\\', '\\"', '"'],
    ])
      for (let i = 0; i < 3; i++) {
        expect(name(`{"a":1,"${seen}":2}`)).toBe(JSON.parse(`"${seen}"`));
        expect(name(`{"a":1,"${escaped}":2}`)).toBe(meant);
      }
    const proto = parseJson('{"\\\\":1,"__proto__":{"a":1}}') as object;
    expect(Object.keys(proto)).toEqual(['\\', '__proto__']);
  });

  it('never hang or throw anything uncoded on text that is not JSON', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...'{}[]",:\\ \n0atrue'.split(''))), (chars) => {
        try {
          topLevelMembers(chars.join(''));
        } catch (error) {
          expect(error instanceof JsonTextError || error instanceof SyntaxError).toBe(true);
        }
      }),
      { numRuns: 2_000 },
    );
  });
});

describe('how many names and values a JSON text has', () => {
  /** One for what stands behind each comma and colon, and one for each opening bracket. */
  function count(value: unknown): number {
    if (typeof value !== 'object' || value === null) return 0;
    const names = Array.isArray(value) ? 0 : Object.keys(value).length;
    const items = Object.values(value);
    return 1 + Math.max(0, items.length - 1) + names + items.reduce((sum: number, item) => sum + count(item), 0);
  }

  it('is counted as it is, whatever its strings hold', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 5 }), fc.boolean(), (text, pretty) => {
        const value = JSON.parse(text);
        const written = (pretty ? JSON.stringify(value, null, 2) : text).padEnd(200);
        const marks = count(value);
        expect(hasAtMost(written, marks)).toBe(true);
        if (marks > 0 && marks - 1 < written.length) expect(hasAtMost(written, marks - 1)).toBe(false);
      }),
      { numRuns: 3_000 },
    );
    expect(hasAtMost(`["${'[,:{'.repeat(100)}"]`, 1)).toBe(true);
    expect(hasAtMost(`["\\"${'[,'.repeat(100)}"]`, 1)).toBe(true);
    expect(hasAtMost(`["\\\\",${'[,'.repeat(100)}"]`, 100)).toBe(false);
  });

  it('is not asked of a text that is too short, and of no JSON some answer is given', () => {
    expect(hasAtMost('[[[', 3)).toBe(true);
    expect(hasAtMost('[[[[', 3)).toBe(false);
    expect(hasAtMost(`"${'a'.repeat(100)}`, 3)).toBe(true);
    expect(hasAtMost('""""""""""', 3)).toBe(false);
    expect(hasAtMost('', 0)).toBe(true);
  });
});
