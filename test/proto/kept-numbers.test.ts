// Numbers keep their texts, by ECMAScript's own means and on systems that lack them.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { byText, native } from '../../proto/kept-numbers.ts';

const natively = native(JSON as unknown as Parameters<typeof native>[0]);
const number = fc.oneof(
  fc.constantFrom('1.0', '-0', '0', '-0.0', '12345678901234567890', '1e-05', '1E400', '0.1', '1e21', '0.0000001', '-7'),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map(String),
  fc.bigInt().map(String),
);
/** JSON text, with numbers as others write them. */
const { text } = fc.letrec((tie) => ({
  text: fc.oneof(
    { maxDepth: 4 },
    number,
    fc.string({ unit: 'binary' }).map((value) => JSON.stringify(value)),
    fc.constantFrom('null', 'true', '"1.0"', '"\\\\"', '"a\\"1.0"', '"12345678901234567890"'),
    fc.array(tie('text')).map((items) => `[${items.join(', ')}]`),
    fc
      .array(fc.tuple(fc.string(), tie('text')))
      .map((members) => `{${members.map(([name, value]) => `${JSON.stringify(name)}:${value}`).join()}}`),
  ),
})) as { text: fc.Arbitrary<string> };

describe.each([
  ['natively', natively],
  ['by the text', byText()],
])('%s', (_how, numbers) => {
  it('keeps what JavaScript would write differently, and only that', () => {
    const source = '{"a":[1.0,12345678901234567890,1e-05,-0,7],"b":"1.0 \\"2.0","1.0":"\\\\"}';
    const value = numbers.parse(source) as { a: unknown[] };
    expect(value.a.map((one) => numbers.isKept(one))).toEqual([true, true, true, true, false]);
    expect(numbers.stringify(value)).toBe(source);
    expect(numbers.stringify({ deep: [value.a[1]] })).toBe('{"deep":[12345678901234567890]}');
    expect(numbers.stringify(numbers.parse('1.50'))).toBe('1.50');
  });

  it('refuses what is no JSON', () => {
    for (const bad of ['', '01.0', '1.', '"1.0', '{"a":1.0,}', '-', '[1.0 2.0]', '.10', '+1.0'])
      expect(() => numbers.parse(bad), bad).toThrow(SyntaxError);
  });
});

it('both ways write the same', () => {
  const other = byText();
  fc.assert(
    fc.property(text, (source) => {
      expect(other.stringify(other.parse(source))).toBe(natively.stringify(natively.parse(source)));
    }),
    { numRuns: 5_000 },
  );
});
