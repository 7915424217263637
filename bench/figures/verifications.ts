// How fast an auditor checks: verifications of one genuine answer of the software twin, in this process.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { appraiseAttestation } from '../../verify/index.ts';
import { percentile } from '../report/stats.ts';
import { requestBody } from '../scene.ts';
import type { Bench, Figure } from './figure.ts';

const ASK_MS = 10_000;

export const verifications: Figure = {
  name: 'verify',
  once: true,
  title: () => 'Verifying an attestation of a 1 KB answer, one process, one at a time',
  columns: [
    { key: 'rate', title: 'per second', digits: 0 },
    { key: 'p50', title: 'p50 µs', digits: 0 },
    { key: 'p99', title: 'p99 µs', digits: 0 },
    { key: 'checks', title: 'checks passed', digits: 0 },
  ],
  async round(bench) {
    const tee = bench.targets.find(({ name }) => name === 'ours tee');
    if (tee === undefined) return [{ name: 'verify', values: {}, wrong: 'needs the target "ours tee"' }];
    try {
      return [{ name: 'verify', ...(await measure(bench, tee.aim.port)) }];
    } catch (error) {
      return [{ name: 'verify', values: {}, wrong: (error as Error).message }];
    }
  },
};

async function measure({ plan, where }: Bench, port: number) {
  const response = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: requestBody({ kind: 'whole', bytes: 1024 }, true),
    signal: AbortSignal.timeout(ASK_MS),
  });
  const text = await response.text();
  const simulatedRoot = readFileSync(join(where.folder, 'simulated-root/root.pem'), 'utf8');
  const took_us: number[] = [];
  let wrong: string | null = null;
  let checks = 0;
  for (const end = performance.now() + plan.verify_ms; performance.now() < end; ) {
    const start = performance.now();
    const report = await appraiseAttestation(text, { simulatedRoot });
    took_us.push((performance.now() - start) * 1e3);
    checks = report.checks.filter(({ status }) => status === 'pass').length;
    const failed = report.checks.find(({ status }) => status === 'fail');
    if (checks === 0) wrong = 'verify/ checks nothing yet';
    else if (!report.valid) wrong = `not valid: ${failed?.name} ${failed?.detail}`;
    if (wrong !== null) break;
  }
  const total_us = took_us.reduce((sum, one) => sum + one, 0);
  const rate = (took_us.length / total_us) * 1e6;
  return { values: { rate, p50: percentile(took_us, 0.5), p99: percentile(took_us, 0.99), checks }, wrong };
}
