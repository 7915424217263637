// The API's documentation at /docs in a real Chromium: everything is there, nothing is loaded, and it is readable for everybody.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildDocument } from '../../gateway/routes/openapi/openapi.ts';
import { missing, openStage, type Stage, type VisitOptions } from './stage.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
/** Where pictures are kept, for a person who wants to look at the page. */
const PICTURES = process.env.DOCS_PICTURES;

describe.skipIf(missing !== '')(`/docs${missing}`, () => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await openStage();
  });
  afterAll(() => stage?.close());

  async function open(options: VisitOptions = {}) {
    const visit = await stage.visit(options);
    visit.requests.length = 0;
    await visit.page.goto(`${stage.service.gateway.url}/docs`);
    return visit;
  }

  test('shows every route, schema and error, and asks nobody for anything', async () => {
    const { page, complaints, strangers, requests, close } = await open();
    const { paths, components } = buildDocument();
    const routes = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    const linked = await page.locator('nav li:has(.method)').allInnerTexts();
    expect(linked.toSorted()).toEqual(routes.toSorted());
    const titles = await page.locator('main h3:has(.method)').allInnerTexts();
    expect(titles.toSorted()).toEqual(routes.toSorted());
    const schemas = await page.locator('#schemas h3').allInnerTexts();
    expect(schemas).toEqual(Object.keys(components.schemas));
    const errors = await page.locator('#errors dt').evaluateAll((all) => all.map(({ id }) => id));
    const examples = Object.keys(components.examples).filter((name) => name.startsWith('error.'));
    expect(errors.toSorted()).toEqual([...examples, 'verify.not_an_attestation'].toSorted());
    expect(complaints).toEqual([]);
    expect(strangers).toEqual([]);
    expect(requests).toEqual(['GET /docs']);
    await close();
  });

  test('leads from each link to its place, and names no place twice', async () => {
    const { page, close } = await open();
    const { ids, targets } = (await page.evaluate(`({
      ids: [...document.querySelectorAll('[id]')].map(({ id }) => id),
      targets: [...document.querySelectorAll('a[href^="#"]')].map((one) => one.getAttribute('href').slice(1)),
    })`)) as { ids: string[]; targets: string[] };
    expect(new Set(ids).size).toBe(ids.length);
    expect(targets.length).toBeGreaterThan(100);
    expect(targets.filter((target) => !ids.includes(target))).toEqual([]);
    await close();
  });

  test('finds what stands in a closed example, as a reader does', async () => {
    const { page, close } = await open();
    const example = page.locator('[id="example.createChatCompletion.tee"]');
    expect(await example.locator('details').getAttribute('open')).toBeNull();
    await example.locator('summary').focus();
    await page.keyboard.press('Enter');
    expect(await example.locator('pre').innerText()).toContain('"attestation": {');
    await close();
  });

  test.each([
    ['on a desktop, light', { width: 1280, height: 800 }, {}],
    ['on a desktop, dark', { width: 1280, height: 800 }, { dark: true }],
    ['on a phone, light', { width: 360, height: 740 }, { phone: true }],
    ['on a phone, dark', { width: 360, height: 740 }, { phone: true, dark: true }],
  ])('has no finding of axe and fits its screen, %s', async (name, size, options) => {
    const { page, complaints, close } = await open({ ...options, script: AXE });
    await page.setViewportSize(size);
    const picture = async (part: string) => {
      if (PICTURES !== undefined)
        await page.screenshot({ path: join(PICTURES, `${name.replaceAll(/\W+/g, '-')}-${part}.png`) });
    };
    await picture('top');
    await page.evaluate(
      `for (const one of document.querySelectorAll('#createChatCompletion details')) one.open = true`,
    );
    const findings = await page.evaluate(
      `axe.run().then(({ violations }) => violations.map(({ id, nodes }) => id + ': ' + nodes.map(({ target }) => target).join(' ').slice(0, 300)))`,
    );
    expect(findings).toEqual([]);
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(size.width);
    for (const id of ['createChatCompletion', 'example.createChatCompletion.tee', 'errors', 'schema.Attestation']) {
      await page.goto(`${stage.service.gateway.url}/docs#${id}`);
      const seen = await page.locator(`[id="${id}"]`).boundingBox();
      expect(seen?.y, id).toBeLessThan(size.height / 2);
      await picture(id);
    }
    expect(complaints).toEqual([]);
    await close();
  });

  test('has no script, under a policy that allows none, and its style is applied', async () => {
    const { page, close } = await open();
    const policy = (await page.reload())?.headers()['content-security-policy'] ?? '';
    expect(policy).toContain("default-src 'none'");
    expect(policy).not.toMatch(/script-src|unsafe/);
    expect(await page.locator('script').count()).toBe(0);
    // The style is applied: its hash is the one that the policy names.
    expect(await page.evaluate(`getComputedStyle(document.querySelector('nav ul')).listStyleType`)).toBe('none');
    await close();
  });
});
