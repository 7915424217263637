// Compact proofs on the page: it asks for its own, fetches the bundle once, shows and saves what is whole, and fails closed.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createSimulatedCpu } from '../../demo/twin/cpu.ts';
import { appraiseAttestation } from '../../verify/index.ts';
import { chatAnswer, chatStream } from '../support/backend.ts';
import { CHAT, chat } from '../support/client.ts';
import { temporaryFolder } from '../support/harness.ts';
import { missing, openStage, type Stage, say, unfold, verdict } from './stage.ts';

const BUNDLES = 'GET /v1/attestation/bundles/';

describe.skipIf(missing !== '')(`a compact proof${missing}`, () => {
  const folder = temporaryFolder();
  let stage: Stage;
  let simulatedRoot: string;
  let compact: { readonly text: string; readonly bundle: string };
  beforeAll(async () => {
    const collector = await createSimulatedCpu({ type: 'TDX', rootDir: folder.path });
    stage = await openStage({}, { cpu: { collector, required: true } });
    const { service } = stage;
    simulatedRoot = (service.sidecar.attester.simulated?.root ?? '') + (collector.simulated?.root ?? '');
    service.backend.script = chatAnswer('Kept.');
    const { text } = await chat(service.gateway.url, { ...CHAT, tee: { batch: true, compact: true } });
    const sha256 = JSON.parse(text).attestation.bundle;
    const got = await fetch(`${service.gateway.url}/v1/attestation/bundles/${sha256}`);
    compact = { text, bundle: await got.text() };
    service.backend.script = chatStream(['Lanterns ', 'drift.'], 20);
  });
  afterAll(async () => {
    await stage?.close();
    folder.remove();
  });

  test('answers of one session share a bundle, and what is downloaded stands for itself', async () => {
    const { page, requests, complaints, close } = await stage.visit();
    const answers: number[] = [];
    page.on('requestfinished', async (request) => {
      if (request.url().endsWith('/v1/chat/completions')) answers.push((await request.sizes()).responseBodySize);
    });
    for (const question of ['Hello', 'Again']) {
      await say(page, question);
      await verdict(page, 'simulated');
    }
    expect(requests.filter((one) => one.startsWith(BUNDLES))).toHaveLength(1);
    await unfold(page);
    const { page: last } = { page: page.locator('.turn').last() };
    await last.locator('.more > summary').click();
    for (const label of ['Download the attestation', 'the stream']) {
      const saved = page.waitForEvent('download');
      await last.locator(`.keep >> text="${label}"`).click();
      const path = join(folder.path, label);
      await (await saved).saveAs(path);
      const input = label === 'the stream' ? new Uint8Array(readFileSync(path)) : readFileSync(path, 'utf8');
      expect(await appraiseAttestation(input, { simulatedRoot }), label).toMatchObject({ valid: true });
    }
    expect(complaints).toEqual([]);
    console.log(`bytes of an answer with its compact proof: ${answers.join(', ')}`);
    await close();
  });

  test('without its bundle it is not checked, and with it the next one is', async () => {
    const { page, close } = await stage.visit();
    let away = true;
    await page.route('**/v1/attestation/bundles/*', (route) =>
      away ? route.fulfill({ status: 404, body: '{}' }) : route.continue(),
    );
    await say(page, 'Hello');
    await verdict(page, 'unchecked');
    away = false;
    await say(page, 'Again');
    await verdict(page, 'simulated');
    await close();
  });

  test('another bundle at its address is wrong', async () => {
    const { page, close } = await stage.visit();
    await page.route('**/v1/attestation/bundles/*', (route) => route.fulfill({ body: compact.bundle }));
    await say(page, 'Hello');
    await verdict(page, 'invalid');
    await close();
  });

  test('a file is checked with the service’s bundle, or with one that is dropped when the service has none', async () => {
    const { page, requests, close } = await stage.visit();
    await page.click('#to-check');
    const choose = (...files: readonly (readonly [name: string, text: string])[]) =>
      page.setInputFiles(
        '#file',
        files.map(([name, text]) => ({ name, mimeType: 'application/json', buffer: Buffer.from(text) })),
      );
    await page.route('**/v1/attestation/bundles/*', (route) => route.fulfill({ status: 404, body: '{}' }));
    await choose(['answer.json', compact.text]);
    await verdict(page, 'unchecked');
    await choose(['bundle.json', compact.bundle]);
    await page.locator('#drop-problem', { hasText: 'bundle.json is a bundle' }).waitFor();
    await choose(['answer.json', compact.text]);
    await verdict(page, 'simulated');
    expect(requests.filter((one) => one.startsWith(BUNDLES))).toHaveLength(1);
    await page.reload();
    await page.waitForSelector('html[data-ready=yes]');
    await page.unroute('**/v1/attestation/bundles/*');
    await choose(['answer.json', compact.text]);
    await verdict(page, 'simulated');
    await close();
  });
});
