import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { digitsOf, hexDigitsOf, indexOfByte, putHex, putNumber } from '../../gateway/http/bytes.ts';

const number = fc.oneof(
  fc.nat({ max: 2 ** 32 - 1 }),
  fc.integer({ min: 0, max: 32 }).map((bits) => 2 ** bits - 1),
);
const AFTER = 0x7c;

describe('numbers in bytes', () => {
  it('are as Number writes them, and touch no byte beside their own', () => {
    fc.assert(
      fc.property(number, (value) => {
        for (const [base, digits, put] of [[10, digitsOf, putNumber] as const, [16, hexDigitsOf, putHex] as const]) {
          const text = value.toString(base);
          expect(digits(value)).toBe(text.length);
          const bytes = Buffer.alloc(text.length + 2, AFTER);
          put(bytes, text.length + 1, value);
          expect(bytes.toString('latin1')).toBe(`|${text}|`);
        }
      }),
      { numRuns: 2_000 },
    );
  });
});

describe('a byte that is looked for', () => {
  it('is found where indexOf finds it, near and far', () => {
    const places = fc.array(fc.nat({ max: 1_600 }), { maxLength: 4 });
    let far = 0;
    fc.assert(
      fc.property(fc.nat({ max: 1_600 }), places, fc.nat({ max: 1_700 }), (length, marked, from) => {
        const bytes = new Uint8Array(length);
        for (const place of marked) bytes[place] = 1;
        const at = bytes.indexOf(1, from);
        if (at >= from + 512) far++;
        expect(indexOfByte(bytes, 1, from)).toBe(at);
      }),
      { numRuns: 3_000 },
    );
    expect(far).toBeGreaterThan(10);
  });
});
