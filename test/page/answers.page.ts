// What an answer may hold, and how it is shown: Markdown, reasoning, refusals, tool calls, long texts.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { chatStream, DONE, event, finish, stream } from '../support/backend.ts';
import { missing, openStage, type Stage, say, unfold, verdict } from './stage.ts';

const piece = (delta: Readonly<Record<string, unknown>>) =>
  event({
    id: 'c',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'scripted',
    choices: [{ index: 0, delta, finish_reason: null }],
  });

describe.skipIf(missing !== '')(`answers${missing}`, () => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await openStage();
  });
  afterAll(() => stage?.close());

  test('Markdown is shown as elements, and nothing of it is loaded or run', async () => {
    const text = [
      '# A heading\n\nSome **strong** and *slanted* `code`.\n\n',
      '- one\n- two\n  1. nested\n- [x] done\n\n> quoted\n\n```js\nconst a = "<b>";\n```\n\n',
      '| a | b |\n|---|--:|\n| 1 | 2 |\n\n---\n\n',
      '[a link](https://example.com/x) [not one](javascript:alert(1)) ![a picture](https://example.com/p.png)\n\n',
      '<b onclick="globalThis.hit=1">markup</b> &amp; ~~gone~~',
    ];
    stage.service.backend.script = chatStream(text, 5);
    const { page, complaints, strangers, close } = await stage.visit();
    await say(page, 'Show all');
    const answer = page.locator('.answer');
    for (const one of ['h3', 'strong', 'em', 'ul > li', 'ol > li', 'blockquote', 'pre code', 'th', 'td', 'hr', 'del'])
      expect(await answer.locator(one).count(), one).toBeGreaterThan(0);
    expect(await answer.locator('pre code').textContent()).toBe('const a = "<b>";');
    expect(
      await answer
        .locator('a')
        .evaluateAll((all) => all.map((one) => [one.getAttribute('href'), one.getAttribute('rel')])),
    ).toEqual([
      ['https://example.com/x', 'noopener noreferrer nofollow'],
      ['https://example.com/p.png', 'noopener noreferrer nofollow'],
    ]);
    expect(await answer.locator('img, b').count()).toBe(0);
    expect(await answer.textContent()).toContain('<b onclick="globalThis.hit=1">markup</b>');
    expect([complaints, strangers]).toEqual([[], []]);
    await verdict(page, 'simulated');
    await close();
  });

  test('an answer, its code, its proof and its request can be copied', async () => {
    stage.service.backend.script = chatStream(["Don't:\n\n```sh\n", 'rm -r x\n```\n']);
    const { page, close } = await stage.visit();
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    const copied = async (label: string) => {
      await page.click(`button:text-is("${label}")`);
      await page.locator('button:text-is("Copied")').waitFor();
      const text = await page.evaluate('navigator.clipboard.readText()');
      await page.locator(`button:text-is("${label}")`).waitFor();
      return String(text);
    };
    await say(page, "What's not to be done?");
    expect(await copied('Copy answer')).toBe("Don't:\n\n```sh\nrm -r x\n```\n");
    expect(await copied('Copy code')).toBe('rm -r x');
    await unfold(page);
    await page.click('.more > summary');
    expect(Object.keys(JSON.parse(await copied('Copy the attestation')))).toEqual(
      expect.arrayContaining(['raw', 'nonce', 'token']),
    );
    expect(await copied('Copy as curl')).toMatch(
      /^curl -sN http:\S+\/v1\/chat\/completions .*'\{"model".*What'\\''s not/,
    );
    await close();
  });

  test('reasoning, a refusal and a tool call are shown, and proven with the rest', async () => {
    stage.service.backend.script = stream([
      piece({ role: 'assistant', content: '' }),
      piece({ reasoning_content: 'First ' }),
      piece({ reasoning_content: 'think.' }),
      piece({
        tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: { name: 'weather', arguments: '' } }],
      }),
      piece({ tool_calls: [{ index: 0, function: { arguments: '{"city":"Ulm"}' } }] }),
      piece({ refusal: 'I will ' }),
      piece({ refusal: 'not.' }),
      finish(),
      DONE,
    ]);
    const { page, close } = await stage.visit();
    await say(page, 'Weather?');
    expect(await page.textContent('.thoughts')).toBe('First think.');
    expect(await page.textContent('.tool-call')).toContain('weather{"city":"Ulm"}');
    expect(await page.textContent('.refusal')).toBe('The model refused: I will not.');
    await verdict(page, 'simulated');
    await close();
  });

  test('asks again in the place of the last answer', async () => {
    stage.service.backend.script = chatStream(['One.']);
    const { page, close } = await stage.visit();
    await say(page, 'First');
    await say(page, 'Second');
    stage.service.backend.script = chatStream(['Two.']);
    expect(await page.locator('.again:visible').count()).toBe(1);
    await page.click('.again:visible');
    await page.locator('.answer', { hasText: 'Two.' }).waitFor();
    await page.locator('.turn').nth(1).locator('.proof[data-complete]').waitFor();
    expect(await page.locator('.turn').count()).toBe(2);
    const { messages } = JSON.parse(stage.service.backend.seen.at(-1)?.body ?? '');
    expect(messages.map(({ content }: { content: string }) => content)).toEqual(['First', 'One.', 'Second']);
    await close();
  });

  test('a visitor who reads further up is left there while an answer goes on', async () => {
    const lines = Array.from({ length: 120 }, (_, i) => `Line ${i}.\n\n`);
    stage.service.backend.script = chatStream(lines, 15);
    const { page, close } = await stage.visit();
    await page.fill('#message', 'Long');
    await page.press('#message', 'Enter');
    await page.locator('.answer', { hasText: 'Line 40.' }).waitFor();
    await page.evaluate(`document.querySelector('.answer p').scrollIntoView({ block: 'start' })`);
    const before = await page.evaluate('scrollY');
    await page.locator('.proof[data-complete]').waitFor({ timeout: 20_000 });
    expect(await page.evaluate('scrollY')).toBe(before);
    expect(await page.locator('.answer p').count()).toBe(120);
    await close();
  });
});
