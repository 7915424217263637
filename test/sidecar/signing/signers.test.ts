// SIGNERS=any: each nonce is signed by one GPU, whichever is free.
import { afterEach, expect, test } from 'vitest';
import { createSimulatedAttester } from '../../../demo/twin/gpu.ts';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import type { Attester } from '../../../sidecar/common/attester.ts';
import { ConfigError, loadConfig } from '../../../sidecar/common/config.ts';
import { checkCollected } from '../../../sidecar/signing/evidence-check.ts';
import { appraiseEvidence } from '../../../verify/index.ts';
import { type Folder, temporaryFolder } from '../../support/harness.ts';
import { schedule } from './schedule.ts';

const nonceOf = (n: number) => n.toString(16).padStart(64, '0') as Nonce;
const never = () => new AbortController().signal;
let folder: Folder | null = null;
afterEach(() => {
  folder?.remove();
  folder = null;
});

const checked = (attester: Attester, signers: 'all' | 'any') =>
  schedule(attester, {
    signers,
    check: (collected, nonce, device) => checkCollected(collected, nonce, attester, device),
  });

async function twin(devices: number): Promise<Attester> {
  folder = temporaryFolder();
  return createSimulatedAttester({ rootDir: folder.path, devices });
}

/** Four devices of which each signs when it is told to. */
function four() {
  const under_way: { device: number | undefined; done: () => void }[] = [];
  const attester: Attester = {
    name: 'scripted',
    devices: Array.from({ length: 4 }, () => ({ arch: 'HOPPER', model: 'H100' })),
    simulated: null,
    attest: (_nonce, _signal, device) =>
      new Promise((resolve) => under_way.push({ device, done: () => resolve({ token: 't', evidence: [] }) })),
    close: async () => {},
  };
  return { attester, under_way };
}
const turn = () => new Promise((resolve) => setTimeout(resolve, 5));

test('four GPUs sign four nonces at a time, and the next as soon as one is free', async () => {
  const { attester, under_way } = four();
  const s = schedule(attester, { signers: 'any' });
  const all = Array.from({ length: 6 }, (_, n) => s.attest(nonceOf(n), never()));
  await turn();
  expect(under_way.map(({ device }) => device)).toEqual([0, 1, 2, 3]);
  expect(s.running).toBe(4);
  under_way[2]?.done();
  await turn();
  expect(under_way.map(({ device }) => device)).toEqual([0, 1, 2, 3, 2]);
  under_way[0]?.done();
  await turn();
  expect(under_way.at(-1)?.device).toBe(0);
  for (const { done } of under_way) done();
  await Promise.all(all);
});

test('the evidence is of the one that signed, and verifies; a session has that of all', async () => {
  const attester = await twin(3);
  const s = checked(attester, 'any');
  const results = await Promise.all([1, 2, 3].map((n) => s.attest(nonceOf(n), never())));
  const chains = new Set<string>();
  for (const [i, { evidence, nonce }] of results.entries()) {
    expect(evidence).toHaveLength(1);
    chains.add(evidence[0]?.certificate_chain ?? '');
    expect(nonce).toBe(nonceOf(i + 1));
    const { claims } = await appraiseEvidence(evidence, {
      simulatedRoot: attester.simulated?.root ?? '',
      expected: { nonce },
    });
    expect(claims.devices).toHaveLength(1);
  }
  expect(chains.size).toBe(3);
  expect((await s.attestByAll(nonceOf(9), never())).evidence).toHaveLength(3);
});

test('batches are signed by one GPU each as well', async () => {
  const s = checked(await twin(2), 'any');
  const answers = await Promise.all(Array.from({ length: 10 }, (_, n) => s.attestInBatch(nonceOf(n), 'all', never())));
  for (const { evidence } of answers) expect(evidence).toHaveLength(1);
});

test('by default every GPU signs every nonce', async () => {
  const s = checked(await twin(2), 'all');
  expect((await s.attest(nonceOf(1), never())).evidence).toHaveLength(2);
});

test('evidence of more devices, or of another, than the one that was to sign is refused', async () => {
  const attester = await twin(2);
  const both = await attester.attest(nonceOf(1), never());
  await expect(checkCollected(both, nonceOf(1), attester, 0)).rejects.toThrow(
    'evidence of 2 devices where there are 1',
  );
});

test.each(['nvtrust', 'nvattest'])('is refused with %s, in one line', (ATTESTER) => {
  expect(() => loadConfig({ ATTESTER, SIGNERS: 'any' })).toThrow(ConfigError);
  expect(() => loadConfig({ ATTESTER, SIGNERS: 'any' })).toThrow(/^SIGNERS=any needs/);
});
