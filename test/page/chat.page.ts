// Chat with proofs: streamed, checked in the browser, tampered with, taken along.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { appraiseAttestation } from '../../verify/index.ts';
import { chatStream, event } from '../support/backend.ts';
import { startProcess } from '../support/process.ts';
import { checks, missing, openStage, type Stage, say, unfold, verdict } from './stage.ts';

const EVERY = [
  ...['form', 'raw_hash', 'raw_members', 'expected_exchange', 'token_shape', 'token_nonce', 'token_result'],
  ...['token_digests', 'token_signature', 'report_form', 'report_nonce', 'report_signature', 'report_chain'],
  ...['report_fwid', 'revocation', 'reference_values', 'token_report_match', 'device_mode', 'topology', 'policy'],
];

describe.skipIf(missing !== '')(`a chat${missing}`, () => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await openStage();
    stage.service.backend.script = chatStream(['Lanterns ', 'drift ', 'home.'], 20);
  });
  afterAll(() => stage?.close());

  test('asks with tee, shows the words, and checks the proof in the browser', async () => {
    const { page, complaints, strangers, requests, close } = await stage.visit();
    await say(page, 'Hello there');
    expect(await page.textContent('.answer')).toBe('Lanterns drift home.');
    await verdict(page, 'simulated');
    expect((await checks(page, 'pass')).length + (await checks(page, 'skip')).length).toBe(EVERY.length);
    expect(await checks(page, 'fail')).toEqual([]);
    const row = page.locator('[data-check=expected_exchange]');
    expect(await row.textContent()).toContain('raw holds the request, the 6 events of the stream, byte for byte');
    const sent = JSON.parse(stage.service.backend.seen.at(-1)?.body ?? '');
    expect(sent).toEqual({ model: 'scripted', messages: [{ role: 'user', content: 'Hello there' }], stream: true });
    expect(requests.filter((one) => /verify|collateral/.test(one))).toEqual([]);
    expect([complaints, strangers]).toEqual([[], []]);
    await close();
  });

  test('keeps the conversation, each proof in one line, until a new chat begins', async () => {
    const { page, close } = await stage.visit();
    await say(page, 'One');
    await say(page, 'Two');
    const { messages } = JSON.parse(stage.service.backend.seen.at(-1)?.body ?? '');
    expect(messages.map(({ role, content }: { role: string; content: string }) => `${role}: ${content}`)).toEqual([
      'user: One',
      'assistant: Lanterns drift home.',
      'user: Two',
    ]);
    await unfold(page);
    await say(page, 'Three');
    expect(await page.locator('.card[open]').count()).toBe(0);
    const folded = await page.locator('.proof').first().boundingBox();
    expect(folded?.height).toBeLessThan(48);
    expect(await page.locator('.verdict-title').allTextContents()).toEqual(Array(3).fill('Demo proof'));
    await page.click('#new-chat');
    expect(await page.locator('.turn').count()).toBe(0);
    expect(await page.locator('#new-chat').isVisible()).toBe(false);
    await say(page, 'Four');
    expect(JSON.parse(stage.service.backend.seen.at(-1)?.body ?? '').messages).toHaveLength(1);
    await close();
  });

  test('a link says first that it holds the whole conversation, and this answer or a file can be had instead', async () => {
    const { page, close } = await stage.visit();
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await say(page, 'One');
    await say(page, 'Two');
    await unfold(page);
    await page.click('.card[open] >> text=Copy link');
    await page.locator('.share:visible', { hasText: 'all 4 messages, the earlier ones too' }).waitFor();
    expect(await page.textContent('.share:visible')).toMatch(/It is \d+ KB long\. Everybody who has the link/);
    await page.click('.share:visible >> text=Copy only this answer');
    await page.locator('button:text-is("Copied")').waitFor();
    expect(await page.evaluate('navigator.clipboard.readText()')).toBe('Lanterns drift home.');
    const [file] = await Promise.all([
      page.waitForEvent('download'),
      page.click('.share:visible >> text=Download a file instead'),
    ]);
    expect(JSON.parse(readFileSync(await file.path(), 'utf8'))).toHaveProperty('raw');
    await page.click('.share:visible >> text=Copy the whole link');
    await expect.poll(() => page.evaluate('navigator.clipboard.readText()')).toContain('#proof=');
    await close();
  });

  test('the question and the start of its answer stay in view, the composer at the bottom', async () => {
    const { page, close } = await stage.visit();
    const { script } = stage.service.backend;
    stage.service.backend.script = chatStream(Array.from({ length: 60 }, (_, i) => `Line ${i}.\n\n`));
    await say(page, 'One');
    await say(page, 'Two');
    const { asked, answer, composer } = (await page.evaluate(`({
      asked: [...document.querySelectorAll('.asked')].at(-1).getBoundingClientRect().top,
      answer: [...document.querySelectorAll('.answer')].at(-1).getBoundingClientRect().top,
      composer: innerHeight - document.querySelector('#composer').getBoundingClientRect().bottom,
    })`)) as Record<string, number>;
    expect(asked).toBeGreaterThan(40);
    expect(answer).toBeLessThan(200);
    expect(composer).toBe(0);
    stage.service.backend.script = script;
    await close();
  });

  test('shows the verdict within 200 ms of the end of the answer, and every check behind it', async () => {
    const { page, close } = await stage.visit();
    await say(page, 'Quickly');
    const took_ms = (await page.evaluate(`performance.measure('', 'answer', 'verdict').duration`)) as number;
    console.log(`from the end of the answer to its verdict: ${took_ms.toFixed(0)} ms`);
    expect(took_ms).toBeLessThan(1_000);
    expect(
      await page.locator('[data-check]').evaluateAll((rows) => rows.map((row) => row.getAttribute('data-check'))),
    ).toEqual(expect.arrayContaining(EVERY));
    await close();
  });

  test('says simulated in the band, in the verdict, at the device, and in what is not proven', async () => {
    const { page, close } = await stage.visit();
    expect(await page.locator('#simulated').isVisible()).toBe(true);
    await say(page, 'Hello');
    await unfold(page);
    expect(await page.textContent('.card')).toMatch(/Demo: intact, but no real GPU.*nothing about hardware/s);
    expect(await page.textContent('[data-claim="Who signed"]')).toContain('A simulator in software, not a GPU');
    expect(await page.locator('.ladder [aria-current=step]').textContent()).toContain('Simulated');
    expect(await page.textContent('.not-proven')).toContain('Anything about hardware');
    expect(await page.textContent('.facts')).toContain('Device (simulated)');
    await page.mouse.wheel(0, 3000);
    await page.waitForTimeout(200);
    expect(await page.locator('#simulated').evaluate((band) => band.getBoundingClientRect().top)).toBe(0);
    await close();
  });

  test.each([
    ['the signed text', ['raw_hash', 'expected_exchange']],
    ['the nonce', ['raw_hash', 'token_nonce', 'report_nonce']],
    ['the token', ['token_signature']],
    ["the GPU's report", ['report_nonce', 'report_signature']],
    ['its certificate', ['report_chain']],
  ])('a changed byte of %s turns %j red, and undo makes it good', async (part, failing) => {
    const { page, complaints, close } = await stage.visit();
    await say(page, 'Hello');
    const before = await checks(page, 'pass');
    await unfold(page);
    await page.click('.more > summary');
    await page.click('.tamper > summary');
    await page.check(`.tamper label:has-text("${part}") input`);
    await page.click('text=Change this byte');
    await verdict(page, 'invalid');
    const failed = await checks(page, 'fail');
    for (const name of failing) expect(failed).toContain(name);
    expect(await page.textContent('.verdict-title')).toBe('Not valid');
    expect(await page.textContent('.tamper .said')).toMatch(/^Byte \d+ of .+ changed from .+ to .+\. “.+” noticed\.$/);
    await page.click('.tamper button:text-is("Undo")');
    await verdict(page, 'simulated');
    expect(await checks(page, 'pass')).toEqual(before);
    expect(complaints).toEqual([]);
    await close();
  });

  test('any byte can be chosen, and it is shown before it is changed', async () => {
    const { page, close } = await stage.visit();
    await say(page, 'Hello');
    await unfold(page);
    await page.click('.more > summary');
    await page.click('.tamper > summary');
    await page.fill('.tamper input[type=number]', '2');
    expect(await page.textContent('.window >> nth=0')).toContain('{"request"');
    expect(await page.textContent('.window >> nth=1')).toContain('{"sequest"');
    await page.click('text=Change this byte');
    await verdict(page, 'invalid');
    expect(await checks(page, 'fail')).toContain('raw_members');
    await close();
  });

  test('shows request and response as they were hashed, with the number that comes out', async () => {
    const { page, close } = await stage.visit();
    await say(page, 'Hello');
    await unfold(page);
    await page.click('.more > summary');
    await page.click('.exchange > summary');
    const request =
      '{"model":"scripted","messages":[{"role":"user","content":"Hello"}],"stream":true,"tee":{"compact":true}}';
    expect(await page.textContent('.pane.request pre')).toBe(request);
    expect(JSON.parse((await page.textContent('.pane.response pre')) ?? '').choices[0].message.content).toBe(
      'Lanterns drift home.',
    );
    const hashes = await page.locator('.hash').allTextContents();
    expect(hashes[0]).toMatch(/^[0-9a-f]{64}$/);
    expect(hashes[1]).toBe(hashes[0]);
    await page.click('.exchange .inner summary');
    expect(await page.textContent('.exchange .inner pre')).toMatch(/"finish_reason":"stop".*"attestation":\{"raw":/);
    await close();
  });

  test('what is downloaded is what the command line finds valid', async () => {
    const { page, close } = await stage.visit();
    await say(page, 'Keep this');
    await unfold(page);
    await page.click('.more > summary');
    const folder = stage.service.folder.path;
    const save = async (label: string) => {
      const [download] = await Promise.all([page.waitForEvent('download'), page.click(`.keep >> text="${label}"`)]);
      const path = join(folder, download.suggestedFilename());
      await download.saveAs(path);
      return path;
    };
    const stream = await save('the stream');
    const request = await save('the request');
    const alone = await save('Download the attestation');
    const root = join(folder, 'simulated-root', 'root.pem');
    const cli = startProcess('auditor/main.ts', [
      'verify',
      stream,
      '--request',
      request,
      '--allow-simulated',
      root,
      '--offline',
    ]);
    expect((await cli.exited).code, cli.output()).toBe(0);
    expect(cli.output()).toContain('raw holds the request, the 6 events of the stream, byte for byte');
    const options = { simulatedRoot: readFileSync(root, 'utf8') };
    expect((await appraiseAttestation(readFileSync(alone, 'utf8'), options)).valid).toBe(true);
    await close();
  });

  test('an answer is text, whatever is in it', async () => {
    const nasty = '<img src=x onerror="globalThis.hit=1"><script>globalThis.hit=1</script>';
    stage.service.backend.script = chatStream([nasty]);
    const { page, complaints, close } = await stage.visit();
    await say(page, nasty);
    expect(await page.textContent('.answer')).toBe(nasty);
    expect(await page.locator('.turn img, .turn script').count()).toBe(0);
    expect(await page.evaluate('typeof globalThis.hit')).toBe('undefined');
    expect(complaints).toEqual([]);
    await close();
  });

  test('a backend that answers whole is proven too', async () => {
    stage.service.backend.script = (_request, response) => {
      const body =
        '{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Whole."},"finish_reason":"stop"}]}';
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': body.length }).end(body);
    };
    const { page, close } = await stage.visit();
    await say(page, 'Hello');
    await verdict(page, 'simulated');
    expect(await page.textContent('.answer')).toBe('Whole.');
    expect(await page.textContent('[data-check=expected_exchange]')).toContain('the request, the response');
    await close();
  });

  test('a long answer is shown and proven without holding up the page', async () => {
    const words = Array.from({ length: 20_000 }, (_, i) => `word${i} `);
    stage.service.backend.script = chatStream([words.slice(0, 10_000).join(''), ...words.slice(10_000)]);
    const { page, close } = await stage.visit();
    const began = performance.now();
    await say(page, 'Everything');
    console.log(
      `10,003 events, ${words.join('').length} characters: shown and proven in ${Math.round(performance.now() - began)} ms`,
    );
    await verdict(page, 'simulated');
    expect((await page.textContent('.answer'))?.trim()).toBe(words.join('').trim());
    expect(await page.textContent('[data-check=expected_exchange]')).toMatch(/the 10\d{3} events/);
    await close();
  });

  test('can be used with only a keyboard', async () => {
    stage.service.backend.script = chatStream(['Yes.']);
    const { page, close } = await stage.visit();
    await tabTo(page, '#message');
    await page.keyboard.type('By keyboard');
    await page.keyboard.press('Enter');
    await page.locator('.proof[data-complete]').waitFor();
    await tabTo(page, '.card > .verdict', 'Shift+Tab');
    await page.keyboard.press('Enter');
    await tabTo(page, '.card > .actions button');
    await page.keyboard.press('Enter');
    expect(await page.evaluate('document.activeElement.className')).toBe('source');
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('Enter');
    await verdict(page, 'invalid');
    expect(await page.textContent('.actions .said')).toMatch(
      /^You changed “y” to “z” in the question\. Noticed by “The text/,
    );
    await page.keyboard.press('Enter');
    await verdict(page, 'simulated');
    await tabTo(page, '.actions button:nth-of-type(3)');
    await page.keyboard.press('Enter');
    expect(await page.textContent('.asked')).toBe('By keyboard');
    await tabTo(page, '.more > summary');
    await page.keyboard.press('Enter');
    await tabTo(page, '.tamper > summary');
    await page.keyboard.press('Enter');
    await tabTo(page, '.tamper input[type=radio]');
    await page.keyboard.press('ArrowRight');
    await tabTo(page, '.tamper button');
    await page.keyboard.press('Enter');
    await verdict(page, 'invalid');
    expect(await page.textContent('.tamper .said')).toContain('of the nonce changed');
    await tabTo(page, '.tamper button:nth-of-type(2)');
    await page.keyboard.press('Space');
    await verdict(page, 'simulated');
    expect(await page.textContent('#status')).toContain('Demo: intact');
    await close();
  });

  test('stops when asked to, and says that what came is unproven', async () => {
    stage.service.backend.script = async (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(
        event({
          id: 'c',
          object: 'chat.completion.chunk',
          choices: [{ index: 0, delta: { content: 'Half' }, finish_reason: null }],
        }),
      );
    };
    const { page, close } = await stage.visit();
    await page.fill('#message', 'Go on');
    await page.press('#message', 'Enter');
    await page.locator('.answer:has-text("Half")').waitFor();
    await page.click('#stop');
    await page.locator('.trouble[data-code=stopped]').waitFor();
    expect(await page.textContent('.trouble')).toContain('do not rely on it');
    await close();
  });
});

/** Presses Tab until the element has the focus. */
async function tabTo(page: Page, selector: string, key = 'Tab'): Promise<void> {
  for (let i = 0; i < 60; i++) {
    if (await page.evaluate(`document.activeElement?.matches(${JSON.stringify(selector)}) ?? false`)) return;
    await page.keyboard.press(key);
  }
  throw new Error(`Tab does not reach ${selector}`);
}
