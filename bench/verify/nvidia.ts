// NVIDIA's Python verifier on the same genuine evidence, with its services on this machine.

import { servicesFor } from '../../test/nvidia/rows.ts';
import { nvidiaTools } from '../../test/nvidia/tools.ts';
import { nvidiaAppraises } from '../../test/nvidia/verifier.ts';
import { MissingPart } from '../../test/support/debian.ts';
import { median } from '../report/stats.ts';
import { genuineCase } from './subject.ts';

export interface NvidiaMeasured {
  /** In a process that has already verified: median. */
  readonly p50_ms: number;
  /** Processor time of one: median. */
  readonly cpu_ms: number;
  /** The first verification of a process. */
  readonly cold_ms: number;
  /** A process that verifies once, from its start to its end: how it has to be run, because it keeps state between calls. */
  readonly process_ms: number;
}

const ROUNDS = 20;
const PROCESSES = 3;

const toMs = (seconds: number) => seconds * 1000;

/** What it cannot be run without is said, and null returned. */
export async function measureNvidia(): Promise<NvidiaMeasured | null> {
  const tools = toolsOrNull();
  if (tools === null) return null;
  const one = genuineCase();
  const { arch, chain, report, nonce } = one;
  if (arch === 'LS10') throw new TypeError('not a GPU');
  const services = await servicesFor(one);
  const run = async (rounds: number) => {
    const start = performance.now();
    const verdict = await nvidiaAppraises({ arch, chain, report, nonce, rounds }, one.clocks.report, tools, services);
    if (!verdict.valid) throw new Error(`NVIDIA's verifier says no: ${verdict.said[0]}`);
    return {
      took_ms: performance.now() - start,
      rounds_ms: verdict.seconds.map(toMs),
      cpu_ms: verdict.processor_seconds.map(toMs),
    };
  };
  try {
    const many = await run(ROUNDS);
    const [cold_ms = Number.NaN, ...warm_ms] = many.rounds_ms;
    const process_ms: number[] = [];
    for (let i = 0; i < PROCESSES; i++) process_ms.push((await run(1)).took_ms);
    return {
      p50_ms: median(warm_ms),
      cpu_ms: median(many.cpu_ms.slice(1)),
      cold_ms,
      process_ms: median(process_ms),
    };
  } finally {
    await services.close();
  }
}

function toolsOrNull() {
  try {
    return nvidiaTools();
  } catch (error) {
    if (!(error instanceof MissingPart)) throw error;
    console.log(`SKIPPED: NVIDIA's verifier: this machine lacks ${error.message}`);
    return null;
  }
}
