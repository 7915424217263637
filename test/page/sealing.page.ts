// The switch that encrypts to the attested machine: what leaves the browser, what the page says of it, and what happens when it cannot.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createSimulatedCpu } from '../../demo/twin/cpu.ts';
import { chatStream } from '../support/backend.ts';
import { temporaryFolder } from '../support/harness.ts';
import { missing, openStage, type Stage, say, verdict } from './stage.ts';

const QUESTION = 'CANARY-question-93b1';

describe.skipIf(missing !== '')(`a sealed chat${missing}`, () => {
  const folder = temporaryFolder();
  let stage: Stage;
  let required: Stage;
  beforeAll(async () => {
    const collector = await createSimulatedCpu({ type: 'TDX', rootDir: folder.path });
    const cpu = { collector, required: true };
    writeFileSync(join(folder.path, 'keys'), 'sesame\n');
    stage = await openStage({}, { cpu });
    required = await openStage({ SEALED: 'required', API_KEYS_FILE: join(folder.path, 'keys') }, { cpu });
    for (const one of [stage, required]) one.service.backend.script = chatStream(['Sealed ', 'words.'], 20);
  });
  afterAll(async () => {
    await stage?.close();
    await required?.close();
    folder.remove();
  });

  test('is off at first; switched on, nothing of it leaves the browser in the clear, and its proof is checked as always', async () => {
    const { page, requests, complaints, strangers, close } = await stage.visit();
    const bodies: string[] = [];
    page.on('request', (request) => bodies.push(request.postDataBuffer()?.toString('latin1') ?? ''));
    await page.click('#settings > summary');
    await page.locator('#seal-field').waitFor({ timeout: 10_000 });
    expect(await page.isChecked('#seal')).toBe(false);
    await page.check('#seal');
    await page.locator('#seal-note', { hasText: 'No hardware vouches for the holder of the key' }).waitFor();
    expect(await page.textContent('#seal-note')).toContain('Encrypted, to a machine of level none.');
    const before = requests.length;
    await say(page, QUESTION);
    expect(await page.textContent('.answer')).toBe('Sealed words.');
    await verdict(page, 'simulated');
    expect(await page.textContent('[data-check=expected_exchange]')).toContain('raw holds the request');
    const made = requests.slice(before).filter((one) => !one.startsWith('GET /page/'));
    expect(new Set(made)).toEqual(new Set(['POST /ohttp']));
    expect(bodies.join()).not.toContain(QUESTION);
    expect(JSON.parse(stage.service.backend.seen.at(-1)?.body ?? '').messages[0].content).toBe(QUESTION);
    await page.uncheck('#seal');
    expect(await page.textContent('#seal-note')).toBe('');
    await say(page, 'Plainly');
    expect(requests.at(-1)).not.toBe('POST /ohttp');
    expect(requests).toContain('POST /v1/chat/completions');
    expect([complaints, strangers]).toEqual([[], []]);
    await close();
  });

  test('a gateway that takes only sealed requests is asked so from the start, key inside', async () => {
    const { page, requests, complaints, close } = await required.visit();
    await page.fill('#key', 'sesame');
    await page.keyboard.press('Enter');
    await page.locator('#composer').waitFor();
    await say(page, QUESTION);
    await verdict(page, 'simulated');
    expect(requests.filter((one) => one.includes(' /v1/') && !one.includes('/v1/attestation/session'))).toEqual([]);
    await page.click('#settings > summary');
    expect([await page.isChecked('#seal'), await page.isDisabled('#seal')]).toEqual([true, true]);
    expect(complaints).toEqual([]);
    await close();
  });

  test('a machine that cannot be verified is not sealed to, and nothing is sent', async () => {
    const { page, complaints, close } = await stage.visit();
    await page.route('**/v1/attestation/session**', async (route) => {
      const response = await route.fetch();
      const session = await response.json();
      session.statement = session.statement.replace('"hpke":"', '"hpke":"AAAA');
      await route.fulfill({ response, json: session });
    });
    await page.click('#settings > summary');
    await page.locator('#seal-field').waitFor({ timeout: 10_000 });
    await page.check('#seal');
    await page.locator('#seal-note', { hasText: 'does not verify' }).waitFor();
    const asked = stage.service.backend.seen.length;
    await say(page, QUESTION);
    expect(await page.textContent('.trouble')).toMatch(/does not verify, so nothing was sealed and nothing was sent/);
    expect(stage.service.backend.seen.length).toBe(asked);
    expect(complaints).toEqual([]);
    await close();
  });
});
