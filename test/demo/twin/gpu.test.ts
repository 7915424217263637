// ATTESTER=simulated as the sidecar sees it.
import { verify, X509Certificate } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { createSimulatedAttester } from '../../../demo/twin/gpu.ts';
import { evidenceSchema } from '../../../proto/attestation/attestation-schema.ts';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import { AttesterError } from '../../../sidecar/common/attester.ts';

const parent = mkdtempSync(join(tmpdir(), 'simulated-'));
const rootDir = join(parent, 'root');
afterAll(() => rmSync(parent, { recursive: true, force: true }));

const nonce = '5a'.repeat(32) as Nonce;
const never = new AbortController().signal;

const certificatesOf = (chain: string): X509Certificate[] =>
  (
    Buffer.from(chain, 'base64')
      .toString()
      .match(/-----BEGIN[\s\S]*?END CERTIFICATE-----/g) ?? []
  ).map((pem) => new X509Certificate(pem));

test('attests a nonce with a report from every device and one token', async () => {
  const attester = await createSimulatedAttester({ rootDir, devices: 2 });
  const { token, evidence } = await attester.attest(nonce, never);
  evidenceSchema.array().parse(evidence);
  expect(attester.devices).toEqual([1, 2].map(() => ({ arch: 'HOPPER', model: 'SIMULATED H100' })));
  expect(evidence).toHaveLength(2);
  const leaves = evidence.map(({ arch, report, certificate_chain }) => {
    const [leaf, ...rest] = certificatesOf(certificate_chain);
    if (leaf === undefined) throw new Error('no leaf');
    const bytes = Buffer.from(report, 'base64');
    expect(arch).toBe('HOPPER');
    expect(bytes.subarray(4, 36).toString('hex')).toBe(nonce);
    expect(
      verify('sha384', bytes.subarray(0, -96), { key: leaf.publicKey, dsaEncoding: 'ieee-p1363' }, bytes.subarray(-96)),
    ).toBe(true);
    expect(rest.at(-1)?.toString()).toBe(attester.simulated?.root);
    return leaf.serialNumber;
  });
  expect(new Set(leaves).size).toBe(2);
  expect(token).toContain('LOCAL_GPU_CLAIMS');
  await attester.close();
});

test('what was signed before a restart still verifies under the root after it', async () => {
  const before = await createSimulatedAttester({ rootDir });
  const { evidence } = await before.attest(nonce, never);
  const after = await createSimulatedAttester({ rootDir });
  const root = new X509Certificate(after.simulated?.root ?? '');
  expect(readFileSync(join(rootDir, 'root.pem'), 'utf8')).toBe(after.simulated?.root);
  const identity = certificatesOf(evidence[0]?.certificate_chain ?? '')[3];
  expect(identity?.verify(root.publicKey)).toBe(true);
});

test('a collection takes its time and stops when told to', async () => {
  const attester = await createSimulatedAttester({ rootDir, collectionMs: 60_000 });
  const stop = new AbortController();
  const attempt = attester.attest(nonce, stop.signal);
  const reason = new Error('the gateway dropped it');
  setTimeout(() => stop.abort(reason), 20);
  await expect(attempt).rejects.toBe(reason);
  await expect(attester.attest(nonce, stop.signal)).rejects.toBe(reason);
});

test('a root that cannot be used is an error for good, with the file named', async () => {
  const dir = join(parent, 'damaged');
  await createSimulatedAttester({ rootDir: dir });
  writeFileSync(join(dir, 'root.key'), 'nothing');
  const attempt = createSimulatedAttester({ rootDir: dir });
  await expect(attempt).rejects.toThrow(join(dir, 'root.key'));
  await expect(attempt).rejects.toMatchObject({ name: 'AttesterError', retryable: false });
  await expect(createSimulatedAttester({ rootDir, devices: 0 })).rejects.toThrow(AttesterError);
});
