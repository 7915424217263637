// Everything that reads what others wrote takes one pass: twice the input, at most 2.2 times the operations (counter.ts). A reader is a
// row of readers.ts; one is looked at with
//   node --allow-natives-syntax test/linear/child.ts readers 'parseJson'
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { LINEAR, QUADRATIC } from './planted.ts';

const CHILD = fileURLToPath(new URL('child.ts', import.meta.url));
/** Half a minute on two cores that nothing else runs on. */
const TIMEOUT_MS = 600_000;
const MIN_READERS = 110;

async function child<T>(what: string): Promise<Record<string, T>> {
  const options = { maxBuffer: 1 << 26, timeout: TIMEOUT_MS };
  const { stdout } = await promisify(execFile)(process.execPath, ['--allow-natives-syntax', CHILD, what], options);
  return JSON.parse(stdout);
}

it('the count finds functions that take more than one pass, and lets those by that take one', {
  timeout: TIMEOUT_MS,
}, async () => {
  const expected = (all: object, steep: boolean) => Object.fromEntries(Object.keys(all).map((name) => [name, steep]));
  expect(await child('planted')).toEqual({ ...expected(QUADRATIC, true), ...expected(LINEAR, false) });
});

it('each reader of what others wrote takes one pass', { timeout: TIMEOUT_MS }, async () => {
  const found = await child<string[]>('readers');
  expect(Object.keys(found).length).toBeGreaterThan(MIN_READERS);
  expect(Object.fromEntries(Object.entries(found).filter(([, wrong]) => wrong.length > 0))).toEqual({});
});
