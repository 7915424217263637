// A process of its own: the first verification that it makes, then many, in turns with the unit that they are counted in.
//   node bench/verify-once.ts CHECKOUT VECTOR|genuine ROUNDS
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { p384_us } from './p384.ts';
import { median } from './report.ts';

export interface Verified {
  readonly cold_ms: number;
  readonly cold_cpu_ms: number;
  readonly p50_ms: number;
  readonly cpu_ms: number;
  /** CPU of one in units of one P-384 check: the median over rounds. */
  readonly checks: number;
}
const ROUND_MS = 250;

const [root = '', name = '', rounds = ''] = process.argv.slice(2);
const { appraiseAttestation, appraiseEvidence, createCollateral } = await import(join(root, 'verify/index.ts'));
const verify = name === 'genuine' ? await genuine() : await vector();

/** Every call reads its input anew; caches of the module, and the collateral, are kept. */
async function vector(): Promise<() => Promise<{ readonly valid: boolean }>> {
  const { inputOf, verifyOptions } = await import(join(root, 'scripts/vectors/vector.ts'));
  const folder = join(root, 'vectors/');
  const given = JSON.parse(readFileSync(join(folder, 'cases', `${name}.json`), 'utf8'));
  const options = verifyOptions(folder, given.options);
  const input = JSON.stringify(inputOf(folder, given));
  return () => appraiseAttestation(input, options);
}

/** Signature, chain, firmware id, seven certificates by OCSP, both RIMs of NVIDIA's. */
async function genuine(): Promise<() => Promise<{ readonly valid: boolean }>> {
  const { evidenceCases } = await import(join(root, 'test/nvidia/cases.ts'));
  const { arch, chain, report, nonce, rims, ocsp, clocks, without } = evidenceCases()[0];
  const certificate = Buffer.from(chain).toString('base64');
  const input = JSON.stringify([{ arch, certificate, evidence: report.toString('base64'), nonce }]);
  const options = { at: clocks.report, clocks, without, collateral: createCollateral({ rims, ocsp }) };
  return () => appraiseEvidence(input, options);
}

async function timed(): Promise<{ readonly ms: number; readonly cpu_ms: number }> {
  const [from, before] = [performance.now(), process.cpuUsage()];
  const { valid } = await verify();
  if (!valid) throw new Error(`${name} is not valid`);
  const { user, system } = process.cpuUsage(before);
  return { ms: performance.now() - from, cpu_ms: (user + system) / 1e3 };
}

const cold = await timed();
for (const end = performance.now() + ROUND_MS * 4; performance.now() < end; ) await timed();
const all: { readonly ms: number[]; readonly cpu_ms: number; readonly checks: number }[] = [];
for (let round = 0; round < Number(rounds); round++) {
  const unit_ms = p384_us().check / 1e3;
  const ms: number[] = [];
  const before = process.cpuUsage();
  for (const end = performance.now() + ROUND_MS; performance.now() < end; ) ms.push((await timed()).ms);
  const { user, system } = process.cpuUsage(before);
  const cpu_ms = (user + system) / 1e3 / ms.length;
  all.push({ ms, cpu_ms, checks: cpu_ms / unit_ms });
}
const verified: Verified = {
  cold_ms: cold.ms,
  cold_cpu_ms: cold.cpu_ms,
  p50_ms: median(all.flatMap(({ ms }) => ms)),
  cpu_ms: median(all.map(({ cpu_ms }) => cpu_ms)),
  checks: median(all.map(({ checks }) => checks)),
};
console.log(JSON.stringify(verified));
