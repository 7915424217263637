// What native keeps: reference values and revocation answers in memory and on disk, renewed in time, dropped when damaged.
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { chainPem, type makeDevice } from '../../../../demo/twin/pki.ts';
import type { Evidence } from '../../../../proto/attestation/attestation.ts';
import { createStore } from '../../../../sidecar/attesters/native/kept-collateral.ts';
import { createNativeAttester, type NativeAttester } from '../../../../sidecar/attesters/native/native.ts';
import type { Collector } from '../../../../sidecar/driver/gpu-collector.ts';
import { freshNonce, never } from '../../../support/attest.ts';
import { type Folder, temporaryFolder } from '../../../support/harness.ts';
import { noFaults } from '../../../twin/faults.ts';
import { makeReport } from '../../../twin/report.ts';
import { type EndorsementBench, startEndorsements } from './native-bench.ts';

const DAY_MS = 86_400_000;

describe('native collateral', () => {
  let bench: EndorsementBench;
  let folder: Folder;
  let now = new Date();
  const said: string[] = [];
  const open: NativeAttester[] = [];

  /** Collects without NVML; `chain` may be what it was before the device was reset. */
  const collectorOf = (device: ReturnType<typeof makeDevice>, stale?: string): Collector => {
    let chain = stale ?? chainPem(device);
    return {
      devices: [{ arch: 'HOPPER', model: 'SIMULATED H100' }],
      async collect(nonce): Promise<Evidence[]> {
        const report = await makeReport(Buffer.from(nonce, 'hex'), device.key, bench.faults.report.get(0));
        const certificate_chain = Buffer.from(chain).toString('base64');
        return [{ arch: 'HOPPER', report: report.toString('base64'), certificate_chain }];
      },
      async renewChains() {
        const before = chain;
        chain = chainPem(device);
        return before !== chain;
      },
      close: async () => {},
    };
  };
  const create = async (collector = collectorOf(bench.device)) => {
    const attester = await createNativeAttester({
      ...bench.options,
      collector,
      cache_dir: folder.path,
      clock: () => now,
      onFailure: (message) => said.push(message),
    });
    open.push(attester);
    return attester;
  };
  const attest = (attester: NativeAttester) => attester.attest(freshNonce(), never);
  const files = () => readdirSync(folder.path).sort();

  beforeAll(async () => {
    bench = await startEndorsements();
  });
  beforeEach(() => {
    folder = temporaryFolder();
    now = new Date();
    said.length = 0;
  });
  afterEach(async () => {
    Object.assign(bench.faults, noFaults());
    for (const attester of open.splice(0)) await attester.close();
    folder.remove();
  });
  afterAll(() => bench?.close());

  test('after a restart nothing is asked for', async () => {
    await attest(await create());
    expect(files().map((name) => name.split('-')[0])).toEqual([
      'ocsp',
      'ocsp',
      'ocsp',
      'ocsp',
      'ocsp',
      'ocsp',
      'rim',
      'rim',
    ]);
    for (const name of files()) expect(statSync(join(folder.path, name)).mode & 0o777).toBe(0o600);
    const before = bench.served();
    Object.assign(bench.faults, { rim: 'cut', ocsp: 'cut' });
    await attest(await create());
    expect(bench.served()).toEqual(before);
    expect(said).toEqual([]);
  });

  test('a damaged file is dropped, said, and fetched again', async () => {
    await attest(await create());
    const [first = '', second = ''] = files();
    const [damaged, cut] = [join(folder.path, first), join(folder.path, second)];
    const bytes = readFileSync(damaged);
    bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
    writeFileSync(damaged, bytes);
    writeFileSync(cut, readFileSync(cut).subarray(0, 40));
    const before = bench.served();
    await attest(await create());
    expect(bench.served()).toEqual({ rim: before.rim, ocsp: before.ocsp + 2 });
    expect(said.sort()).toEqual(
      [expect.stringContaining(`${damaged} is damaged`), expect.stringContaining(`${cut} is damaged`)].sort(),
    );
    expect(files()).toHaveLength(8);
  });

  test('answers are renewed when most of their life is over, and what cannot be renewed serves until its end', async () => {
    const attester = await create();
    await attest(attester);
    const before = bench.served();
    await attester.renew();
    expect(bench.served()).toEqual(before);
    now = new Date(now.getTime() + 0.8 * DAY_MS);
    Object.assign(bench.faults, { ocsp: 503 });
    await attester.renew();
    expect(said).toHaveLength(6);
    expect(said[0]).toMatch(/^ocsp [0-9a-f]+ could not be renewed: 127\.0\.0\.1:\d+ answered 503$/);
    await attest(attester);
    now = new Date(now.getTime() + 0.3 * DAY_MS);
    await expect(attest(attester)).rejects.toMatchObject({
      retryable: true,
      message: expect.stringMatching(/^revocation_unavailable: GPU 0: /),
    });
  });

  test('a certificate that was revoked since is not believed until its old answer ends', async () => {
    const attester = await create();
    await attest(attester);
    now = new Date(now.getTime() + 0.8 * DAY_MS);
    bench.faults.ocsp = { revokedAt: new Date(), reason: 1 };
    await attester.renew();
    now = new Date();
    await expect(attest(attester)).rejects.toMatchObject({
      retryable: false,
      message: expect.stringMatching(/^certificate_revoked: GPU 0: .*key compromise/),
    });
  });

  test.each([
    ['rim_unavailable', { rim: 404 }, false],
    ['rim_unavailable', { rim: 503 }, true],
    ['rim_unavailable', { rim: 'cut' }, true],
    ['rim_malformed', { rim_broken_signature: true }, false],
    ['revocation_unavailable', { ocsp: 'cut' }, true],
    ['revocation_unavailable', { ocsp: 'unknown' }, false],
    ['revocation_invalid', { ocsp: 'expired' }, false],
    ['revocation_invalid', { ocsp: 'no_nonce' }, false],
    ['revocation_invalid', { ocsp: 'broken_signature' }, false],
    ['revocation_invalid', { ocsp: 'responder_expired' }, false],
    ['certificate_revoked', { ocsp: { revokedAt: new Date('2025-01-01'), reason: 6 } }, false],
  ] as const)('%s: %j, and nothing of it is kept', async (reason, faults, retryable) => {
    Object.assign(bench.faults, faults);
    const attester = await create();
    await expect(attest(attester)).rejects.toMatchObject({
      code: 'appraisal_failed',
      retryable,
      message: expect.stringMatching(new RegExp(`^${reason}: GPU 0: `)),
    });
    Object.assign(bench.faults, noFaults());
    await attest(attester);
  });

  test('a GPU that was reset has another leaf: its chain is asked for again, and the request does not notice', async () => {
    const attester = await create(collectorOf(bench.device, chainPem(bench.other)));
    await attest(attester);
  });

  test('a folder that cannot be written costs a line, and no attestation', async () => {
    const file = join(folder.path, 'file');
    writeFileSync(file, '');
    const attester = await createNativeAttester({
      ...bench.options,
      collector: collectorOf(bench.device),
      cache_dir: join(file, 'collateral'),
      onFailure: (message) => said.push(message),
    });
    open.push(attester);
    await attest(attester);
    await attest(attester);
    expect(said.some((line) => line.includes('cannot keep what was fetched'))).toBe(true);
  });

  test('the folder stays below its limit: what was written first goes first', async () => {
    const store = createStore({ folder: folder.path, max_bytes: 3000 });
    for (const id of ['a', 'b', 'c', 'd']) {
      await store.write('rim', id, new Uint8Array(800));
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    expect(await store.read('rim', 'a')).toBeNull();
    expect(await store.read('rim', 'd')).toEqual(new Uint8Array(800));
    expect(await store.read('ocsp', 'd')).toBeNull();
    await store.remove('rim', 'd');
    expect(await store.read('rim', 'd')).toBeNull();
  });
});
