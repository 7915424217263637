// The watch's site in Chromium: a fleet of which one each forges, hangs, has a new device, other software and a wrong canary; and one that is well.
// The test roots stand in the places of makers here, so its pictures are no proof of anything: WATCH_PICTURES names a folder to look at them.
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { extname, join, normalize } from 'node:path';
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { type Fleet, nodesFile, once, sixNodes, startFleet } from '../auditor/watch/stage.ts';
import { CHROMIUM_ARGS } from '../browser/page.ts';
import { missing } from './stage.ts';

const found = inject('chromium');
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const { WATCH_PICTURES } = process.env;
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html',
  '.xml': 'application/atom+xml',
  '.svg': 'image/svg+xml',
};
const LOOKS: readonly (readonly [look: string, width: number, colours: 'light' | 'dark'])[] = [
  ['desktop-light', 1280, 'light'],
  ['desktop-dark', 1280, 'dark'],
  ['phone-light', 390, 'light'],
  ['phone-dark', 390, 'dark'],
];

/** Any static web server would do. */
function serve(folder: string): Promise<Server> {
  const server = createServer((request, response) => {
    const path = normalize(new URL(request.url ?? '/', 'http://site').pathname).replace(/\/$/, '/index.html');
    try {
      const body = readFileSync(join(folder, path));
      response.writeHead(200, { 'content-type': TYPES[extname(path)] ?? 'application/json' }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server)));
}

describe.skipIf(missing !== '')(`the watch's site${missing}`, () => {
  let fleet: Fleet;
  let server: Server;
  let browser: Browser;
  let url: string;

  beforeAll(async () => {
    fleet = await startFleet();
    const { nodes, change } = await sixNodes(fleet);
    const file = nodesFile(fleet.folder.path, nodes, { misses: 2 });
    const out = join(fleet.folder.path, 'out');
    for (let i = 0; i < 6; i++) {
      if (i === 4) change();
      await once(file, join(out, 'six'), fleet.root, { timeout_ms: 1_500 });
    }
    const well = nodesFile(
      fleet.folder.path,
      ['gpu-1', 'gpu-2', 'gpu-3'].map((name) => ({ name, url: fleet.plain.gateway.url })),
    );
    await once(well, join(out, 'well'), fleet.root);
    server = await serve(out);
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    browser = await chromium.launch({ executablePath: 'path' in found ? found.path : '', args: [...CHROMIUM_ARGS] });
  });
  afterAll(async () => {
    await browser?.close();
    server?.closeAllConnections();
    server?.close();
    await fleet?.close();
  });

  async function open(path: string, [, width, colorScheme]: (typeof LOOKS)[number]) {
    const context = await browser.newContext({ viewport: { width, height: width > 400 ? 800 : 844 }, colorScheme });
    const page = await context.newPage();
    const complaints: string[] = [];
    page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
    page.on('request', (request) => new URL(request.url()).origin !== url && complaints.push(request.url()));
    page.on(
      'response',
      (response) => response.status() !== 200 && complaints.push(`${response.status()} ${response.url()}`),
    );
    await page.goto(`${url}${path}`, { waitUntil: 'networkidle' });
    return { page, complaints, context };
  }

  async function picture(page: Page, name: string, fullPage = false): Promise<void> {
    if (WATCH_PICTURES !== undefined) await page.screenshot({ path: join(WATCH_PICTURES, `${name}.png`), fullPage });
  }

  const inView = async (page: Page, words: string) => {
    const box = await page.locator(`text=${words}`).first().boundingBox();
    return box !== null && box.y + box.height <= (page.viewportSize()?.height ?? 0);
  };

  test.each(LOOKS)('says at first sight how the fleet is, and of a red node what is wrong: %s', async (...look) => {
    const { page, complaints, context } = await open('/six/', look);
    expect(await page.textContent('h1')).toContain('2 of 6 nodes proved themselves');
    expect(await page.locator('.node').first().getAttribute('class')).toContain('failed');
    expect(await inView(page, 'proved themselves')).toBe(true);
    expect(await inView(page, 'Another answer was signed')).toBe(true);
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(look[1]);
    await picture(page, look[0]);
    await page.locator('summary').first().click();
    await page.locator('.entries a').first().waitFor();
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(look[1]);
    await page.evaluate('document.querySelectorAll("details").forEach((one) => { one.open = true; })');
    await picture(page, `whole-${look[0]}`, true);
    await page.evaluate(AXE);
    const findings = await page.evaluate(`axe.run().then(({ violations }) => violations.map(({ id, nodes }) =>
      id + ': ' + nodes.map(({ target, any }) => target + ' ' + any.map(({ message }) => message)).join('; ').slice(0, 600)))`);
    expect(findings).toEqual([]);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test.each(LOOKS)('says that all are well: %s', async (...look) => {
    const { page, complaints, context } = await open('/well/', look);
    expect(await page.textContent('h1')).toContain('All 3 nodes proved themselves');
    await picture(page, `well-${look[0]}`);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test('leads to every file that it names', async () => {
    const { page, context } = await open('/six/', ['desktop', 1280, 'light']);
    const links = await page.locator('a').evaluateAll((all) => all.map((one) => one.getAttribute('href') ?? ''));
    expect(links.length).toBeGreaterThan(20);
    for (const link of new Set(links)) expect((await fetch(new URL(link, `${url}/six/`))).status, link).toBe(200);
    await context.close();
  });
});
