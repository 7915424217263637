// The drop zone: what was kept is checked in the page, and sent nowhere.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Nonce } from '../../proto/attestation/raw.ts';
import { evidenceCases } from '../nvidia/cases.ts';
import { chatAnswer, chatStream } from '../support/backend.ts';
import { ask, CHAT, chat } from '../support/client.ts';
import { namedStream, responseEvents } from '../support/named-streams.ts';
import { vectorsPresent } from '../support/vectors.ts';
import { AT, batchOf } from '../verify/maker.ts';
import { makeSession } from '../verify/session-maker.ts';
import { checks, missing, openStage, type Stage, type Visit, verdict } from './stage.ts';

describe.skipIf(missing !== '')(`a stored proof${missing}`, () => {
  let stage: Stage;
  let whole: string;
  let streamed: string;
  let responses: string;
  beforeAll(async () => {
    stage = await openStage();
    const { url } = stage.service.gateway;
    stage.service.backend.script = chatAnswer('Kept.');
    whole = (await chat(url, { ...CHAT, tee: true })).text;
    stage.service.backend.script = chatStream(['Kept ', 'too.']);
    streamed = (await chat(url, { ...CHAT, tee: true, stream: true })).text;
    stage.service.backend.script = namedStream(responseEvents(['Kept ', 'too.']));
    responses = (await ask(`${url}/v1/responses`, { body: '{"input":"Hi","stream":true,"tee":true}' })).text;
  });
  afterAll(() => stage?.close());

  const files = () =>
    [
      ['a response', 'answer.json', whole, 'the response that carries the attestation'],
      [
        'an attestation',
        'attestation.json',
        JSON.stringify(JSON.parse(whole).attestation),
        'passed no request or response',
      ],
      [
        'its JSON string',
        'string.json',
        JSON.stringify(JSON.stringify(JSON.parse(whole).attestation)),
        'passed no request or response',
      ],
      ['a stream', 'answer.sse', streamed, 'the 5 events of the stream, byte for byte'],
      ['a stream of a response', 'response.sse', responses, 'the 10 events of the stream, byte for byte'],
    ] as const;

  test('an attestation, a response and a stream are checked from a file, and nothing is uploaded', async () => {
    const { page, requests, complaints, close } = await stage.visit();
    await page.click('#to-check');
    for (const [, name, text, compared] of files()) {
      const before = requests.length;
      await page.setInputFiles('#file', { name, mimeType: 'application/octet-stream', buffer: Buffer.from(text) });
      await page.locator(`#checked h2:has-text("${name}")`).waitFor();
      await verdict(page, 'simulated');
      expect(await page.textContent('[data-check=expected_exchange]'), name).toContain(compared);
      // The page's own icon may come late.
      expect(requests.slice(before).filter((one) => !one.startsWith('GET /page/assets/'))).toEqual([]);
    }
    await page.locator('.proof[data-complete]').waitFor();
    await expect.poll(() => page.evaluate('document.activeElement.className')).toBe('verdict-title');
    expect(complaints).toEqual([]);
    await close();
  });

  test('a file may be dropped anywhere, in the chat too', async () => {
    const { page, close } = await stage.visit();
    await drop(page, 'dropped.json', whole);
    await page.locator('#checked h2:has-text("dropped.json")').waitFor();
    await verdict(page, 'simulated');
    expect(new URL(page.url()).hash).toBe('#check');
    await close();
  });

  test('a pasted text is checked; one that was changed is not valid, and says why', async () => {
    const { page, close } = await stage.visit();
    await page.click('#to-check');
    await page.click('#drop button[type=submit]');
    expect(await page.textContent('#drop-problem')).toContain('Paste the text of a proof first');
    await page.fill('#paste', whole.replaceAll('Kept.', 'Bent.'));
    await page.click('#drop button[type=submit]');
    await verdict(page, 'invalid');
    expect(await checks(page, 'fail')).toContain('raw_hash');
    await close();
  });

  test('a file that is no proof says at the top what it is and what to do, and nothing of the one before stays', async () => {
    const { page, complaints, close } = await stage.visit();
    await page.click('#to-check');
    const choose = (name: string, buffer: Buffer) =>
      page.setInputFiles('#file', { name, mimeType: 'application/octet-stream', buffer });
    const text = JSON.stringify({ messages: [], model: 'm' });
    const wrong: readonly (readonly [Buffer, says: RegExp, next: RegExp])[] = [
      [Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex'), /is a PNG picture/, /the answer itself/],
      [Buffer.from(`\ufeff${whole}`, 'utf16le'), /is text in UTF-16/, /curl's -o/],
      [Buffer.from(whole, 'utf16le'), /is text in UTF-16/, /curl's -o/],
      [Buffer.from([0x80, 0x81, 0x82]), /is not text in UTF-8/, /Choose/],
      [Buffer.alloc(0), /is empty\./, /Save the answer again/],
      [Buffer.from(whole.slice(0, 300)), /is cut off/, /Save the answer again/],
      [Buffer.from(whole.replace('"id"', 'id')), /is not quite JSON/, /Save the answer again/],
      [Buffer.from('<!doctype html><title>502</title>'), /is a web page/, /Open it in a browser/],
      [Buffer.from('{"error":{"message":"No key.","code":"x"}}'), /an error.+“No key\.”/, /ask again/],
      [Buffer.from('data: {"error":{"message":"Late."}}\n\n'), /an error.+“Late\.”/, /ask again/],
      [Buffer.from(JSON.stringify({ ...JSON.parse(whole), attestation: undefined })), /without a proof/, /"tee": true/],
      [Buffer.from('data: {"choices":[]}\n\ndata: [DONE]\n\n'), /a stream without a proof/, /"tee": true/],
      [Buffer.from('data: {"choices":[]}\n\n'), /a stream that is cut off/, /Save the answer again/],
      [Buffer.from('{"raw":"x","nonce":"x"}'), /members that are missing or wrong/, /Save the answer again/],
      [Buffer.from(text), /is a request/, /Choose its answer/],
      [Buffer.from('{"a":1}'), /is JSON, and no proof/, /Choose an attestation/],
      [Buffer.from('hello'), /is text, and no proof/, /Choose an attestation/],
      [Buffer.alloc(64 * 1024 * 1024 + 1), /larger than the 64 MiB/, /one answer/],
    ];
    for (const [i, [content, says, next]] of wrong.entries()) {
      if (i % 4 === 0) {
        await choose('good.json', Buffer.from(whole));
        await verdict(page, 'simulated');
        expect(await page.locator('#drop-problem').isVisible()).toBe(false);
      }
      if (content.length <= 50_000_000) await choose(`wrong-${i}`, content);
      else await chooseLarge(page, `wrong-${i}`, content.length);
      await page.locator('#drop-problem h2', { hasText: `wrong-${i} ` }).waitFor({ timeout: 5_000 });
      expect(await page.textContent('#drop-problem h2')).toMatch(says);
      expect(await page.textContent('#drop-problem p')).toMatch(next);
      expect(await page.locator('#checked').innerHTML()).toBe('');
      const { y = 0, height = 0 } = (await page.locator('#drop-problem').boundingBox()) ?? {};
      expect(y + height).toBeLessThan(400);
    }
    await page.fill('#paste', 'hello');
    await choose('good.json', Buffer.from(whole));
    await verdict(page, 'simulated');
    expect(await page.locator('#drop-problem').isVisible()).toBe(false);
    expect(await page.inputValue('#paste')).toBe('');
    expect(complaints).toEqual([]);
    await close();
  });

  test('a batched one says of how many it is one, and where its path leads; in another place it is not valid', async () => {
    const { raw } = JSON.parse(whole).attestation;
    const { nonce, batch } = batchOf(raw, 5, 3);
    const { token, evidence } = await stage.service.sidecar.attester.attest(
      nonce as Nonce,
      new AbortController().signal,
    );
    const { page, complaints, close } = await stage.visit();
    await page.click('#to-check');
    const check = async (member: unknown, kind: string) => {
      await page.fill('#paste', JSON.stringify({ token, evidence, raw, nonce, batch: member }));
      await page.click('#drop button[type=submit]');
      await verdict(page, kind);
      return page.textContent('.hashes');
    };
    expect(await check(batch, 'simulated')).toContain(`Nonce to which its path leads from there${nonce}`);
    expect(await page.locator('.hash.differs').count()).toBe(0);
    expect(await page.textContent('.facts')).toContain('Answers under this nonce5');
    expect(await page.textContent('.proven')).toContain('a nonce that commits to 5 answers, of which this is one');
    expect(await page.textContent('[data-check=raw_hash]')).toContain('leaf 3 of 5');
    expect(await check({ ...batch, leaf_index: 2 }, 'invalid')).not.toContain(`from there${nonce}`);
    expect(await page.textContent('[data-check=raw_hash]')).toContain('batch_proof_invalid');
    expect(await page.locator('.hash.differs').count()).toBe(1);
    for (const member of [null, 'x', {}, { ...batch, path: null }]) {
      expect(await check(member, 'invalid')).toContain('nothing: it is no path');
      expect(await page.textContent('[data-check=raw_hash]')).toContain('batch_malformed');
    }
    expect(complaints).toEqual([]);
    await close();
  });

  test('the proof of another service, whose simulated root this one does not name, is not fully checked', async () => {
    const other = await openStage();
    const { page, close } = await other.visit();
    await page.click('#to-check');
    await page.fill('#paste', whole);
    await page.click('#drop button[type=submit]');
    await verdict(page, 'unchecked');
    expect([await checks(page, 'fail'), await checks(page, 'unchecked')]).toEqual([[], ['report_chain']]);
    expect(await page.textContent('[data-claim="Who signed"]')).toContain('not checked');
    expect(await page.textContent('.verdict-text')).toContain('Open it on the page of the service that made it.');
    await close();
    await other.close();
  });
});

describe.skipIf(missing !== '')(`evidence of a processor${missing}`, () => {
  test.each(['a session', 'a session as a JSON string', 'a report alone'])(
    'is recognized and checked: %s',
    async (what) => {
      const stage = await openStage();
      const { page, complaints, close } = await stage.visit({ at: AT.toISOString() });
      const { cpu, gpu } = await makeSession();
      const whole = JSON.stringify({ ...cpu, gpu });
      const text =
        what === 'a report alone' ? JSON.stringify(cpu) : what === 'a session' ? whole : JSON.stringify(whole);
      await page.click('#to-check');
      await page.fill('#paste', text);
      await page.click('#drop button[type=submit]');
      // Nobody knows the processor's root, nor the GPU's.
      await verdict(page, 'unchecked');
      expect(await checks(page, 'unchecked')).toContain('cpu_chain');
      expect(await checks(page, 'pass')).toContain('cpu_signature');
      expect(await checks(page, 'fail')).toEqual([]);
      expect(complaints).toEqual([]);
      await close();
      await stage.close();
    },
  );
});

describe.skipIf(missing !== '')(`no proof${missing}`, () => {
  test('a folder that is dropped is said not to be read', async () => {
    const stage = await openStage();
    const { page, complaints, close } = await stage.visit();
    const devtools = await page.context().newCDPSession(page);
    const data = { items: [], files: [stage.service.folder.path], dragOperationsMask: 1 };
    for (const type of ['dragEnter', 'dragOver', 'drop'] as const)
      await devtools.send('Input.dispatchDragEvent', { type, x: 400, y: 400, data });
    await page.locator('#drop-problem', { hasText: 'is a folder' }).waitFor({ timeout: 5_000 });
    expect(complaints).toEqual([]);
    await close();
    await stage.close();
  });

  test('evidence of another form is refused without a complaint', async () => {
    const stage = await openStage();
    const { page, complaints, close } = await stage.visit();
    await page.click('#to-check');
    await page.fill('#paste', '{"raw":"x","nonce":"x","token":"x","evidence":[{}]}');
    await page.click('#drop button[type=submit]');
    await page.locator('#drop-problem', { hasText: 'members that are missing or wrong' }).waitFor();
    expect(complaints).toEqual([]);
    await close();
    await stage.close();
  });
});

const genuine = vectorsPresent ? '' : ', SKIPPED without the genuine evidence';
describe.skipIf(missing + genuine !== '')(`genuine evidence of an H100${missing}${genuine}`, () => {
  const services = createServer((request, response) => {
    const id = /^\/v1\/rim\/(.+)$/.exec(request.url ?? '')?.[1];
    const rim = id === undefined ? undefined : rims.get(id);
    if (rim === undefined) return void response.writeHead(404).end();
    response.end(JSON.stringify({ id, rim: Buffer.from(rim).toString('base64') }));
  });
  const rims = new Map<string, string>();
  let stage: Stage;
  let visit: Visit;
  beforeAll(async () => {
    await new Promise<void>((resolve) => services.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(services.address() as AddressInfo).port}`;
    stage = await openStage({ RIM_URL: url, OCSP_URL: `${url}/ocsp` });
    const [h100] = evidenceCases();
    if (h100 === undefined) throw new TypeError('no case');
    for (const [id, document] of h100.rims) rims.set(id, document);
    visit = await stage.visit({ at: h100.clocks.report.toISOString() });
    const { arch, chain, report, nonce } = h100;
    const certificate = Buffer.from(chain).toString('base64');
    await visit.page.click('#to-check');
    await visit.page.fill(
      '#paste',
      JSON.stringify([{ arch, certificate, evidence: report.toString('base64'), nonce }]),
    );
  });
  afterAll(async () => {
    await visit?.close();
    await stage?.close();
    services.close();
  });

  test('reference values come through the gateway; what is not to be had makes it incomplete, not false', async () => {
    const { page, requests } = visit;
    await page.click('#drop button[type=submit]');
    await verdict(page, 'unchecked');
    expect(await checks(page, 'fail')).toEqual([]);
    expect(await page.textContent('[data-check=reference_values]')).toMatch(/all \d+ active measurements/);
    expect(await page.getAttribute('[data-check=reference_values]', 'data-status')).toBe('pass');
    expect(await page.textContent('[data-check=revocation]')).toContain('revocation_unavailable');
    expect(requests).toContain('GET /page/collateral/v1/rim/NV_GPU_DRIVER_GH100_550.90.07');
    expect(requests).toContain('POST /page/collateral/ocsp');
  });

  test('without them it is valid at level gpu, and the page says what that leaves open', async () => {
    const { page } = visit;
    await page.evaluate('document.querySelector("#drop-collateral").checked = false');
    await page.click('#drop button[type=submit]');
    await verdict(page, 'valid');
    expect(await page.textContent('.card')).toMatch(
      /Proven: a GPU signed this.*A genuine NVIDIA GPU.*Left out, as you asked: “Nothing was revoked”/s,
    );
    expect(await page.locator('.ladder [aria-current=step]').textContent()).toContain('GPU, reached');
    expect(await page.textContent('.not-proven')).toMatch(/measurements were not compared.*nobody was asked/s);
    expect(await page.textContent('[data-check=revocation]')).toContain('the caller asked for no such check');
  });
});

/** Sets a file of so many zero bytes, which is more than the driver carries. */
async function chooseLarge(page: Page, name: string, bytes: number): Promise<void> {
  await page.evaluate(`(() => { const data = new DataTransfer(), field = document.querySelector('#file');
    data.items.add(new File([new Uint8Array(${bytes})], ${JSON.stringify(name)})); field.files = data.files;
    field.dispatchEvent(new Event('change')); })()`);
}

async function drop(page: Page, name: string, text: string): Promise<void> {
  const data = await page.evaluateHandle(
    `(() => { const data = new DataTransfer(); data.items.add(new File([${JSON.stringify(text)}], ${JSON.stringify(name)})); return data; })()`,
  );
  await page.dispatchEvent('body', 'drop', { dataTransfer: data });
}
