// Batched proofs against a strict one, verified in turns in one process: what a path costs, in processor time of all threads. Prints JSON.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { inputOf, type Vector, verifyOptions } from '../../scripts/vectors/vector.ts';
import { appraiseAttestation } from '../../verify/index.ts';
import { median } from '../report/stats.ts';

export interface LeafMeasured {
  readonly strict_cpu_ms: number;
  /** By the size of the tree. */
  readonly leaf_cpu_ms: Readonly<Record<number, number>>;
}

const VECTORS = fileURLToPath(new URL('../../vectors/', import.meta.url));
const SIZES = [1, 255, 4096];

function verifying(name: string): () => Promise<number> {
  const vector = JSON.parse(readFileSync(`${VECTORS}cases/${name}.json`, 'utf8')) as Vector;
  const options = verifyOptions(VECTORS, vector.options);
  const input = JSON.stringify(inputOf(VECTORS, vector));
  return async () => {
    const before = process.cpuUsage();
    const { valid } = await appraiseAttestation(input, options);
    if (!valid) throw new Error(`${name} is not valid`);
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1000;
  };
}

const [rounds = 0] = process.argv.slice(2).map(Number);
const all = ['report_signature.pass.good', ...SIZES.map((size) => `raw_hash.pass.batch-of-${size}`)].map(verifying);
const took_cpu_ms: number[][] = all.map(() => []);
for (let round = 0; round < rounds; round++)
  for (const [i, verify] of all.entries()) took_cpu_ms[i]?.push(await verify());
const [strict_cpu_ms = 0, ...leaf_cpu_ms] = took_cpu_ms.map((one) => median(one.slice(rounds >> 2)));
const measured: LeafMeasured = {
  strict_cpu_ms,
  leaf_cpu_ms: Object.fromEntries(SIZES.map((size, i) => [size, leaf_cpu_ms[i] ?? 0])),
};
console.log(JSON.stringify(measured));
