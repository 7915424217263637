// What is appraised in both places: the genuine evidence, and the simulated attester's attestations.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSimulatedAttester } from '../../demo/twin/gpu.ts';
import { buildRaw, nonceOf } from '../../proto/attestation/raw.ts';
import type { FailureCode } from '../../verify/index.ts';
import { evidenceCases } from '../nvidia/cases.ts';
import { memberOf, ofKind, optionsOf } from '../verify/cpu/cases.ts';
import type { Spec } from './appraise.ts';

export interface Expectation {
  readonly spec: Spec;
  /** That it passes, or the code of the first check that fails. */
  readonly expected: 'pass' | FailureCode;
}

export function genuineSpecs(): Expectation[] {
  return evidenceCases().map(({ name, arch, report, chain, nonce, rims, ocsp, clocks, without, expected }) => {
    const evidence = [{ arch, certificate: base64(chain), evidence: report.toString('base64'), nonce }];
    const times = Object.entries(clocks).map(([clock, time]) => [clock, (time as Date).toISOString()]);
    const spec: Spec = {
      name,
      kind: 'evidence',
      input: JSON.stringify(evidence),
      at: clocks.report.toISOString(),
      clocks: Object.fromEntries(times),
      rims: [...rims],
      ocsp: ocsp.map((der) => der.toString('base64')),
      options: { without },
    };
    return { spec, expected };
  });
}

/** Genuine evidence of processors. */
export function cpuSpecs(): Expectation[] {
  return ofKind('snp', 'tdx', 'az-snp', 'az-tdx').map((one) => {
    const { at: _at, ...cpu } = optionsOf(one);
    const spec: Spec = { name: one.id, kind: 'cpu', input: JSON.stringify(memberOf(one)), at: one.at, cpu };
    return { spec, expected: one.expect.valid ? 'pass' : (one.expect.code as FailureCode) };
  });
}

/** Two devices' attestation of one exchange, whole and damaged. */
export async function simulatedSpecs(): Promise<Expectation[]> {
  const rootDir = mkdtempSync(join(tmpdir(), 'browser-twin-'));
  try {
    const attester = await createSimulatedAttester({ rootDir, devices: 2 });
    const root = attester.simulated?.root ?? '';
    const timestamp = Math.floor(Date.now() / 1000);
    const raw = buildRaw({ request: '{"model":"m","messages":[]}', response: '{"id":"1","x":1.0}', timestamp });
    const nonce = await nonceOf(raw);
    const { token, evidence } = await attester.attest(nonce, new AbortController().signal);
    await attester.close();
    const whole = { raw, nonce, token, evidence };
    const spec = (name: string, attestation: unknown, simulatedRoot?: string): Spec => ({
      name,
      kind: 'attestation',
      input: JSON.stringify(attestation),
      at: new Date().toISOString(),
      options: { simulatedRoot },
    });
    return [
      { spec: spec('the twin, its root named', whole, root), expected: 'pass' },
      { spec: spec('the twin, its root not named', whole), expected: 'simulated_root_refused' },
      {
        spec: spec('the twin, another answer', { ...whole, raw: raw.replace('1.0', '1') }, root),
        expected: 'raw_hash_mismatch',
      },
      {
        spec: spec('the twin, its second report broken', { ...whole, evidence: withBrokenSecond(evidence) }, root),
        expected: 'report_signature_invalid',
      },
    ];
  } finally {
    rmSync(rootDir, { recursive: true, force: true });
  }
}

function withBrokenSecond<T extends { readonly report: string }>(evidence: readonly T[]): T[] {
  return evidence.map((one, i) => {
    if (i !== 1) return one;
    const report = Buffer.from(one.report, 'base64');
    report.writeUInt8(report.readUInt8(report.length - 1) ^ 1, report.length - 1);
    return { ...one, report: report.toString('base64') };
  });
}

const base64 = (text: string) => Buffer.from(text).toString('base64');
