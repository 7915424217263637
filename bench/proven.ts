// What proven answers cost: how many a second over GPUs and collection times, their CPU, their bytes, the memory of those that wait.
import { WebSocket } from 'ws';
import { type Bench, costOf, type Question, quiet } from './bench.ts';
import { p384_us } from './p384.ts';
import { memory_bytes, stop, tree } from './processes.ts';
import { least, most, percentile, type Row } from './report.ts';
import { once, open } from './target.ts';
import { ours, type Setting, sidecarAlone } from './targets.ts';
import { type Aim, ANSWER, SMALL, sleep, type Tee } from './wire.ts';

const OFFERED = 500;
/** For each GPU, as many as keep it at work. */
const CLIENTS = 8;
/** A real GPU's collection; answers are held to come within so many of them. */
const LONGEST_MS = 700;
const HELD = 3;
const WAITING = 10_000;
/** So many share the signature whose proof is weighed. */
const SHARING = 300;

type Rows = Record<'rates' | 'cpu' | 'peak' | 'bytes' | 'waiting', Row[]>;

const nodeName = (name: string, { collection_ms, gpus }: Setting): string =>
  `${name}, ${collection_ms} ms, ${gpus} GPU${gpus === 1 ? '' : 's'}`;

/** The two nodes of which every round and every checkout is measured; the others show once how ours grows. */
const isKey = ({ collection_ms, gpus }: Setting): boolean =>
  gpus === 1 && (collection_ms === 0 || collection_ms === LONGEST_MS);

async function measureNode(bench: Bench, name: string, root: string, setting: Setting, found: Rows): Promise<void> {
  const { load, plan, where, own } = bench;
  const { collection_ms, gpus } = setting;
  const target = await open(ours(name, root, 'strict', setting, ''), where, own);
  const watch = target.watch();
  const aimed = (tee: Tee): Aim => ({ ...target.aim, tee });
  const offer = (tee: Tee, rate: number, duration_ms = plan.proven_ms) =>
    load.open({ aim: aimed(tee), scene: SMALL, watch, rate, duration_ms });
  const unit = p384_us();
  const cpu = (what: string, result: Open, signatures: number, by = Number.NaN) => {
    const both = costOf(result);
    const unsigned = both - signatures * unit.sign;
    const [gateway, sidecar] = [result.proxy_us / result.count, result.sidecar_us / result.count];
    const values = { gateway, sidecar, both, unsigned, checks: unsigned / unit.check, times: both / by };
    found.cpu.push({ name: `${name} ${what}`, values, wrong: result.wrong });
  };
  try {
    await offer('none', OFFERED, plan.proven_ms / 2);
    await offer('batch', OFFERED, plan.proven_ms / 2);
    await quiet(bench, [...watch.proxy, ...watch.sidecar]);
    const batch = await offer('batch', OFFERED);
    if (collection_ms === LONGEST_MS && gpus === 1) {
      const none = await offer('none', OFFERED);
      cpu(`without tee, ${OFFERED}/s`, none, 0);
      cpu(`batch, ${OFFERED}/s`, batch, 0, costOf(none));
      for (const tee of ['strict', 'batch'] as const)
        found.bytes.push({ name: `${name} ${tee}`, values: { bytes: await proofBytes(aimed(tee)) }, wrong: null });
      await peak(bench, name, offer, batch, found);
    }
    await quiet(bench, [...watch.proxy, ...watch.sidecar]);
    const duration_ms = Math.max(plan.proven_ms, 8 * collection_ms);
    const job = { aim: aimed('strict'), scene: SMALL, watch, concurrency: CLIENTS * gpus, warm_ms: 2_000, duration_ms };
    const strict = await load.closed(job);
    if (collection_ms === 0 && gpus === 1) cpu('strict, full load', strict, 1);
    const values = { strict: (strict.count / strict.elapsed_us) * 1e6, batch: rateOf(batch, OFFERED, collection_ms) };
    const wrong = strict.wrong ?? batch.wrong;
    found.rates.push({ name: nodeName(name, setting), values: { ...values, ...latencies(batch) }, wrong });
  } finally {
    await target.stop();
  }
}

type Open = Awaited<ReturnType<Bench['load']['open']>>;
const isHeld = ({ latency_us, wrong }: Open, collection_ms: number): boolean =>
  wrong === null && percentile(latency_us, 0.99) / 1e3 <= HELD * collection_ms;
const latencies = ({ latency_us }: Open) => ({
  p50: percentile(latency_us, 0.5) / 1e3,
  p99: percentile(latency_us, 0.99) / 1e3,
});
/** What was offered where it was held; else what came out until the last answer. */
const rateOf = (result: Open, offered: number, collection_ms: number): number =>
  isHeld(result, Math.max(collection_ms, 50)) ? offered : (result.count / result.elapsed_us) * 1e6;

/** The largest rate that is held. */
async function peak(
  { plan, say }: Bench,
  name: string,
  offer: (tee: Tee, rate: number) => Promise<Open>,
  first: Open,
  found: Rows,
): Promise<void> {
  let [best, held] = [0, first];
  for (const rate of plan.rates) {
    const result = rate === OFFERED ? first : await offer('batch', rate);
    if (!isHeld(result, LONGEST_MS)) {
      say(`  ${rate}/s is not held: p99 ${latencies(result).p99.toFixed(0)} ms, ${result.wrong ?? 'all right'}`);
      break;
    }
    [best, held] = [rate, result];
  }
  found.peak.push({ name, values: { rate: best, ...latencies(held) }, wrong: held.wrong });
}

/** What a proof adds to an answer beyond raw, in bytes; of one in a batch, its path through a tree of some hundreds. */
async function proofBytes(aim: Aim): Promise<number> {
  const bodies = await Promise.all(Array.from({ length: aim.tee === 'batch' ? SHARING : 1 }, () => once(aim)));
  const body = bodies.at(-1) ?? '';
  const { attestation } = JSON.parse(body) as { attestation: { raw: string } };
  return Buffer.byteLength(body) - ANSWER.length - Buffer.byteLength(JSON.stringify(attestation.raw));
}

/** Memory of a sidecar before and with answers that wait for a batch, behind a collection that takes its time. */
async function waiting({ where }: Bench, name: string, root: string): Promise<Row> {
  const { socket, sidecar } = await sidecarAlone(root, { collection_ms: 30_000, gpus: 1 }, where);
  try {
    const ws = await connected(socket);
    let refused = 0;
    ws.on('message', (data) => {
      if (/^\{"type":"(?:error|failed)"/.test(data.toString())) refused++;
    });
    const ask = (id: string, more: string) =>
      ws.send(
        Buffer.from(`{"type":"attest","id":"${id}"${more}}\n{"request":{"id":"${id}"},"response":{},"timestamp":1}`),
      );
    ask('first', '');
    await sleep(2_000);
    const pids = tree(sidecar);
    const empty = memory_bytes(pids) / 1e6;
    for (let n = 0; n < WAITING; n++) ask(String(n), ',"batch":"all"');
    await sleep(2_000);
    const full = memory_bytes(pids) / 1e6;
    ws.terminate();
    return {
      name,
      values: { empty, full, more: full - empty },
      wrong: refused === 0 ? null : `${refused} were refused`,
    };
  } finally {
    await stop(sidecar);
  }
}

async function connected(socket: string): Promise<WebSocket> {
  for (let tries = 0; tries < 200; tries++, await sleep(50)) {
    const ws = new WebSocket(`ws+unix://${socket}:/`, { perMessageDeflate: false });
    const greeted = await new Promise<boolean>((resolve) => {
      ws.once('message', () => resolve(true)).once('error', () => resolve(false));
    });
    if (greeted) return ws;
  }
  throw new Error('the sidecar does not come up');
}

export const proven: Question = {
  name: 'proven',
  tables: () => [
    {
      name: 'rates',
      title: `Proven answers by collection time and GPUs: strict from ${CLIENTS} clients a GPU, batches at ${OFFERED}/s offered`,
      columns: [
        { key: 'strict', title: 'strict/s', digits: 1 },
        { key: 'batch', title: 'batch/s', digits: 0 },
        { key: 'p50', title: 'batch p50 ms', digits: 0 },
        { key: 'p99', title: 'batch p99 ms', digits: 0 },
      ],
    },
    {
      name: 'cpu',
      title: `CPU of an answer (strict: collection 0 ms; else ${LONGEST_MS} ms); unsigned: without the twin's signature in software`,
      columns: [
        { key: 'gateway', title: 'gateway µs', digits: 0 },
        { key: 'sidecar', title: 'sidecar µs', digits: 0 },
        { key: 'both', title: 'both µs', digits: 0 },
        { key: 'times', title: '× without tee', digits: 2 },
        { key: 'unsigned', title: 'unsigned µs', digits: 0 },
        { key: 'checks', title: 'in P-384 checks', digits: 2 },
      ],
    },
    {
      name: 'peak',
      title: `Most batched answers a second of those offered with a p99 within ${HELD} collections, one GPU of ${LONGEST_MS} ms`,
      columns: [
        { key: 'rate', title: 'proven/s', digits: 0 },
        { key: 'p50', title: 'p50 ms', digits: 0 },
        { key: 'p99', title: 'p99 ms', digits: 0 },
      ],
    },
    {
      name: 'bytes',
      title: `Bytes of a proof beyond raw (batch: of about ${SHARING})`,
      columns: [{ key: 'bytes', title: 'bytes', digits: 0 }],
    },
    {
      name: 'waiting',
      title: `Memory (PSS) of a sidecar with ${WAITING} answers waiting for a batch`,
      columns: [
        { key: 'empty', title: 'MB before', digits: 1 },
        { key: 'full', title: 'MB with them', digits: 1 },
        { key: 'more', title: 'MB of them', digits: 1 },
      ],
    },
  ],
  bars: [
    most('rates p99', 'ours, 700 ms, 1 GPU', 1_500, 'p99 of batched answers, 700 ms, 500/s', ' ms'),
    least('rates strict', 'ours, 200 ms, 4 GPUs / ours, 200 ms, 1 GPU', 3.5, 'strict answers of four GPUs against one'),
    most('cpu times', 'ours batch, 500/s', 8, 'CPU of a batched proven answer against one without tee, 500/s'),
    most('cpu both', 'ours batch, 500/s / before batch, 500/s', 1, 'CPU of a batched proven answer, against before'),
    most('cpu unsigned', 'ours strict, full load / before strict, full load', 1, 'CPU of a strict one, against before'),
    most('waiting more', 'ours', 40, 'memory of 10,000 waiting answers in the sidecar', ' MB'),
  ],
  async round(bench, turn) {
    const found: Rows = { rates: [], cpu: [], peak: [], bytes: [], waiting: [] };
    const checkouts = Object.entries(bench.checkouts);
    if (turn % 2 === 1) checkouts.reverse();
    const { collections_ms, gpus: counts } = bench.plan;
    for (const setting of collections_ms.flatMap((collection_ms) => counts.map((gpus) => ({ collection_ms, gpus }))))
      for (const [name, root] of checkouts) {
        if (!isKey(setting) && (turn > 0 || name !== 'ours')) continue;
        bench.say(`  ${nodeName(name, setting)}`);
        await quiet(bench);
        await measureNode(bench, name, root, setting, found);
      }
    for (const [name, root] of turn === 0 ? checkouts : []) found.waiting.push(await waiting(bench, name, root));
    return found;
  },
};
