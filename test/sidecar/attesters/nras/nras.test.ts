// ATTESTER=nras over simulated devices and a stand-in for NVIDIA's service: nothing it says is passed on unverified.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createSimulatedAttester } from '../../../../demo/twin/gpu.ts';
import { chainPem, DEVICE_ROOT, makeDevice, makeIssuers, makeRoot } from '../../../../demo/twin/pki.ts';
import { createNrasAttester } from '../../../../sidecar/attesters/nras/nras.ts';
import type { Attester } from '../../../../sidecar/common/attester.ts';
import type { Collector } from '../../../../sidecar/driver/gpu-collector.ts';
import { checkCollected } from '../../../../sidecar/signing/evidence-check.ts';
import { failureOf, freshNonce, never } from '../../../support/attest.ts';
import { type Folder, temporaryFolder } from '../../../support/harness.ts';
import { inNewFormat } from '../../../twin/new-format.ts';
import { makeReport, opaqueData } from '../../../twin/report.ts';
import { type NrasService, noNrasFaults, startNras } from './nras-service.ts';

describe('nras', () => {
  let folder: Folder;
  let service: NrasService;
  let simulated: Attester;
  let now = Date.now();
  const collected = { count: 0 };
  const create = (more: object = {}) => {
    const collector: Collector = {
      devices: simulated.devices,
      async collect(nonce, signal) {
        collected.count++;
        return [...(await simulated.attest(nonce, signal)).evidence];
      },
      renewChains: async () => false,
      close: async () => {},
    };
    const roots = { device: simulated.simulated?.root ?? '' };
    return createNrasAttester({
      collector,
      url: service.url,
      roots,
      timeout_ms: 300,
      clock: () => new Date(now),
      ...more,
    });
  };

  beforeAll(async () => {
    folder = temporaryFolder();
    service = await startNras();
    simulated = await createSimulatedAttester({ rootDir: join(folder.path, 'root'), devices: 2 });
  });
  beforeEach(() => {
    now = Date.now();
    Object.assign(service.faults, noNrasFaults());
  });
  afterAll(async () => {
    await service?.close();
    folder?.remove();
  });

  test("the token is NVIDIA's answer as it came; one request asks about all GPUs", async () => {
    const attester = await create();
    const nonce = freshNonce();
    const answer = await attester.attest(nonce, never);
    await checkCollected(answer, nonce, { ...attester, simulated: { root: simulated.simulated?.root ?? '' } });
    expect(service.asked.body).toEqual({
      nonce,
      arch: 'HOPPER',
      claims_version: '3.0',
      evidence_list: answer.evidence.map(({ report, certificate_chain }) => ({
        evidence: report,
        certificate: certificate_chain,
      })),
    });
    expect(service.asked.authorization).toBeUndefined();
    await (await create({ url: new URL(service.url).origin })).attest(freshNonce(), never);
  });

  test('opaque data with the magic of newer drivers is appraised under claims 4.0', async () => {
    const issuers = makeIssuers(makeRoot(DEVICE_ROOT));
    const device = makeDevice(issuers);
    let newer = true;
    const collector: Collector = {
      devices: [{ arch: 'HOPPER', model: 'SIMULATED H100' }],
      async collect(nonce) {
        const options = newer ? { opaque: inNewFormat(opaqueData()) } : {};
        const report = (await makeReport(Buffer.from(nonce, 'hex'), device.key, options)).toString('base64');
        return [{ arch: 'HOPPER', report, certificate_chain: Buffer.from(chainPem(device)).toString('base64') }];
      },
      renewChains: async () => false,
      close: async () => {},
    };
    const attester = await create({ collector, roots: { device: issuers.root.certificate.pem } });
    await attester.attest(freshNonce(), never);
    expect(service.asked.body).toMatchObject({ claims_version: '4.0' });
    newer = false;
    await attester.attest(freshNonce(), never);
    expect(service.asked.body).toMatchObject({ claims_version: '3.0' });
  });

  test('a GPU that was reset has another leaf: its chain is asked for again, and the service hears of the new one alone', async () => {
    const issuers = makeIssuers(makeRoot(DEVICE_ROOT));
    let device = makeDevice(issuers);
    let chain = chainPem(device);
    let renewed = 0;
    const collector: Collector = {
      devices: [{ arch: 'HOPPER', model: 'SIMULATED H100' }],
      async collect(nonce) {
        const report = (await makeReport(Buffer.from(nonce, 'hex'), device.key)).toString('base64');
        return [{ arch: 'HOPPER', report, certificate_chain: Buffer.from(chain).toString('base64') }];
      },
      async renewChains() {
        renewed++;
        const before = chain;
        chain = chainPem(device);
        return chain !== before;
      },
      close: async () => {},
    };
    const attester = await create({ collector, roots: { device: issuers.root.certificate.pem } });
    await attester.attest(freshNonce(), never);
    const before = service.asked.attest;

    device = makeDevice(issuers);
    const nonce = freshNonce();
    const answer = await attester.attest(nonce, never);
    await checkCollected(answer, nonce, { ...attester, simulated: { root: issuers.root.certificate.pem } });
    await attester.attest(freshNonce(), never);
    expect([renewed, service.asked.attest - before]).toEqual([1, 2]);

    device = { ...device, key: makeDevice(issuers).key };
    const error = await failureOf(attester.attest(freshNonce(), never));
    expect(error).toMatchObject({ code: 'appraisal_failed', retryable: false });
    expect(error.message).toMatch(/^report_signature_invalid: /);
    expect([renewed, service.asked.attest - before]).toEqual([2, 2]);
  });

  test('the service key comes from its file, at each request, and stands in no error', async () => {
    const file = join(folder.path, 'key');
    writeFileSync(file, 'first-key\n');
    const attester = await create({ service_key_file: file });
    await attester.attest(freshNonce(), never);
    expect(service.asked.authorization).toBe('Bearer first-key');
    writeFileSync(file, 'second-key');
    service.faults.status = 401;
    const error = await failureOf(attester.attest(freshNonce(), never));
    expect(service.asked.authorization).toBe('Bearer second-key');
    expect(error).toMatchObject({ code: 'appraisal_failed', retryable: false });
    expect(error.message).toMatch(/^service_key: .*401.*NRAS_SERVICE_KEY_FILE/);
    expect(error.message).not.toContain('second-key');
    writeFileSync(file, 'two\nlines');
    expect((await failureOf(create({ service_key_file: file }))).message).toMatch(/must hold one line/);
    expect((await failureOf(create({ service_key_file: `${file}-not` }))).message).toMatch(/ENOENT/);
  });

  test("NVIDIA's keys are fetched once, and again when a token names another", async () => {
    const attester = await create();
    const before = service.asked.keys;
    await attester.attest(freshNonce(), never);
    await attester.attest(freshNonce(), never);
    expect(service.asked.keys - before).toBe(1);
    service.rotate();
    const early = await failureOf(attester.attest(freshNonce(), never));
    expect(early).toMatchObject({ retryable: true, message: expect.stringMatching(/^token_key_unavailable: /) });
    expect(service.asked.keys - before).toBe(1);
    now += 31_000;
    await attester.attest(freshNonce(), never);
    expect(service.asked.keys - before).toBe(2);
  });

  test.each([
    ['refused', { result: false }, false],
    ['wrong_nonce', { nonce: 'ab'.repeat(32) }, false],
    ['token_signature_invalid', { break_signature: true }, false],
    ['token_digest_mismatch', { break_digest: true }, false],
    ['token_expired', { expired: true }, false],
    ['token_issuer_unknown', { issuer: 'https://nras.example' }, false],
    ['token_refused', { issuer: 'countersign-native' }, false],
    ['token_report_mismatch', { ueid: '1' }, false],
    ['token_key_unavailable', { unknown_key: true }, true],
    ['nras_unreachable', { no_keys: true }, true],
    ['token_malformed', { status: 200, body: 'no token' }, false],
    ['nras_unreachable', { status: 'cut' }, true],
    ['nras_unreachable', { status: 503 }, true],
    ['nras_unreachable', { delay_ms: 500 }, true],
    ['nras_unreachable', { status: 200, body: 'x'.repeat(1024 * 1024 + 1) }, true],
    ['nras_busy', { status: 429 }, true],
    ['nras_refused', { status: 400, body: '{"message":"Invalid\\nevidence"}' }, false],
  ] as const)('%s: %j', async (reason, faults, retryable) => {
    Object.assign(service.faults, faults);
    const attester = await create();
    const error = await failureOf(attester.attest(freshNonce(), never));
    expect(error).toMatchObject({ name: 'AttesterError', code: 'appraisal_failed', retryable });
    expect(error.message).toMatch(new RegExp(`^${reason}: [ -~]+$`));
    Object.assign(service.faults, noNrasFaults());
  });

  test('while the service asks to be left alone, neither it nor a GPU is asked', async () => {
    Object.assign(service.faults, { status: 429, retry_after: '7' });
    const attester = await create();
    const first = await failureOf(attester.attest(freshNonce(), never));
    expect(first).toMatchObject({ retryable: true, retry_after_ms: 7000 });
    Object.assign(service.faults, noNrasFaults());
    const before = { attest: service.asked.attest, collected: collected.count };
    now += 5_000;
    const second = await failureOf(attester.attest(freshNonce(), never));
    expect(second).toMatchObject({ retryable: true, retry_after_ms: 2000, message: expect.stringContaining('2 s') });
    expect({ attest: service.asked.attest, collected: collected.count }).toEqual(before);
    now += 2_001;
    await attester.attest(freshNonce(), never);
  });

  test.each([
    ['the wait that the service asked for', { status: 429, retry_after: '7' }],
    ['the age of its keys', {}],
  ])('a clock that is set back does not lengthen %s', async (_, faults) => {
    const attester = await create();
    now += 1_800_000;
    await attester.attest(freshNonce(), never);
    Object.assign(service.faults, faults);
    await attester.attest(freshNonce(), never).catch(() => {});
    Object.assign(service.faults, noNrasFaults());
    now -= 1_800_000;
    service.rotate();
    await attester.attest(freshNonce(), never);
  });

  test('who leaves is let go at once', async () => {
    service.faults.delay_ms = 1000;
    const leaving = new AbortController();
    const attester = await create({ timeout_ms: 5000 });
    const work = attester.attest(freshNonce(), leaving.signal);
    setTimeout(() => leaving.abort(new Error('the gateway left')), 30);
    const started = performance.now();
    await expect(work).rejects.toThrow('the gateway left');
    expect(performance.now() - started).toBeLessThan(960);
  });
});
