// What a visitor sees when something is not there: the sidecar, the key, the backend, the gateway, the proof.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { answer, chatStream, DONE, delta, finish, role, stream } from '../support/backend.ts';
import { startSidecar, temporaryFolder } from '../support/harness.ts';
import { missing, openStage, type Stage, say, verdict } from './stage.ts';

/** The first question for models fails, those after it hang. */
const NO_MODELS = `globalThis.real = fetch;
  let first = true;
  globalThis.fetch = (path, init = {}) => {
    if (path !== '/v1/models') return real(path, init);
    if (first) { first = false; return Promise.reject(new TypeError('no')); }
    return new Promise((_, reject) => init.signal?.addEventListener('abort', () => reject(init.signal.reason)));
  }`;

describe.skipIf(missing !== '')(`errors${missing}`, () => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await openStage({
      limits: { sidecar_wait_ms: 200 },
      ATTEST_TIMEOUT_MS: '1500',
      BACKEND_TIMEOUT_MS: '1500',
      // One test comes from another address than this machine's.
      CORS_ORIGINS: '*',
    });
  });
  afterAll(() => stage?.close());

  test('a backend that breaks off leaves words that are said to be unproven', async () => {
    stage.service.backend.script = stream([role(), delta('Half an '), delta('answer'), null], 50);
    const { page, close } = await stage.visit();
    await say(page, 'Hello');
    expect(await page.textContent('.trouble')).toMatch(/No proof.*What stands above is unproven: do not rely on it/s);
    expect(await page.locator('.proof').count()).toBe(0);
    await close();
  });

  test('an error of the backend is shown in its own words, and trying again asks again', async () => {
    stage.service.backend.script = answer(
      '{"error":{"message":"The model sleeps.","type":"x","param":null,"code":"asleep"}}',
      500,
    );
    const { page, close } = await stage.visit();
    await say(page, 'Hello');
    expect(await page.textContent('.trouble')).toMatch(/500 asleep.*The model sleeps\./s);
    stage.service.backend.script = chatStream(['Awake.']);
    await page.click('button:has-text("Try again")');
    await verdict(page, 'simulated');
    expect(await page.locator('.trouble').count()).toBe(0);
    expect(await page.textContent('.asked')).toContain('Hello');
    await close();
  });

  test('a gateway that wants no key asks for none, though its own was refused by the backend', async () => {
    stage.service.backend.script = answer('{"error":"Unauthorized"}', 401);
    const { page, close } = await stage.visit();
    await say(page, 'Hello');
    expect(await page.textContent('.trouble')).toMatch(/401 invalid_api_key.*must set BACKEND_API_KEY/s);
    expect(await page.textContent('.trouble')).not.toContain('Enter an API key');
    expect(await page.locator('#settings').getAttribute('open')).toBeNull();
    await close();
  });

  test('a stream that ends without its proof is no answer', async () => {
    const { page, close } = await stage.visit();
    const body = role() + delta('Trust me') + finish() + DONE;
    const headers = { 'content-type': 'text/event-stream' };
    await page.route('**/v1/chat/completions', (route) => route.fulfill({ status: 200, headers, body }));
    await say(page, 'Hello');
    expect(await page.textContent('.trouble')).toMatch(/no_attestation.*do not rely on it/s);
    expect(await page.textContent('.trouble')).not.toContain('200');
    await close();
  });

  test('another answer than the one that was signed is caught', async () => {
    stage.service.backend.script = chatStream(['The truth.']);
    const { page, close } = await stage.visit();
    await page.route('**/v1/chat/completions', async (route) => {
      const response = await route.fetch();
      const body = (await response.text()).replace('"content":"The truth."', '"content":"A lie."');
      await route.fulfill({ response, body });
    });
    await say(page, 'Hello');
    expect(await page.textContent('.answer')).toBe('A lie.');
    await verdict(page, 'invalid');
    expect(await page.textContent('[data-status=fail]')).toContain('stream_mismatch');
    await close();
  });

  test('over an open line, where browsers check nothing, it says so and hands over what can be checked elsewhere', async () => {
    stage.service.backend.script = chatStream(['Open.']);
    const { page, close } = await stage.visit({ insecure: true });
    expect(await page.textContent('#state')).toContain('only on pages that come over HTTPS');
    await say(page, 'Hello');
    await verdict(page, 'unchecked');
    expect(await page.textContent('.card')).toContain('The verifier could not run');
    expect(await page.textContent('.keep')).toMatch(
      /(npx @countersign\/verify|npm run -s verify --) .+ --allow-simulated/,
    );
    await close();
  });

  test('while the backend does not even name its models, a message is there to see and to stop', async () => {
    stage.service.backend.script = chatStream(['Later.']);
    const { page, close } = await stage.visit({ script: NO_MODELS });
    await page.fill('#message', 'Hello');
    await page.press('#message', 'Enter');
    await page.click('#stop');
    expect(await page.textContent('.asked')).toContain('Hello');
    expect(await page.textContent('.trouble')).toContain('You stopped this answer');
    await page.evaluate('globalThis.fetch = real');
    await page.click('button:has-text("Try again")');
    await verdict(page, 'simulated');
    await close();
  });

  test('while the GPU signs, the seconds are counted, and its end ends the answer', async () => {
    const other = await openStage({}, { collectionMs: 60_000, drainMs: 1 });
    other.service.backend.script = chatStream(['Signed ', 'late.']);
    const { page, close } = await other.visit();
    await page.fill('#message', 'Hello');
    await page.press('#message', 'Enter');
    const counting = page.locator('.turn .note', { hasText: /^The GPU is signing … \d+ s$/ });
    await counting.waitFor({ timeout: 15_000 });
    const before = await counting.textContent();
    await expect.poll(() => counting.textContent(), { timeout: 3_000 }).not.toBe(before);
    await other.service.sidecar.close();
    await page.locator('.trouble[data-code=attestation_unavailable]').waitFor({ timeout: 4_000 });
    expect(await page.textContent('.trouble')).toMatch(/GPU is away.*What stands above is unproven/s);
    expect(await counting.count()).toBe(0);
    const sidecar = await startSidecar(other.service.folder);
    await page.locator('#state[data-kind=ready]').waitFor({ timeout: 15_000 });
    await page.click('button:has-text("Try again")');
    await verdict(page, 'simulated');
    await close();
    await sidecar.close();
    await other.close();
  });

  // Last of those that need it: it ends the sidecar.
  test('without a sidecar the page says so at once, asks the model nothing, and recovers', async () => {
    stage.service.backend.script = chatStream(['Back.']);
    const { page, close } = await stage.visit();
    await stage.service.sidecar.close();
    const asked = stage.service.backend.seen.length;
    await say(page, 'Hello');
    expect(await page.textContent('.trouble')).toMatch(
      /No proof.*The part that speaks to the GPU is away\..*Try again in a few seconds/s,
    );
    expect(stage.service.backend.seen.length).toBe(asked);
    await page.locator('#state[data-kind=trouble]').waitFor();
    const sidecar = await startSidecar(stage.service.folder);
    await page.waitForTimeout(1500);
    await page.click('button:has-text("Try again")');
    await verdict(page, 'simulated');
    await page.locator('#state[data-kind=ready]').waitFor();
    await close();
    await sidecar.close();
  });

  test('a backend, then a gateway, that is gone is said to be gone', async () => {
    const other = await openStage();
    const { page, close } = await other.visit();
    await other.service.backend.close();
    await say(page, 'Hello');
    expect(await page.textContent('.trouble')).toMatch(/502 backend_unreachable.*the model behind it does not answer/s);
    await other.service.gateway.close();
    await page.click('button:has-text("Try again")');
    await page.locator('.trouble[data-code=gateway_unreachable]').waitFor();
    expect(await page.textContent('.trouble')).toMatch(/gateway_unreachable.*does not answer/s);
    await page.locator('#state', { hasText: 'does not answer' }).waitFor();
    await close();
    await other.close();
  });
});

describe.skipIf(missing !== '')(`API keys${missing}`, () => {
  const folder = temporaryFolder();
  let stage: Stage;
  beforeAll(async () => {
    writeFileSync(join(folder.path, 'keys'), 'sesame\n');
    stage = await openStage({ API_KEYS_FILE: join(folder.path, 'keys') });
  });
  afterAll(async () => {
    await stage?.close();
    folder.remove();
  });

  test('the page asks for a key, keeps it only in memory, and works with it', async () => {
    stage.service.backend.script = chatStream(['Open.']);
    const { page, close } = await stage.visit();
    await page.locator('#key-form').waitFor();
    expect(await page.locator('#composer').isVisible()).toBe(false);
    await page.click('text=Use key');
    expect(await page.textContent('#key-problem')).toBe('Enter the key first.');
    await page.fill('#key', 'wrong');
    await page.keyboard.press('Enter');
    await page.locator('#key-problem', { hasText: 'does not know this key' }).waitFor();
    expect(await page.evaluate('document.activeElement.id')).toBe('key');
    await page.fill('#key', 'sesame');
    await page.keyboard.press('Enter');
    await page.locator('#composer').waitFor();
    expect(await page.evaluate('document.activeElement.id')).toBe('message');
    await say(page, 'Hello');
    await verdict(page, 'simulated');
    expect(await page.evaluate('JSON.stringify([localStorage.length, sessionStorage.length, document.cookie])')).toBe(
      '[0,0,""]',
    );
    // A key that is revoked meanwhile is asked for again, and what was asked can be asked again.
    writeFileSync(join(folder.path, 'keys'), 'open\n');
    await expect
      .poll(
        async () =>
          (await fetch(`${stage.service.gateway.url}/v1/models`, { headers: { authorization: 'Bearer sesame' } }))
            .status,
        { timeout: 10_000 },
      )
      .toBe(401);
    await say(page, 'Again');
    await page.locator('#key-problem', { hasText: 'any more' }).waitFor();
    await page.fill('#key', 'open');
    await page.keyboard.press('Enter');
    await page.click('button:has-text("Try again")');
    await verdict(page, 'simulated');
    await page.reload();
    expect(await page.inputValue('#key')).toBe('');
    await close();
  });
});
