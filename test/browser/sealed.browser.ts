// The sealed fetch in a real browser, on a page of another origin than the gateway's: sealed, streamed, proven, and refused.
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { createSimulatedCpu } from '../../demo/twin/cpu.ts';
import { chatStream } from '../support/backend.ts';
import { type Folder, type Service, startService, temporaryFolder } from '../support/harness.ts';
import { currentKeys } from '../support/sealed-client.ts';
import { CHROMIUM_ARGS } from './page.ts';

const found = inject('chromium');
const missing = 'missing' in found ? `, SKIPPED without ${found.missing}` : '';

const PAGE = `
import { sealedFetch } from './verify/clients/sealed.ts';
import { verifyingFetch } from './verify/clients/fetch.ts';
globalThis.ask = async (url, simulatedRoot, minLevel) => {
  const levels = [];
  const options = { simulatedRoot, policy: { minLevel } };
  const sealed = sealedFetch({ ...options, url, padding: true, onSession: ({ level }) => levels.push(level) });
  const send = verifyingFetch({ ...options, fetch: sealed, onVerified: ({ level }) => levels.push(level) });
  const body = JSON.stringify({ model: 'm', stream: true, messages: [{ role: 'user', content: 'canary-prompt' }] });
  const headers = { 'content-type': 'application/json', authorization: 'Bearer canary-key' };
  const response = await send(url + '/v1/chat/completions', { method: 'POST', headers, body });
  const chunks = [];
  for (const reader = response.body.getReader();;) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(new TextDecoder().decode(value));
  }
  return { status: response.status, levels, chunks };
};
`;

describe.skipIf(missing !== '')(`the sealed fetch in Chromium${missing}`, () => {
  let folder: Folder;
  let service: Service;
  let server: Server;
  let browser: Browser;
  let page: Page;
  let simulatedRoot: string;
  const sent: string[] = [];

  beforeAll(async () => {
    const { outputFiles } = await build({
      stdin: { contents: PAGE, resolveDir: fileURLToPath(new URL('../..', import.meta.url)), loader: 'ts' },
      bundle: true,
      format: 'esm',
      platform: 'browser',
      target: 'es2022',
      write: false,
    });
    server = createServer((request, response) => {
      const isScript = request.url === '/page.js';
      response.setHeader('content-type', isScript ? 'text/javascript' : 'text/html');
      response.end(isScript ? outputFiles[0]?.text : '<!doctype html><script type="module" src="/page.js"></script>');
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    folder = temporaryFolder();
    const collector = await createSimulatedCpu({ type: 'SEV_SNP', rootDir: folder.path });
    const env = { SEALED: 'required', CORS_ORIGINS: origin };
    service = await startService(env, { cpu: { collector, required: true } });
    simulatedRoot = (service.sidecar.attester.simulated?.root ?? '') + (collector.simulated?.root ?? '');
    await currentKeys(service.gateway.url);
    browser = await chromium.launch({ executablePath: 'path' in found ? found.path : '', args: CHROMIUM_ARGS });
    page = await browser.newPage();
    page.on('request', (request) => {
      sent.push(
        `${request.url()} ${JSON.stringify(request.headers())} ${request.postDataBuffer()?.toString('latin1')}`,
      );
    });
    await page.goto(origin);
    await page.waitForFunction('typeof globalThis.ask === "function"', undefined, { timeout: 20_000 });
  });
  afterAll(async () => {
    await browser?.close();
    await service?.close();
    folder?.remove();
    await new Promise((resolve) => server.close(resolve));
  });

  const ask = (minLevel: string) =>
    page.evaluate(
      `globalThis.ask(${JSON.stringify(service.gateway.url)}, ${JSON.stringify(simulatedRoot)}, ${JSON.stringify(minLevel)})`,
    ) as Promise<{ status: number; levels: string[]; chunks: string[] }>;

  test('seals, and is handed a proven stream as it comes', async () => {
    service.backend.script = chatStream(['Hel', 'lo.'], 50);
    const { status, levels, chunks } = await ask('none');
    expect([status, levels]).toEqual([200, ['none', 'none']]);
    expect(chunks.length).toBeGreaterThan(2);
    expect(chunks.join('')).toMatch(/"Hel".*"lo\.".*"attestation".*\[DONE\]/s);
    expect(service.backend.seen.at(-1)?.body).toContain('canary-prompt');
    expect(sent.some((one) => one.includes('/ohttp'))).toBe(true);
    for (const one of sent) for (const canary of ['canary', 'completions']) expect(one).not.toContain(canary);
  });

  test('sends nothing to a machine of a level that is too low', async () => {
    service.backend.seen.length = 0;
    const { status, chunks } = await ask('measured');
    expect([status, JSON.parse(chunks.join('')).error.code]).toEqual([400, 'level_too_low']);
    expect(service.backend.seen).toHaveLength(0);
  });
});
