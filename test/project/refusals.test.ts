// A server that has ended refuses everything, so a test of a refusal says for what reason. test/support/refusals.ts asks for something good
// afterwards.
import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

const TEST = new URL('../', import.meta.url);
const WITHOUT_REASON = /\.rejects\s*\.toThrow(Error)?\(\s*\)/;

it('no test is passed by any rejection at all, which includes "connection refused"', () => {
  const files = readdirSync(TEST, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'));
  const found = files.filter((file) => WITHOUT_REASON.test(readFileSync(new URL(file, TEST), 'utf8')));
  expect(files.length).toBeGreaterThan(300);
  expect(found).toEqual([]);
});
