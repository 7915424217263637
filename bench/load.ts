// The load generator's process: whole answers in closed or open loop, paced streams, and silent ones, over undici.
import { Pool } from 'undici';
import { cpu_us, machine_us, serve } from './processes.ts';
import { type Aim, now_us, requestBody, type Scene, STAMP, sleep, wrongStream, wrongWhole } from './wire.ts';

/** Processes whose CPU is read at the beginning and at the end of what is measured. */
export interface Watch {
  readonly proxy: readonly number[];
  readonly sidecar: readonly number[];
  /** The bench's own. */
  readonly bench: readonly number[];
}
export interface Result {
  readonly elapsed_us: number;
  readonly proxy_us: number;
  readonly sidecar_us: number;
  /** CPU of everybody else on the machine. */
  readonly foreign_us: number;
  /** Answers, or chunks of streams, while CPU was counted. */
  readonly count: number;
  /** Of whole answers; of streams, to the first chunk. */
  readonly latency_us: readonly number[];
  /** From a chunk's writing to its arrival. */
  readonly ages_us: readonly number[];
  /** How many answers were wrong, and the first reason. */
  readonly wrong: string | null;
}

interface Job {
  readonly aim: Aim;
  readonly watch: Watch;
  readonly duration_ms: number;
}
type ClosedJob = Job & { readonly scene: Scene; readonly concurrency: number; readonly warm_ms: number };
type OpenJob = Job & { readonly scene: Scene; readonly rate: number };
type PacedJob = Job & { readonly streams: number; readonly rate: number };

const LAST_ANSWERS_MS = 30_000;
const STAGGER_MS = 500;
/** Streams are opened so many at a time. */
const OPEN_AT_ONCE = 50;
/** Up to this rate a request leaves on the microsecond; above it on a turn of a timer, to leave the cores to others. */
const EXACT_RATE = 200;

const poolOf = ({ port }: Aim) =>
  new Pool(`http://127.0.0.1:${port}`, { pipelining: 1, connections: null, headersTimeout: 0, bodyTimeout: 0 });

function judge() {
  let wrong = 0;
  let first: string | null = null;
  return {
    take(reason: string | null) {
      if (reason === null) return;
      wrong++;
      first ??= reason;
    },
    verdict: () => (wrong === 0 ? null : `${wrong} wrong, first: ${first}`),
  };
}

/** Counts from now on; the function returned says what it cost. */
function meter({ proxy, sidecar, bench }: Watch) {
  const read = () => {
    const [proxy_us, sidecar_us] = [cpu_us(proxy), cpu_us(sidecar)];
    const foreign_us = machine_us() - proxy_us - sidecar_us - cpu_us(bench);
    return { elapsed_us: now_us(), proxy_us, sidecar_us, foreign_us };
  };
  const from = read();
  return () => {
    const to = read();
    return {
      elapsed_us: to.elapsed_us - from.elapsed_us,
      proxy_us: to.proxy_us - from.proxy_us,
      sidecar_us: to.sidecar_us - from.sidecar_us,
      foreign_us: Math.max(0, to.foreign_us - from.foreign_us),
    };
  };
}

/** Asks once; the promise gives why the answer is wrong, and null when it is right. `onChunk` gets each chunk's age. */
function ask(pool: Pool, aim: Aim, scene: Scene, onChunk: (age_us: number) => void = () => {}): Promise<string | null> {
  const body = requestBody(scene, aim.tee);
  const headers = { 'content-type': 'application/json', accept: 'application/json', ...aim.headers };
  const wanted = scene.kind === 'paced' ? scene.chunks : 1;
  const parts: Buffer[] = [];
  let status = 0;
  let chunks = 0;
  let rest = '';
  function stamps(bytes: Buffer): void {
    rest += bytes.toString('latin1');
    const now = now_us();
    let end = 0;
    // Behind the last chunk raw repeats the stamps.
    for (STAMP.lastIndex = 0; chunks < wanted; end = STAMP.lastIndex) {
      const found = STAMP.exec(rest);
      if (found === null) break;
      chunks++;
      onChunk(now - Number(found[1]));
    }
    rest = rest.slice(chunks < wanted ? Math.max(end, rest.length - 16) : end);
  }
  return new Promise((resolve) => {
    pool.dispatch(
      { path: '/v1/chat/completions', method: 'POST', headers, body },
      {
        onRequestStart() {},
        onResponseStart(_controller, code) {
          status = code;
        },
        onResponseData(_controller, bytes) {
          if (scene.kind === 'whole') parts.push(bytes);
          else stamps(bytes);
        },
        onResponseEnd() {
          if (status !== 200) resolve(`status ${status}`);
          else if (scene.kind !== 'whole') resolve(wrongStream(chunks, rest, wanted, aim.tee));
          else resolve(wrongWhole(Buffer.concat(parts).toString('utf8'), aim));
        },
        onResponseError: (_controller, error) => resolve(error.message || error.name),
      },
    );
  });
}

/** As many as are answered, from so many connections. */
async function closed({ aim, scene, watch, concurrency, warm_ms, duration_ms }: ClosedJob): Promise<Result> {
  const pool = poolOf(aim);
  const judged = judge();
  let over = false;
  let latency_us: number[] = [];
  const client = async () => {
    while (!over) {
      const asked_us = now_us();
      const wrong = await ask(pool, aim, scene);
      if (over) return;
      judged.take(wrong);
      latency_us.push(now_us() - asked_us);
      if (wrong !== null) await sleep(10);
    }
  };
  const clients = Array.from({ length: concurrency }, client);
  await sleep(warm_ms);
  latency_us = [];
  const spent = meter(watch);
  await sleep(duration_ms);
  const cost = spent();
  const counted = latency_us;
  over = true;
  await pool.destroy();
  await Promise.all(clients);
  return { ...cost, count: counted.length, latency_us: counted, ages_us: [], wrong: judged.verdict() };
}

/** So many a second, whether or not earlier ones were answered. A latency counts from when its request was due. */
async function open({ aim, scene, watch, rate, duration_ms }: OpenJob): Promise<Result> {
  const pool = poolOf(aim);
  const judged = judge();
  const latency_us: number[] = [];
  const warm = 10;
  const count = Math.round((duration_ms / 1e3) * rate);
  let running = 0;
  let spent = meter(watch);
  for (let i = 0, due_us = now_us(); i < count + warm; i++, due_us += 1e6 / rate) {
    const [due, counted] = [due_us, i >= warm];
    const left_ms = (due - now_us()) / 1e3;
    const early_ms = rate > EXACT_RATE ? 0 : 1.5;
    if (left_ms > early_ms) await sleep(left_ms - early_ms);
    while (now_us() < due) await new Promise(setImmediate);
    if (i === warm) spent = meter(watch);
    running++;
    void ask(pool, aim, scene).then((wrong) => {
      running--;
      judged.take(wrong);
      if (counted) latency_us.push(now_us() - due);
    });
  }
  for (const end = now_us() + LAST_ANSWERS_MS * 1e3; running > 0 && now_us() < end; ) await sleep(5);
  if (running > 0) judged.take(`${running} answers did not come within ${LAST_ANSWERS_MS} ms`);
  const cost = spent();
  await pool.destroy();
  return { ...cost, count: latency_us.length, latency_us, ages_us: [], wrong: judged.verdict() };
}

/** Streams at an engine's pace, on connections that have served one before: a new one waits for whoever accepts it. */
async function paced({ aim, watch, rate, duration_ms, streams }: PacedJob): Promise<Result> {
  const pool = poolOf(aim);
  const judged = judge();
  const ages_us: number[] = [];
  const latency_us: number[] = [];
  let counting = false;
  async function begin(ms: number, measured: boolean) {
    const scene: Scene = { kind: 'paced', rate, chunks: Math.ceil((ms / 1e3) * rate) };
    const all: Promise<void>[] = [];
    const start_us = now_us();
    for (let i = 0; i < streams; i++) {
      await sleep(Math.max(0, (start_us - now_us()) / 1e3 + (i * STAGGER_MS) / streams));
      const asked_us = now_us();
      let begun = false;
      const onChunk = (age_us: number) => {
        if (measured && !begun) latency_us.push(now_us() - asked_us);
        begun = true;
        if (counting) ages_us.push(age_us);
      };
      all.push(ask(pool, aim, scene, onChunk).then(judged.take));
    }
    return all;
  }
  await Promise.all(await begin(STAGGER_MS + 200, false));
  // Counted is from when the last stream has begun until before the first ends.
  const all = await begin(STAGGER_MS + duration_ms + 200, true);
  counting = true;
  const spent = meter(watch);
  await sleep(duration_ms);
  const cost = spent();
  counting = false;
  const late = await Promise.race([Promise.all(all), sleep(LAST_ANSWERS_MS).then(() => 'late')]);
  if (late === 'late') judged.take('streams did not end');
  await pool.destroy();
  return { ...cost, count: ages_us.length, latency_us, ages_us, wrong: judged.verdict() };
}

const held: Pool[] = [];

/** Opens streams and keeps them; each has had its first chunk when this returns. Gives what went wrong. */
async function hold({ aim, streams }: { readonly aim: Aim; readonly streams: number }): Promise<string | null> {
  const pool = poolOf(aim);
  held.push(pool);
  const judged = judge();
  for (let opened = 0; opened < streams; opened += OPEN_AT_ONCE) {
    const some = Array.from({ length: Math.min(OPEN_AT_ONCE, streams - opened) }, () => {
      const first = new Promise<null>((resolve) => {
        void ask(pool, aim, { kind: 'hold' }, () => resolve(null)).then((wrong) => judged.take(wrong ?? 'it ended'));
      });
      return Promise.race([first, sleep(10_000).then(() => 'no first chunk')]);
    });
    for (const wrong of await Promise.all(some)) judged.take(wrong);
  }
  return judged.verdict();
}

async function release(): Promise<void> {
  await Promise.all(held.splice(0).map((pool) => pool.destroy()));
}

const functions = { closed, open, paced, hold, release };
export type Load = typeof functions;
serve(functions);
