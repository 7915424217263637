// npm run bench -- --attested: proven answers from one GPU, strict and in batches, over collections as long as a real GPU's.

import { number } from '../report/number.ts';
import { median, percentile } from '../report/stats.ts';
import { aligned, type Grid } from '../report/table.ts';
import { describeMachine, machineLine } from '../system/machine.ts';
import { measureCurve, type Point, pointOf } from './curve.ts';
import { memoryOfLeaves } from './leaves.ts';
import { type Answers, openStage, type Stage } from './stage.ts';

const LONGEST_MS = 700;
const COLLECTIONS_MS = [0, 50, 200, LONGEST_MS] as const;
const OFFERED = 500;
const MOONSHOT = 2_000;
const LOAD_MS = 8_000;

interface Row {
  readonly name: string;
  readonly collection_ms: number;
  readonly answers: Answers;
}

interface Bar {
  readonly what: string;
  readonly value: number;
  readonly unit: string;
  readonly bar: number;
  readonly moonshot: number | null;
}

export interface AttestedResults {
  readonly date: string;
  readonly rows: readonly Row[];
  readonly bars: readonly Bar[];
  readonly curve: readonly Point[];
  readonly machine: string;
}

export async function measureAttested(folder: string, say: (line: string) => void): Promise<AttestedResults> {
  const machine = describeMachine();
  console.log(machineLine(machine));
  const rows: Row[] = [];
  const bars: Bar[] = [];
  const curve: Point[] = [];
  for (const collection_ms of COLLECTIONS_MS) {
    say(`collection ${collection_ms} ms …`);
    const measured = await measureCollection(folder, collection_ms);
    rows.push(...measured.rows);
    if (collection_ms !== LONGEST_MS) continue;
    curve.push(...measured.batches.map(([rate, answers]) => pointOf('batch', rate, answers)));
    bars.push(...barsOfLongest(measured));
  }
  say('latency over load …');
  curve.unshift(...(await measureCurve(folder)));
  say('a receipt …');
  const stage = await openStage(folder, { collection_ms: 0, kind: 'receipt' });
  await stage.offer({ rate: OFFERED, duration_ms: 3_000, tee: 'strict' });
  const receipts = await stage.offer({ rate: OFFERED, duration_ms: LOAD_MS, tee: 'strict' });
  rows.push({ name: `a signed receipt, no hardware, ${OFFERED}/s`, collection_ms: 0, answers: receipts });
  await stage.close();
  say('four GPUs …');
  const rates: number[] = [];
  for (const gpus of [1, 4]) {
    const stage = await openStage(folder, { collection_ms: 200, gpus });
    const answers = await stage.saturate(6_000, 16);
    rows.push({ name: `strict, ${gpus} GPU${gpus === 1 ? '' : 's'}, SIGNERS=any`, collection_ms: 200, answers });
    rates.push(answers.per_second);
    await stage.close();
  }
  bars.push({
    what: 'strict answers of four GPUs against one (at least)',
    value: (rates[1] ?? 0) / (rates[0] ?? 1),
    unit: '×',
    bar: 3.5,
    moonshot: null,
  });
  say('10,000 waiting leaves …');
  bars.push({
    what: 'memory of 10,000 waiting leaves in the sidecar',
    value: await memoryOfLeaves(folder, 10_000),
    unit: ' MB',
    bar: 40,
    moonshot: null,
  });
  console.log(aligned(tableOf(rows)));
  console.log(aligned(barsOf(bars)));
  console.log(aligned(curveTable(curve)));
  return {
    date: machine.date,
    rows,
    bars,
    curve,
    machine: `${machine.cores} cores of ${machine.cpu}, ${machine.date.slice(0, 10)}`,
  };
}

interface Measured {
  readonly rows: readonly Row[];
  readonly plain: Answers;
  readonly batch: Answers;
  /** By the rate at which they were offered. */
  readonly batches: readonly [number, Answers][];
  readonly alone: { readonly strict: Answers; readonly batch: Answers };
  readonly beside: Answers;
}

async function measureCollection(folder: string, collection_ms: number): Promise<Measured> {
  const rows: Row[] = [];
  const keep = (name: string, answers: Answers) => {
    rows.push({ name, collection_ms, answers });
    return answers;
  };
  const stage = await openStage(folder, { collection_ms });
  await stage.offer({ rate: OFFERED, duration_ms: 3_000, tee: 'none' });
  await stage.offer({ rate: OFFERED, duration_ms: 3_000, tee: 'batch' });
  const plain = keep(`no tee, ${OFFERED}/s`, await stage.offer({ rate: OFFERED, duration_ms: LOAD_MS, tee: 'none' }));
  const batch = keep(`batch, ${OFFERED}/s`, await stage.offer({ rate: OFFERED, duration_ms: LOAD_MS, tee: 'batch' }));
  const batches: [number, Answers][] = [[OFFERED, batch]];
  for (const rate of collection_ms === LONGEST_MS ? [MOONSHOT] : [])
    batches.push([rate, keep(`batch, ${rate}/s`, await stage.offer({ rate, duration_ms: LOAD_MS, tee: 'batch' }))]);
  const alone = await oneClient(stage, collection_ms);
  keep('one client, strict', alone.strict);
  keep('one client, batch', alone.batch);
  keep('strict, all that the GPU signs', await stage.saturate(Math.max(4_000, 8 * collection_ms)));
  const beside = await besideBatches(stage, collection_ms);
  keep(`strict beside batches of ${OFFERED}/s`, beside);
  await stage.close();
  return { rows, plain, batch, batches, alone, beside };
}

function barsOfLongest({ plain, batch, alone, beside }: Measured): Bar[] {
  const p99 = (answers: Answers) => percentile(answers.latency_ms, 0.99);
  return [
    { what: 'collection 700 ms, 500/s, batch: p99', value: p99(batch), unit: ' ms', bar: 1_500, moonshot: null },
    { what: '  of them not proven', value: batch.wrong, unit: '', bar: 0, moonshot: 0 },
    {
      what: 'one client alone: batch against strict, p50',
      value: median(alone.batch.latency_ms) / median(alone.strict.latency_ms),
      unit: '×',
      bar: 1.02,
      moonshot: null,
    },
    {
      what: 'CPU of gateway and sidecar for a proven answer at 500/s',
      value: batch.cpu_us,
      unit: ' µs',
      bar: 250,
      moonshot: 120,
    },
    { what: 'the same against one without tee', value: batch.cpu_us / plain.cpu_us, unit: '×', bar: 8, moonshot: 4 },
    {
      what: 'strict p99 beside a full load of batches, in collections',
      value: p99(beside) / LONGEST_MS,
      unit: '×',
      bar: 3,
      moonshot: 2,
    },
  ];
}

/** Strict and batch by turns, so that what the machine does meanwhile meets both alike. */
async function oneClient(stage: Stage, collection_ms: number): Promise<{ strict: Answers; batch: Answers }> {
  const found = { strict: [] as Answers[], batch: [] as Answers[] };
  const times = 4;
  for (let turn = 0; turn < times; turn++)
    for (const tee of ['strict', 'batch'] as const)
      found[tee].push(await stage.alone(tee, collection_ms >= 200 ? 5 : 40));
  const joined = (all: readonly Answers[]): Answers => ({
    ...(all[0] as Answers),
    latency_ms: all.flatMap(({ latency_ms }) => latency_ms),
    wrong: all.reduce((sum, { wrong }) => sum + wrong, 0),
  });
  return { strict: joined(found.strict), batch: joined(found.batch) };
}

async function besideBatches(stage: Stage, collection_ms: number): Promise<Answers> {
  const duration_ms = Math.max(6_000, 25 * collection_ms);
  const rate = Math.min(20, 400 / Math.max(collection_ms, 1));
  const batches = stage.offer({ rate: OFFERED, duration_ms, tee: 'batch' });
  const strict = await stage.beside({ rate, duration_ms });
  await batches;
  return strict;
}

function tableOf(rows: readonly Row[]): Grid {
  const heads = ['collection', 'p50 ms', 'p99 ms', 'a second', 'a signature', 'CPU µs', 'of it sidecar'];
  return {
    title: 'Answers of 1 KB from one simulated GPU',
    heads,
    lines: rows.map(({ name, collection_ms, answers }) => ({
      name,
      cells: [
        `${collection_ms} ms`,
        number(percentile(answers.latency_ms, 0.5), 1),
        number(percentile(answers.latency_ms, 0.99), 1),
        number(answers.per_second, 1),
        number(answers.per_signature, 1),
        number(answers.cpu_us, 0),
        number(answers.sidecar_us, 0),
      ],
      ...(answers.wrong === 0 ? {} : { note: `DOES NOT COUNT: ${answers.wrong} wrong, first: ${answers.reason}` }),
    })),
  };
}

function curveTable(points: readonly Point[]): Grid {
  return {
    title: 'Latency over load, arrivals at random times, collection 700 ms (500/s and more: on a clock)',
    heads: ['p50 s', 'p99 s'],
    lines: points.map(({ tee, rate, p50_ms, p99_ms, wrong }) => ({
      name: `${tee}, ${rate}/s`,
      cells: [number(p50_ms / 1e3, 2), number(p99_ms / 1e3, 2)],
      ...(wrong === 0 ? {} : { note: `DOES NOT COUNT: ${wrong} wrong` }),
    })),
  };
}

function barsOf(bars: readonly Bar[]): Grid {
  const verdict = ({ what, value, bar, moonshot }: Bar): string => {
    const holds = (limit: number) => (what.includes('at least') ? value >= limit : value <= limit);
    return moonshot !== null && holds(moonshot) ? 'moonshot' : holds(bar) ? 'pass' : 'MISS';
  };
  return {
    title: 'Bars',
    heads: ['value', 'bar', 'moonshot', ''],
    lines: bars.map((bar) => ({
      name: bar.what,
      cells: [
        `${number(bar.value, 2)}${bar.unit}`,
        `${bar.bar}${bar.unit}`,
        bar.moonshot === null ? '–' : `${bar.moonshot}${bar.unit}`,
        verdict(bar),
      ],
    })),
  };
}
