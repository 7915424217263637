import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { hexDigitsOf, indexOfByte, putHex } from '../../../gateway/base/bytes.ts';

const number = fc.oneof(
  fc.nat({ max: 2 ** 32 - 1 }),
  fc.integer({ min: 0, max: 32 }).map((bits) => 2 ** bits - 1),
);
const AFTER = 0x7c;

describe('numbers in bytes', () => {
  it('are as Number writes them in base 16, and touch no byte beside their own', () => {
    fc.assert(
      fc.property(number, (value) => {
        const text = value.toString(16);
        expect(hexDigitsOf(value)).toBe(text.length);
        const bytes = Buffer.alloc(text.length + 2, AFTER);
        putHex(bytes, text.length + 1, value);
        expect(bytes.toString('latin1')).toBe(`|${text}|`);
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
