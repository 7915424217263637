// The documentation's site, built and opened in Chromium: it asks nobody but its own server, fits a phone, and has no finding of axe.
import { spawnSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { extname, join, normalize } from 'node:path';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { CHROMIUM_ARGS } from '../browser/page.ts';
import { pages, ROOT } from './markdown.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const SITE = join(ROOT, 'build/site');
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.json': 'application/json',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.jpg': 'image/jpeg',
};
const DESKTOP = { viewport: { width: 1280, height: 800 } };
const PHONE = { viewport: { width: 360, height: 740 } };

const found = inject('chromium');
const missing = 'missing' in found ? `, SKIPPED without ${found.missing}` : '';

/** Any static web server would do. */
function serve(): Promise<Server> {
  const server = createServer((request, response) => {
    const path = normalize(decodeURI(new URL(request.url ?? '/', 'http://site').pathname)).replace(
      /\/$/,
      '/index.html',
    );
    try {
      const body = readFileSync(join(SITE, path));
      response.writeHead(200, { 'content-type': TYPES[extname(path)] ?? 'application/octet-stream' }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server)));
}

interface Visit {
  readonly page: Page;
  /** What went wrong: errors of the page, answers other than 200, requests to anybody else. */
  readonly complaints: string[];
  close(): Promise<void>;
}

describe.skipIf(missing !== '')(`the site${missing}`, () => {
  let server: Server;
  let browser: Browser;
  let url: string;

  beforeAll(async () => {
    const { status, stderr } = spawnSync(process.execPath, [join(ROOT, 'scripts/make.ts'), 'site'], {
      encoding: 'utf8',
    });
    expect(status, stderr).toBe(0);
    server = await serve();
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    browser = await chromium.launch({ executablePath: 'path' in found ? found.path : '', args: [...CHROMIUM_ARGS] });
  });
  afterAll(async () => {
    await browser?.close();
    server?.closeAllConnections();
    server?.close();
  });

  async function open(path: string, options: BrowserContextOptions = DESKTOP): Promise<Visit> {
    const context = await browser.newContext({ reducedMotion: 'reduce', ...options });
    const page = await context.newPage();
    const complaints: string[] = [];
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
    page.on('request', (request) => {
      if (!/^(data|blob):/.test(request.url()) && new URL(request.url()).origin !== url) complaints.push(request.url());
    });
    page.on(
      'response',
      (response) => response.status() !== 200 && complaints.push(`${response.status()} ${response.url()}`),
    );
    await page.goto(`${url}${path}`, { waitUntil: 'networkidle' });
    return { page, complaints, close: () => context.close() };
  }

  // READMEs are read in the repository alone.
  const built = pages()
    .filter((page) => !page.endsWith('/README.md'))
    .map((page) => page.replace(/^docs/, '').replace(/(index)?\.md$/, (end) => (end === '.md' ? '.html' : '')));

  test('has a page for each of docs/, and each in the sidebar but the first', async () => {
    expect(globSync('**/*.html', { cwd: SITE }).filter((name) => name !== '404.html')).toHaveLength(built.length);
    const { page, close } = await open('/quickstart.html');
    const links = await page
      .locator('.VPSidebar a')
      .evaluateAll((all) => all.map((one) => one.getAttribute('href') ?? ''));
    expect([...links, '/'].sort()).toEqual([...built].sort());
    await close();
  });

  test.each(built)('%s opens without a complaint, loads all its pictures, and fits a phone', async (path) => {
    for (const options of [DESKTOP, PHONE]) {
      const { page, complaints, close } = await open(path, options);
      expect(await page.title()).toContain('Countersign');
      const broken = await page.evaluate(
        '[...document.images].filter(({ naturalWidth }) => naturalWidth === 0).map(({ src }) => src)',
      );
      expect(broken).toEqual([]);
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(options.viewport.width);
      expect(complaints).toEqual([]);
      await close();
    }
  });

  test('finds words in itself, and asks nobody else for them', async () => {
    const { page, complaints, close } = await open('/');
    await page.locator('.VPNavBarSearch button').click();
    await page.locator('#localsearch-input').fill('nonce');
    await page.locator('.VPLocalSearchBox .result').first().waitFor();
    expect(await page.locator('.VPLocalSearchBox .result').count()).toBeGreaterThan(2);
    expect(complaints).toEqual([]);
    await close();
  });

  test.each([
    ['/', 'light', DESKTOP],
    ['/', 'dark', PHONE],
    ['/quickstart.html', 'light', DESKTOP],
    ['/quickstart.html', 'dark', DESKTOP],
    ['/quickstart.html', 'light', PHONE],
    ['/quickstart.html', 'dark', PHONE],
  ] as const)('%s, %s: has no finding of axe', async (path, colorScheme, options) => {
    const { page, close } = await open(path, { ...options, colorScheme });
    await page.evaluate(AXE);
    const seen = (await page.evaluate(`axe.run().then(({ violations }) => violations.map(({ id, nodes }) =>
      id + ': ' + nodes.map(({ target, any }) => target + ' ' + any.map(({ message }) => message)).join('; ').slice(0, 600)))`)) as string[];
    expect(seen).toEqual([]);
    await close();
  });
});
