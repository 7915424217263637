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
    expect(await page.textContent('#drop-problem')).toContain('Paste a proof first');
    await page.fill('#paste', whole.replaceAll('Kept.', 'Bent.'));
    await page.click('#drop button[type=submit]');
    await verdict(page, 'invalid');
    expect(await checks(page, 'fail')).toContain('raw_hash');
    await close();
  });

  test.each([
    ['nothing of the kind', 'hello', 'not_json'],
    ['JSON of another kind', '{"a":1}', 'not_an_attestation'],
    ['a stream without one', 'data: {"choices":[]}\n\ndata: [DONE]\n\n', 'not_an_attestation'],
  ])('%s is refused by the first check', async (_name, text, code) => {
    const { page, complaints, close } = await stage.visit();
    await page.click('#to-check');
    await page.fill('#paste', text);
    await page.click('#drop button[type=submit]');
    await verdict(page, 'foreign');
    expect(await page.textContent('.verdict')).toContain('Not a proof file');
    expect(await page.textContent('[data-check=form]')).toContain(code);
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
    await page.locator('#drop-problem', { hasText: 'cannot be read: it is a folder' }).waitFor({ timeout: 5_000 });
    expect(complaints).toEqual([]);
    await close();
    await stage.close();
  });

  test('evidence of another form is refused without a complaint, and can be kept', async () => {
    const stage = await openStage();
    const { page, complaints, close } = await stage.visit();
    await page.click('#to-check');
    await page.fill('#paste', '{"raw":"x","nonce":"x","token":"x","evidence":[{}]}');
    await page.click('#drop button[type=submit]');
    await verdict(page, 'foreign');
    await page.locator('.proof[data-complete]').waitFor();
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

async function drop(page: Page, name: string, text: string): Promise<void> {
  const data = await page.evaluateHandle(
    `(() => { const data = new DataTransfer(); data.items.add(new File([${JSON.stringify(text)}], ${JSON.stringify(name)})); return data; })()`,
  );
  await page.dispatchEvent('body', 'drop', { dataTransfer: data });
}
