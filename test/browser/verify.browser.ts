// The verifier in a real browser: the same bundle a page would load, over the same evidence, with the same results.
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { vectorsPresent } from '../support/vectors.ts';
import { optionsOf, releaseVectors } from '../verify/release/vectors.ts';
import { appraise } from './appraise.ts';
import { ownSpecs } from './own.ts';
import { openVerifierPage, type VerifierPage } from './page.ts';
import { cpuSpecs, genuineSpecs, simulatedSpecs } from './specs.ts';
import * as verifier from './verifier.ts';

const chromium = inject('chromium');
const specs = [
  ...(vectorsPresent ? [...genuineSpecs(), ...cpuSpecs()] : []),
  ...(await simulatedSpecs()),
  ...ownSpecs(),
];

const missing = 'missing' in chromium ? `, SKIPPED without ${chromium.missing}` : '';
describe.skipIf(missing !== '')(`in Chromium${missing}`, () => {
  let opened: VerifierPage;
  beforeAll(async () => {
    opened = await openVerifierPage('path' in chromium ? chromium.path : '');
    console.log(opened.browser);
  });
  afterAll(() => opened?.close());

  test('the page has WebCrypto and nothing of Node', async () => {
    const found = 'JSON.stringify([isSecureContext, typeof Buffer, typeof process, typeof require])';
    expect(await opened.page.evaluate(found)).toBe('[true,"undefined","undefined","undefined"]');
  });

  test.each(specs)('$spec.name: $expected, as in Node', async ({ spec, expected }) => {
    const here = await appraise(verifier, spec);
    const there = await opened.page.evaluate(`globalThis.appraise(${JSON.stringify(spec)})`);
    expect(there).toEqual(here);
    const failed = (here.checks as readonly verifier.Check[]).find(({ status }) => status === 'fail');
    expect(failed?.code ?? 'pass', failed?.detail).toBe(expected);
    expect(here.valid).toBe(expected === 'pass');
  });

  test.each(releaseVectors)('release: %s, as in Node', async (_, one) => {
    const { expect: stated, options } = one;
    const said = `globalThis.releaseCode(${JSON.stringify(optionsOf(one))}, ${JSON.stringify(options)})`;
    expect(await opened.page.evaluate(said)).toBe('code' in stated ? stated.code : null);
  });

  test('it verified with WebCrypto, asked no network and raised no error', async () => {
    expect(await opened.page.evaluate('globalThis.signatures')).toBeGreaterThan(0);
    expect(opened.complaints).toEqual([]);
  });
});
