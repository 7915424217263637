// Proofs in addresses: a link to one, and the badge that other sites show.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { chatAnswer } from '../support/backend.ts';
import { CHAT, chat } from '../support/client.ts';
import { copyLink, missing, openStage, type Stage, say, verdict } from './stage.ts';

describe.skipIf(missing !== '')(`a link to a proof${missing}`, () => {
  let stage: Stage;
  let address: string;
  let whole: string;
  beforeAll(async () => {
    stage = await openStage();
    stage.service.backend.script = chatAnswer('Linked.');
    whole = (await chat(stage.service.gateway.url, { ...CHAT, tee: true })).text;
    const { page, close } = await stage.visit();
    await say(page, 'A question to link to');
    address = await copyLink(page);
    await close();
  });
  afterAll(() => stage?.close());

  test('carries the whole proof, and sends none of it', async () => {
    const { page, requests, complaints, close } = await stage.visit();
    const before = requests.length;
    await page.goto(address);
    await verdict(page, 'simulated');
    expect(await page.locator('.bubble').allTextContents()).toEqual(['QuestionA question to link to', 'AnswerLinked.']);
    expect(
      requests
        .slice(before)
        .filter((one) => !one.startsWith('GET /page/') && one !== 'GET /v1/models' && one !== 'GET /'),
    ).toEqual([]);
    console.log(`a link of ${address.length} characters`);
    expect(complaints).toEqual([]);
    await close();
  });

  test('one that is cut off or damaged says so', async () => {
    const { page, complaints, close } = await stage.visit();
    for (const hash of [address.slice(address.indexOf('#'), -40), '#proof=', '#proof=%%%', '#proof=AAAA']) {
      await page.goto(`${stage.service.gateway.url}/${hash}`);
      await page.reload();
      await page.locator('#drop-problem', { hasText: 'cut off or damaged' }).waitFor();
    }
    expect(complaints).toEqual([]);
    await close();
  });

  test('a character of the linked question can be changed beside its verdict', async () => {
    const { page, close } = await stage.visit();
    await page.goto(address);
    await verdict(page, 'simulated');
    await page.click('text=Try tampering');
    await page.locator('.bubble[data-role=user] .source').click({ position: { x: 20, y: 12 } });
    await verdict(page, 'invalid');
    expect(await page.textContent('[data-claim=What]')).toContain('The text was changed after it was signed.');
    await page.click('.card > .actions > button:text-is("Undo")');
    await verdict(page, 'simulated');
    await page.click('text=Done');
    expect(await page.locator('.source').count()).toBe(0);
    await close();
  });

  test('a proof and its request can be brought together, in either order', async () => {
    const { page, close } = await stage.visit();
    await page.click('#to-check');
    const sent = JSON.stringify({ ...CHAT, tee: true });
    const file = (name: string, text: string) => ({ name, mimeType: 'application/json', buffer: Buffer.from(text) });
    for (const files of [
      [file('request.json', sent), file('answer.json', whole)],
      [file('answer.json', whole), file('request.json', sent)],
    ]) {
      await page.setInputFiles('#file', files);
      await page.locator('#checked h2:has-text("answer.json, with request.json")').waitFor();
      await page.locator('[data-check=expected_exchange]', { hasText: 'the request' }).waitFor({ state: 'attached' });
      await verdict(page, 'simulated');
    }
    await page.setInputFiles('#file', [file('answer.json', whole), file('request.json', '{"other":1}')]);
    await verdict(page, 'invalid');
    expect(await page.textContent('.verdict-text')).toContain('not what was sent and received');
    await page.setInputFiles(
      '#file',
      ['a', 'b', 'c'].map((name) => file(name, whole)),
    );
    await page.locator('#drop-problem', { hasText: 'more than one proof' }).waitFor();
    await close();
  });

  test('the badge shows the verdict in a frame of another site, and links to the proof', async () => {
    const badge = address.replace('/#', '/page/badge#');
    const site = createServer((_request, response) => {
      response.setHeader('content-type', 'text/html');
      response.end(
        `<!doctype html><title>x</title><iframe title="proof" src="${badge}" width="600" height="80"></iframe>`,
      );
    });
    await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve));
    const { page, complaints, close } = await stage.visit();
    await page.goto(`http://127.0.0.1:${(site.address() as AddressInfo).port}/`);
    const frame = page.frameLocator('iframe');
    await frame.locator('.badge[data-verdict=simulated]').waitFor();
    expect(await frame.locator('.badge').textContent()).toContain('Demo: intact, but no real GPU');
    expect(await frame.locator('.badge').getAttribute('href')).toBe(address.slice(address.indexOf('/#')));
    expect(complaints).toEqual([]);
    await page.goto(`${stage.service.gateway.url}/page/badge`);
    await page.locator('.badge[data-verdict=foreign]').waitFor();
    await close();
    site.close();
  });

  test('the page itself stands in no frame', async () => {
    const response = await fetch(stage.service.gateway.url);
    expect(response.headers.get('content-security-policy')).toContain("frame-ancestors 'none'");
    const badge = await fetch(`${stage.service.gateway.url}/page/badge`);
    expect(badge.headers.get('content-security-policy')).toContain('frame-ancestors *');
    expect(badge.headers.get('content-security-policy')).toContain("trusted-types 'none'");
    expect((await fetch(`${stage.service.gateway.url}/page/assets/badge.html`)).status).toBe(404);
  });
});
