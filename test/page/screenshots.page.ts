// Every state of the page at the sizes and in the colours that people have: nothing is cut off, a proof is as small as it should be.
// With SCREENSHOTS set they are written to docs/screenshots.
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { evidenceCases } from '../nvidia/cases.ts';
import { chatStream, DONE, delta, finish, role, usage } from '../support/backend.ts';
import { temporaryFolder } from '../support/harness.ts';
import { vectorsPresent } from '../support/vectors.ts';
import { copyLink, missing, openStage, type Stage, say, unfold, verdict } from './stage.ts';

const FOLDER = fileURLToPath(new URL('../../docs/screenshots', import.meta.url));
const KEPT = process.env.SCREENSHOTS !== undefined;

const QUESTION = 'Why does salt melt ice?';
const ANSWER = [
  'Salt lowers the **freezing point** of water.\n\n',
  '1. Ice always has a thin film of water.\n',
  '2. Salt dissolves in it, and the brine freezes at `-21 °C` only.\n\n',
  'So the ice goes on melting until the brine is too thin.',
];

const SIZES = [
  ['desktop', { phone: false }],
  ['phone', { phone: true }],
] as const;
const COLOURS = [
  ['light', { dark: false }],
  ['dark', { dark: true }],
] as const;
const LOOKS = SIZES.flatMap(([size, one]) =>
  COLOURS.map(([colour, other]) => [`${size}-${colour}`, { ...one, ...other }] as const),
);

/** What stands wider than the screen is cut off. */
const WIDE = `[...document.querySelectorAll('body *')].filter((one) => one.getBoundingClientRect().right > innerWidth + 1
  && one.closest('.away, .table, pre, .to-content') === null).map((one) => one.tagName + '.' + one.className)`;

describe.skipIf(missing !== '')(`the page as it looks${missing}`, () => {
  let stage: Stage;
  let keyed: Stage;
  const folder = temporaryFolder();
  beforeAll(async () => {
    if (KEPT) clear();
    writeFileSync(join(folder.path, 'keys'), 'sesame\n');
    stage = await openStage();
    keyed = await openStage({ API_KEYS_FILE: join(folder.path, 'keys') });
  });
  afterAll(async () => {
    await stage?.close();
    await keyed?.close();
    folder.remove();
  });

  function clear(): void {
    mkdirSync(FOLDER, { recursive: true });
    for (const name of readdirSync(FOLDER))
      if (vectorsPresent || !name.startsWith('proven')) rmSync(join(FOLDER, name));
  }
  async function shoot(page: Page, name: string, look: string): Promise<void> {
    if (KEPT) await page.screenshot({ path: join(FOLDER, `${name}-${look}.jpg`), type: 'jpeg', quality: 60 });
    const wide = (await page.evaluate(WIDE)) as string[];
    expect(wide, name).toEqual([]);
  }
  const inView = (page: Page, selector: string) =>
    page.evaluate(`(() => {
      const { top, bottom } = [...document.querySelectorAll('${selector}')].at(-1).getBoundingClientRect();
      return top >= 0 && bottom <= document.querySelector('#composer').getBoundingClientRect().top + 1;
    })()`);

  test.each(LOOKS)('first view, streaming, proof, tampered: %s', async (look, options) => {
    let go = () => {};
    stage.service.backend.script = async (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(role() + delta(ANSWER[0] ?? ''));
      await new Promise<void>((resolve) => {
        go = resolve;
      });
      response.end([...ANSWER.slice(1).map((words) => delta(words)), finish(), usage(), DONE].join(''));
    };
    const { page, complaints, close } = await stage.visit(options);
    await shoot(page, 'first-view', look);
    await page.fill('#message', QUESTION);
    await page.press('#message', 'Enter');
    await page.locator('.answer strong').waitFor();
    await shoot(page, 'streaming', look);
    go();
    await verdict(page, 'simulated');
    await page.locator('.proof[data-complete]').waitFor();
    await page.locator('.answer li').nth(1).waitFor();
    await shoot(page, 'answered', look);
    await unfold(page);
    const height = await page.locator('.proof').evaluate((one) => one.getBoundingClientRect().height);
    console.log(`${look}: a proof is ${Math.round(height)} px high`);
    await shoot(page, 'proof', look);
    expect(height).toBeLessThan(options.phone ? 560 : 420);
    await page.click('text=Try tampering');
    await page.locator('.answer .source').click({ position: { x: 30, y: 12 } });
    await verdict(page, 'invalid');
    const seen = ['.changed', '.verdict', '.verdict-text', '.claim[data-state=wrong]'].map((one) => inView(page, one));
    expect(await Promise.all(seen)).toEqual([true, true, true, true]);
    await shoot(page, 'tampered', look);
    expect(complaints).toEqual([]);
    await close();
  });

  test.each(LOOKS)('not fully checked, permalink, a picture: %s', async (look, options) => {
    stage.service.backend.script = chatStream(ANSWER);
    const { page, close } = await stage.visit(options);
    await say(page, QUESTION);
    await say(page, 'And sand?');
    const address = await copyLink(page);
    await page.locator('button:text-is("Copied")').waitFor({ state: 'detached' });
    await shoot(page, 'link', look);
    await page.goto(address);
    await verdict(page, 'simulated');
    await shoot(page, 'permalink', look);
    const other = await keyed.visit(options);
    await other.page.goto(address.replace(stage.service.gateway.url, keyed.service.gateway.url));
    await verdict(other.page, 'unchecked');
    await shoot(other.page, 'not-fully-checked', look);
    await other.page.goto(`${keyed.service.gateway.url}/#check`);
    await other.page.setInputFiles('#file', {
      name: 'holiday.png',
      mimeType: 'image/png',
      buffer: Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex'),
    });
    await other.page.locator('#drop-problem').waitFor();
    await shoot(other.page, 'a-picture', look);
    await other.close();
    await close();
  });

  test.each(LOOKS)('key needed: %s', async (look, options) => {
    const { page, close } = await keyed.visit(options);
    await page.locator('#key-form').waitFor();
    await shoot(page, 'key-needed', look);
    await close();
  });

  test('signing: a sidecar that hangs', async () => {
    const other = await openStage({}, { collectionMs: 60_000, drainMs: 1 });
    other.service.backend.script = chatStream(ANSWER);
    const visits = await Promise.all(LOOKS.map(async ([look, options]) => ({ look, ...(await other.visit(options)) })));
    for (const { page } of visits) {
      await page.fill('#message', QUESTION);
      await page.press('#message', 'Enter');
    }
    for (const { look, page, close } of visits) {
      await page.locator('.turn .note', { hasText: 'The GPU is signing' }).waitFor({ timeout: 15_000 });
      await shoot(page, 'signing', look);
      await close();
    }
    await other.service.sidecar.close();
    await other.close();
  });

  // Genuine evidence of an H100. No GPU has signed an answer for this project yet, so none is shown as proven.
  test.skipIf(!vectorsPresent)('proven: genuine evidence', async () => {
    const [h100] = evidenceCases();
    if (h100 === undefined) throw new TypeError('no case');
    const { arch, chain, report, nonce, clocks } = h100;
    const evidence = report.toString('base64');
    const certificate = Buffer.from(chain).toString('base64');
    for (const [look, options] of LOOKS) {
      const { page, close } = await stage.visit({ ...options, at: clocks.report.toISOString() });
      await page.click('#to-check');
      await page.uncheck('#drop-collateral');
      await page.setInputFiles('#file', {
        name: 'h100-evidence.json',
        mimeType: 'application/json',
        buffer: Buffer.from(JSON.stringify([{ arch, certificate, evidence, nonce }])),
      });
      await verdict(page, 'valid');
      const { x, y, width, height } = (await page.locator('#checked').boundingBox()) ?? {
        x: 0,
        y: 0,
        width: 0,
        height: 0,
      };
      const clip = { x: Math.max(x - 24, 0), y: y - 8, width: width + 48, height };
      const path = join(FOLDER, `proven-${look}.jpg`);
      if (KEPT) await page.screenshot({ path, type: 'jpeg', quality: 80, clip });
      expect(await page.textContent('.card')).toContain('A genuine NVIDIA GPU');
      await close();
    }
  });

  test('sidecar gone', async () => {
    const other = await openStage();
    other.service.backend.script = chatStream(ANSWER);
    const visits = await Promise.all(LOOKS.map(async ([look, options]) => ({ look, ...(await other.visit(options)) })));
    for (const { page } of visits) await say(page, QUESTION);
    await other.service.sidecar.close();
    for (const { look, page, close } of visits) {
      await page.locator('#state[data-kind=trouble]').waitFor({ timeout: 10_000 });
      expect(await page.locator('.proof').getAttribute('data-verdict')).toBe('simulated');
      await say(page, 'And sand?');
      await page.locator('.trouble').waitFor();
      await shoot(page, 'sidecar-gone', look);
      await close();
    }
    await other.close();
  });
});
