// A release that is named where a proof is checked: its list says which software is right, and a wrong one says why it is none.
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { pem } from '../../demo/twin/authority.ts';
import { withdrawal } from '../../scripts/vectors/release-kit.ts';
import { temporaryFolder } from '../support/harness.ts';
import { WEIGHTS } from '../support/launch-file.ts';
import { AT, simulatedRoot } from '../verify/maker.ts';
import { bundleOf, repository, sessionOf, statusOf, trustedRoot } from '../verify/release/maker.ts';
import { amd, answerIn } from '../verify/session-maker.ts';
import { checks, missing, openStage, type Stage, type Visit, type VisitOptions, verdict } from './stage.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const PATH = '/.well-known/countersign/release';
const LOOKS: readonly (readonly [string, VisitOptions])[] = [
  ['desktop-light', {}],
  ['desktop-dark', { dark: true }],
  ['phone-light', { phone: true }],
  ['phone-dark', { phone: true, dark: true }],
];

const documentOf = (status = statusOf()) => `{"bundle":${bundleOf()},"status":${status}}`;
const withdrawn = documentOf(statusOf({ withdrawn: [{ ...withdrawal(), tag: 'v0.3.0' }] }));
const file = (name: string, text: string) => ({ name, mimeType: 'application/json', buffer: Buffer.from(text) });

describe.skipIf(missing !== '')(`a release${missing}`, () => {
  const folder = temporaryFolder();
  let stage: Stage;
  let answer: string;
  const serve = (text: string) => writeFileSync(join(folder.path, 'release.json'), text);
  beforeAll(async () => {
    writeFileSync(join(folder.path, 'keys'), 'sesame\n');
    stage = await openStage({ API_KEYS_FILE: join(folder.path, 'keys') });
    answer = JSON.stringify(await answerIn(await sessionOf()));
  });
  afterAll(async () => {
    await stage?.close();
    folder.remove();
  });

  /** At the answer's time, on a gateway that names the roots of its makers. */
  async function visit(options: VisitOptions = {}): Promise<Visit> {
    const visit = await stage.visit({ at: AT.toISOString(), ...options });
    const { page } = visit;
    await page.route('**/page/service', async (route) => {
      const response = await route.fetch();
      await route.fulfill({ json: { ...(await response.json()), simulated_root: simulatedRoot + pem(amd.ark) } });
    });
    await page.reload();
    await page.waitForSelector('html[data-ready=yes]');
    await page.click('#to-check');
    await page.uncheck('#drop-collateral');
    await page.click('#release-fold > summary');
    return visit;
  }
  const check = (page: Page) => page.setInputFiles('#file', file('answer.json', answer));
  const claim = (page: Page) => page.locator('[data-claim="Which software"]');
  async function good(page: Page): Promise<void> {
    serve(documentOf());
    await page.fill('#release', repository);
    await page.setInputFiles('#trusted-root', file('trusted_root.json', trustedRoot));
    await check(page);
    await verdict(page, 'simulated');
    await page.locator('.proof[data-complete]').waitFor();
    expect(await claim(page).textContent()).toContain(
      `v0.3.0 of ${repository}, built from commit ${'1'.repeat(40)} by the public workflow, in a log that the caller trusts since 2025-05-02, weights ${WEIGHTS.name}`,
    );
    expect(await checks(page, 'pass')).toEqual(expect.arrayContaining(['release', 'release_status', 'cpu_software']));
  }

  test('is asked of this gateway only where one is named, and its code comes with the first', async () => {
    const { page, requests, strangers, complaints, close } = await visit();
    serve(documentOf());
    expect([await page.inputValue('#release'), await page.textContent('#trusted-root-name')]).toEqual([
      '',
      "Sigstore's public root is built in.",
    ]);
    await check(page);
    await verdict(page, 'simulated');
    expect(await claim(page).textContent()).toContain('Not known: a simulator measures nothing.');
    expect(await checks(page, 'pass')).not.toContain('release');
    const asked = () => requests.filter((one) => one === `GET ${PATH}`).length;
    const scripts = () => requests.filter((one) => /\/(release|check)-\w+\.js$/.test(one)).length;
    expect([asked(), scripts()]).toEqual([0, 0]);
    await good(page);
    expect([asked(), scripts()]).toEqual([1, 2]);
    expect(await page.locator('.keep .meaning').textContent()).toContain(`--release ${repository} --gateway http://`);
    expect([complaints, strangers]).toEqual([[], []]);
    await close();
  });

  test('says why a release is none, and takes the good one again', async () => {
    const { page, complaints, close } = await visit();
    await good(page);
    const wrong: readonly (readonly [does: () => unknown, kind: string, says: string, check: string])[] = [
      [() => serve(withdrawn), 'invalid', 'The release was withdrawn.', 'release_status'],
      [() => page.fill('#release', 'acme/other'), 'invalid', 'does not verify', 'release'],
      [() => page.fill('#release', `${repository}@v0.2.0`), 'invalid', 'does not verify', 'release'],
      [() => page.setInputFiles('#trusted-root', []), 'invalid', 'does not verify', 'release'],
      [() => rmSync(join(folder.path, 'release.json')), 'unchecked', 'This service shows no release now', 'release'],
    ];
    for (const [change, kind, says, failed] of wrong) {
      await change();
      await check(page);
      await verdict(page, kind);
      await page.locator('.proof[data-complete]').waitFor();
      expect(await claim(page).textContent(), says).toContain(says);
      expect(await page.textContent('.verdict-text')).toContain(says);
      expect(await page.locator(`[data-check=${failed}]`).getAttribute('data-status')).not.toBe('pass');
      await good(page);
    }
    expect(complaints).toEqual([]);
    await close();
  });

  test('a wrong name and a wrong root are refused in words; a release.json that is dropped takes the place of the gateway', async () => {
    const { page, requests, complaints, close } = await visit();
    const refused = async (says: string) => {
      await page.locator('#drop-problem h2', { hasText: says }).waitFor();
      expect(await page.locator('#checked').innerHTML()).toBe('');
    };
    await page.fill('#release', 'https://github.com/acme/x');
    await check(page);
    await refused('The release is not named as OWNER/REPO or OWNER/REPO@TAG.');
    await page.fill('#release', repository);
    await page.setInputFiles('#trusted-root', file('cat.json', '{"cat":1}'));
    await check(page);
    await refused('cat.json is no trusted root of Sigstore.');
    await good(page);
    await page.setInputFiles('#file', file('release.json', withdrawn));
    await refused('release.json is a release, which this page keeps until it is closed.');
    const before = requests.filter((one) => one === `GET ${PATH}`).length;
    await check(page);
    await verdict(page, 'invalid');
    expect(await claim(page).textContent()).toContain('The release was withdrawn');
    await page.setInputFiles('#file', [
      file('answer.json', answer),
      file('release.json', `{"status":${statusOf()},"bundle":${bundleOf()}}`),
    ]);
    await verdict(page, 'simulated');
    expect(requests.filter((one) => one === `GET ${PATH}`).length).toBe(before);
    await page.setInputFiles('#file', file('evidence.json', evidenceOf(answer)));
    await page.locator('.verdict-text', { hasText: 'shows no guest to compare with a release' }).waitFor();
    await good(page);
    expect(complaints).toEqual([]);
    await close();
  });

  test.each(LOOKS)('has no finding of axe and fits the screen: %s', async (look, options) => {
    const { page, close } = await visit({ ...options, script: AXE });
    const clean = async (state: string) => {
      const found = await page.evaluate('axe.run().then(({ violations }) => violations.map(({ id }) => id))');
      expect(found).toEqual([]);
      expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(0);
      const shots = process.env.SHOTS;
      if (shots !== undefined) await page.screenshot({ path: `${shots}/release-${state}-${look}.png`, fullPage: true });
    };
    await clean('form');
    await good(page);
    await clean('good');
    serve(withdrawn);
    await check(page);
    await verdict(page, 'invalid');
    await clean('withdrawn');
    await good(page);
    await close();
  });
});

/** Of the GPUs alone. */
function evidenceOf(text: string): string {
  const { evidence, nonce } = JSON.parse(text);
  return JSON.stringify(evidence.map((one: object) => ({ ...one, nonce })));
}
