// A page in a real Chromium that holds the verifier's bundle, may load nothing else and may connect nowhere.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { transform } from 'esbuild';
import { chromium, type Page } from 'playwright-core';
import { bundleVerifier } from './bundle.ts';

export interface VerifierPage {
  readonly page: Page;
  /** `HeadlessChrome/156.0.0.0`. */
  readonly browser: string;
  /** What the page complained about: errors, refused requests. */
  readonly complaints: readonly string[];
  close(): Promise<void>;
}

/** For a Chromium that asks nothing of anybody. */
export const CHROMIUM_ARGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];
const POLICY = "default-src 'none'; script-src 'self'";
const HTML = `<!doctype html><title>verify</title><script type="module" src="/page.js"></script>`;
const PAGE = `import * as verifier from '/verify.js';
import { appraise } from '/appraise.js';
const { subtle } = crypto;
const verify = subtle.verify.bind(subtle);
globalThis.signatures = 0;
subtle.verify = (...args) => { globalThis.signatures++; return verify(...args); };
globalThis.appraise = (spec) => appraise(verifier, spec);
globalThis.releaseCode = (options, { at, answered = at }) =>
  verifier.verifyRelease(options, { at: new Date(at), answered: new Date(answered) }).then(() => null, ({ code }) => code);
`;

export async function openVerifierPage(executablePath: string): Promise<VerifierPage> {
  const source = readFileSync(fileURLToPath(new URL('appraise.ts', import.meta.url)), 'utf8');
  const { code: appraise } = await transform(source, { loader: 'ts', format: 'esm' });
  const verify = await bundleVerifier();
  const scripts = new Map(Object.entries({ '/verify.js': verify, '/appraise.js': appraise, '/page.js': PAGE }));
  const server = createServer((request, response) => {
    const script = scripts.get(request.url ?? '');
    response.setHeader('content-security-policy', POLICY);
    response.setHeader('content-type', script === undefined ? 'text/html' : 'text/javascript');
    response.end(script ?? HTML);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const browser = await chromium.launch({ executablePath, args: CHROMIUM_ARGS });
  const page = await browser.newPage();
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text());
  });
  await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  await page.waitForFunction('typeof globalThis.appraise === "function"', undefined, { timeout: 20_000 });
  return {
    page,
    browser: `Chromium ${browser.version()}`,
    complaints,
    close: async () => {
      await browser.close();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
