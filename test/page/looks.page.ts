// Accessibility, small screens, weight and speed, in every state of the page.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { answer, chatStream } from '../support/backend.ts';
import { missing, openStage, type Stage, say, unfold, verdict } from './stage.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
/** gzipped, everything that the page loads before it is used; the checks of a processor's evidence come with the first that has some. */
const MAX_WEIGHT_BYTES = 90_000;

interface Finding {
  readonly id: string;
  readonly impact: string;
  readonly where: readonly string[];
}

async function findings(page: Page): Promise<Finding[]> {
  const found = (await page.evaluate(`axe.run().then(({ violations }) => violations.map(({ id, impact, nodes }) =>
    ({ id, impact, where: nodes.map(({ target, any }) => target + ' ' + any.map(({ message }) => message)) })))`)) as Finding[];
  for (const { id, impact, where } of found) console.log(`axe: ${impact} ${id}: ${where.join('; ').slice(0, 400)}`);
  return found;
}

describe.skipIf(missing !== '')(`the page${missing}`, () => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await openStage();
    stage.service.backend.script = chatStream(['Lanterns ', 'drift ', 'home.']);
  });
  afterAll(() => stage?.close());

  test.each([
    ['on a desktop, light', {}],
    ['on a desktop, dark', { dark: true }],
    ['on a phone, light', { phone: true }],
    ['on a phone, dark', { phone: true, dark: true }],
  ])('has no finding of axe in any state, %s', async (_name, options) => {
    const { page, complaints, close } = await stage.visit({ ...options, script: AXE });
    const seen: Finding[] = await findings(page);
    await say(page, 'Hello');
    await unfold(page);
    for (const summary of await page.locator('details:not([open]) > summary').all())
      if (await summary.isVisible()) await summary.click();
    await page.click('.card >> text=Copy link');
    seen.push(...(await findings(page)));
    await page.click('button:has-text("Change this byte")');
    await verdict(page, 'invalid');
    seen.push(...(await findings(page)));
    await page.click('button:has-text("Try tampering")');
    await page.locator('.answer .source').click({ position: { x: 20, y: 12 } });
    await page.locator('.source .changed').waitFor();
    seen.push(...(await findings(page)));
    await page.click('button:has-text("Done")');
    stage.service.backend.script = answer('{"error":{"message":"No.","type":"x","param":null,"code":"no"}}', 500);
    await say(page, 'Again');
    stage.service.backend.script = chatStream(['Lanterns ', 'drift ', 'home.']);
    seen.push(...(await findings(page)));
    await page.click('#to-check');
    await page.click('button:has-text("Check the text")');
    seen.push(...(await findings(page)));
    expect(seen.map(({ id }) => id)).toEqual([]);
    expect(complaints).toEqual([]);
    await close();
  });

  test.each([320, 390, 768])('fits a screen of %d pixels, everything open', async (width) => {
    const { page, close } = await stage.visit({ phone: true });
    await page.setViewportSize({ width, height: 700 });
    await say(page, `A long word: ${'incomprehensibilities'.repeat(8)}`);
    await unfold(page);
    for (const summary of await page.locator('details:not([open]) > summary').all())
      if (await summary.isVisible()) await summary.click();
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width);
    const small = await page
      .locator('button:visible, .button:visible, nav a:visible')
      .evaluateAll((all) => all.filter((one) => one.getBoundingClientRect().height < 24).map((one) => one.textContent));
    expect(small).toEqual([]);
    await close();
  });

  test('has one primary button a view', async () => {
    const { page, close } = await stage.visit();
    const primary = () =>
      page.evaluate(`[...document.querySelectorAll('button, .button')].filter((one) => one.checkVisibility()
        && getComputedStyle(one).backgroundColor === getComputedStyle(one).borderTopColor).map((one) => one.textContent)`);
    expect(await primary()).toEqual(['Send']);
    await say(page, 'Hello');
    await unfold(page);
    for (const summary of await page.locator('.card details:not([open]) > summary').all())
      if (await summary.isVisible()) await summary.click();
    expect(await primary()).toEqual(['Send']);
    await page.click('#to-check');
    // The view changes with the address, a moment later.
    await page.locator('#check').waitFor();
    expect(await primary()).toEqual(['Choose a file']);
    await close();
  });

  test.each(['chat', 'check'])('skips to the content of the view that is shown: %s', async (view) => {
    const { page, close } = await stage.visit();
    await page.click(`#to-${view}`);
    await page.focus('.to-content');
    await page.keyboard.press('Enter');
    expect(await page.evaluate('document.activeElement.id')).toBe('view');
    expect(await page.locator('main > section:visible').evaluateAll((all) => all.map(({ id }) => id))).toEqual([view]);
    await close();
  });

  test.each([
    [640, 360],
    [320, 256],
  ])('leaves room for the conversation on a screen of %d by %d pixels, settings open', async (width, height) => {
    const { page, close } = await stage.visit({ phone: true });
    await page.setViewportSize({ width, height });
    await say(page, 'Hello');
    await page.click('#settings > summary');
    const seen = await page.evaluate(`(() => {
      const title = document.querySelector('.verdict-title');
      title.scrollIntoView({ block: 'center' });
      const { left, top, height } = title.getBoundingClientRect();
      return document.elementFromPoint(left + 8, top + height / 2) === title;
    })()`);
    expect(seen).toBe(true);
    await close();
  });

  test('on paper nothing lies over a proof', async () => {
    const { page, close } = await stage.visit();
    await say(page, 'Hello');
    await page.emulateMedia({ media: 'print' });
    const laid = await page.evaluate(`[...document.querySelectorAll('body *')]
      .filter((one) => one.checkVisibility() && /sticky|fixed/.test(getComputedStyle(one).position)).map(({ id }) => id)`);
    expect(laid).toEqual([]);
    expect(await page.locator('#simulated').isVisible()).toBe(true);
    await close();
  });

  test('moves nothing where no motion is wanted', async () => {
    const { page, close } = await stage.visit({ still: true });
    await say(page, 'Hello');
    expect(await page.evaluate('document.getAnimations().length')).toBe(0);
    await close();
  });

  test('tells a screen reader what happens, once each', async () => {
    const { page, close } = await stage.visit();
    await page.evaluate(`globalThis.said = []; new MutationObserver(() => said.push(document.getElementById('status').textContent))
      .observe(document.getElementById('status'), { childList: true })`);
    await say(page, 'Hello');
    const said = (await page.evaluate('said')) as string[];
    expect(said.slice(0, 2)).toEqual(['Sent.', 'The answer: Lanterns drift home.']);
    expect(said[2]).toMatch(/^Demo: intact, but no real GPU\./);
    expect(said.length).toBe(3);
    await close();
  });

  test.each([
    ['a desktop', {}, 5_000],
    ['a phone with a slow line', { phone: true, slow: true }, 15_000],
  ])('is light, quick, and loads only from its gateway, on %s', async (name, options, max_ready_ms) => {
    const { page, strangers, requests, close } = await stage.visit(options);
    const { weight, files, painted, ready } = (await page.evaluate(MEASURE)) as Record<string, number>;
    console.log(
      `${name}: ${weight} bytes gzipped in ${files} files; first paint ${painted} ms, interactive ${ready} ms`,
    );
    expect(weight).toBeLessThan(MAX_WEIGHT_BYTES);
    expect(ready).toBeLessThan(max_ready_ms);
    expect(strangers).toEqual([]);
    expect(requests.every((one) => /^GET \/(page\/|v1\/models$|$)/.test(one))).toBe(true);
    await close();
  });
});

/** Interactive: the script has run, and the service and its models are known. */
const MEASURE = `(() => {
  const [page] = performance.getEntriesByType('navigation');
  const parts = performance.getEntriesByType('resource').filter(({ name }) => /\\/page\\/assets\\//.test(name));
  return {
    weight: [page, ...parts].reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0),
    files: 1 + parts.length,
    painted: Math.round(performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1),
    ready: Math.round(performance.getEntriesByName('ready')[0].startTime),
  };
})()`;
