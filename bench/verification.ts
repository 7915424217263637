// What a verification costs: time and CPU of an attestation, in units of one P-384 check, and of genuine evidence beside NVIDIA's own verifier.
import { join } from 'node:path';
import type { Bench, Question } from './bench.ts';
import { p384_us } from './p384.ts';
import { ROOT, runToEnd } from './processes.ts';
import { least, median, most, type Row } from './report.ts';
import type { Verified } from './verify-once.ts';

const SUBJECTS = [
  ['whole attestation', 'token_report_match.pass.driver-vbios-ueid'],
  ['one of a batch of 4,096', 'raw_hash.pass.batch-of-4096'],
  ['genuine H100 evidence', 'genuine'],
] as const;
const NVIDIAS = `NVIDIA's: ${SUBJECTS[2][0]}`;
const RUN_MS = 120_000;
const NVIDIA_ROUNDS = 8;

/** Kept to one core, so that no thread of another hides in its time. */
async function verify({ plan }: Bench, name: string, root: string, vector: string): Promise<Row> {
  const command = [
    'taskset',
    '-c',
    '0',
    process.execPath,
    join(ROOT, 'bench/verify-once.ts'),
    root,
    vector,
    String(plan.verify_rounds),
  ];
  const { stdout } = await runToEnd(command, RUN_MS);
  return { name, values: { ...(JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as Verified) }, wrong: null };
}

/** NVIDIA's Python verifier over the same evidence, its services on this machine. @throws what it lacks. */
async function nvidia(name: string): Promise<Row> {
  // Only when it is asked for: it looks for what it needs as it is loaded.
  const [{ evidenceCases }, { servicesFor }, { nvidiaTools }, { nvidiaAppraises }] = await Promise.all([
    import('../test/nvidia/cases.ts'),
    import('../test/nvidia/rows.ts'),
    import('../test/nvidia/tools.ts'),
    import('../test/nvidia/verifier.ts'),
  ]);
  const tools = nvidiaTools();
  const one = evidenceCases()[0];
  if (one === undefined || one.arch === 'LS10') throw new Error('there is no genuine evidence of a GPU');
  const services = await servicesFor(one);
  try {
    const { arch, chain, report, nonce } = one;
    const appraisal = { arch, chain, report, nonce, rounds: NVIDIA_ROUNDS };
    const { valid, said, seconds, processor_seconds } = await nvidiaAppraises(
      appraisal,
      one.clocks.report,
      tools,
      services,
    );
    const ms = (all: readonly number[]) => median(all.slice(1)) * 1e3;
    const values = {
      cold_ms: (seconds[0] ?? Number.NaN) * 1e3,
      cold_cpu_ms: (processor_seconds[0] ?? Number.NaN) * 1e3,
      p50_ms: ms(seconds),
      cpu_ms: ms(processor_seconds),
      checks: ms(processor_seconds) / (p384_us().check / 1e3),
    };
    return { name, values, wrong: valid ? null : `it says no: ${said[0]}` };
  } finally {
    await services.close();
  }
}

export const verification: Question = {
  name: 'verification',
  tables: () => [
    {
      name: 'verify',
      title: 'One verification in a process that has made others, and the first of a process',
      columns: [
        { key: 'p50_ms', title: 'p50 ms', digits: 2 },
        { key: 'cpu_ms', title: 'CPU ms', digits: 2 },
        { key: 'checks', title: 'in P-384 checks', digits: 1 },
        { key: 'cold_ms', title: 'first ms', digits: 0 },
        { key: 'cold_cpu_ms', title: 'first CPU ms', digits: 0 },
      ],
    },
  ],
  bars: [
    most('verify p50_ms', 'ours: genuine H100 evidence', 5, 'genuine evidence, p50', ' ms'),
    most('verify cold_ms', 'ours: genuine H100 evidence', 60, 'genuine evidence, the first of a process', ' ms'),
    least('verify p50_ms', `${NVIDIAS} / ours: genuine H100 evidence`, 100, "NVIDIA's verifier against ours, p50"),
    most(
      'verify checks',
      'ours: whole attestation / before: whole attestation',
      1,
      'CPU of a whole one, against before',
    ),
  ],
  async round(bench, turn) {
    const rows: Row[] = [];
    const skip = (what: string, error: Error) =>
      bench.say(`SKIPPED ${what}: ${/^\w*Error.*/m.exec(error.message)?.[0] ?? error.message}`);
    for (const [what, vector] of SUBJECTS)
      for (const [name, root] of Object.entries(bench.checkouts))
        await verify(bench, `${name}: ${what}`, root, vector).then(
          (row) => rows.push(row),
          (error: Error) => skip(`${name}: ${what}`, error),
        );
    if (turn === 0) {
      await nvidia(NVIDIAS).then(
        (row) => rows.push(row),
        (error: Error) => skip(NVIDIAS, error),
      );
    }
    return { verify: rows };
  },
};
