// One watch: rounds over all nodes, a bounded number at a time, whose results go to the history, then to site, metrics and webhook.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Arguments } from '../../verify/cli/args.ts';
import { collateralFor } from '../../verify/cli/collateral-folder.ts';
import { UsageError, unusable } from '../../verify/cli/input.ts';
import { optionsOf } from '../../verify/cli/options.ts';
import { plain } from '../../verify/cli/report.ts';
import type { VerifyOptions } from '../../verify/index.ts';
import { type Alarms, createAlarms } from './alarms.ts';
import { type Board, createBoard, judge, type State } from './board.ts';
import { createReferenceSearch } from './endorsements.ts';
import { type History, openHistory, readHistory } from './history.ts';
import { lockFolder } from './lock.ts';
import { metricsText } from './metrics.ts';
import { type Node, type Nodes, readNodes } from './nodes.ts';
import { type ProbeOptions, probe } from './probe.ts';
import { openProofs, type Proofs, writeWhole } from './proofs.ts';
import { releaseSearch } from './release.ts';
import { siteOf } from './site.ts';
import { changeInWords, LABELS, labelOf, sentenceOf, timeInWords } from './words.ts';

const AT_A_TIME = 16;
/** A processor may take a minute to sign a session. */
const PROBE_MS = 90_000;
const UNITS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000 };
const [MIN_EVERY_MS, MAX_EVERY_MS] = [10_000, 86_400_000];
const [MIN_DISK_MIB, DISK_MIB] = [8, 1024];
const MIB = 1024 * 1024;
/** What the history may take of the disk, and each of its files of that. */
const [HISTORY_PART, FILE_PART] = [4, 8];
const MAX_FILE_BYTES = 4 * MIB;
/** Rounds do not begin by the clock: by how much of the interval they may be early or late. */
const JITTER = 0.1;

export interface Settings {
  readonly folder: string;
  readonly every_ms: number;
  readonly once: boolean;
  readonly max_bytes: number;
  readonly json: boolean;
  /** Of one node. */
  readonly timeout_ms: number;
}

interface Watch {
  readonly nodes: Nodes;
  readonly settings: Settings;
  readonly options: ProbeOptions;
  readonly board: Board;
  readonly history: History;
  readonly proofs: Proofs;
  readonly alarms: Alarms;
}

/** @returns the exit status @throws {UsageError} */
export async function run(args: Arguments): Promise<number> {
  const settings = settingsIn(args);
  const { since } = args.values as { since?: string };
  if (since !== undefined) return changesSince(settings, since);
  const [file, ...more] = args.operands;
  if (file === undefined || more.length > 0) throw new UsageError('watch needs one file NODES');
  const nodes = readNodes(file);
  return watch(nodes, settings, verifyOptionsOf(args), await releaseSearch(args, nodes));
}

function verifyOptionsOf(args: Arguments): VerifyOptions {
  const silent = () => {};
  // Bundles come from the nodes.
  const { expected: _, policy: __, bundles: ___, ...options } = optionsOf(args, silent);
  return { ...options, collateral: collateralFor(args, silent) };
}

/** @throws {UsageError} */
function settingsIn(args: Arguments): Settings {
  const { out, every = '5m', 'max-disk': disk = String(DISK_MIB) } = args.values as Record<string, string | undefined>;
  if (out === undefined) throw new UsageError('watch needs --out DIR');
  const [, count = '', unit = ''] = /^(\d{1,5})([smh])$/.exec(every) ?? [];
  const every_ms = Number(count) * (UNITS[unit] ?? Number.NaN);
  if (!(every_ms >= MIN_EVERY_MS && every_ms <= MAX_EVERY_MS))
    throw new UsageError(`--every ${every}: not a time from 10s to 24h`);
  if (!/^\d{1,7}$/.test(disk) || Number(disk) < MIN_DISK_MIB)
    throw new UsageError(`--max-disk ${disk}: not a number of MiB from ${MIN_DISK_MIB}`);
  const once = args.values.once === true;
  return { folder: out, every_ms, once, max_bytes: Number(disk) * MIB, json: args.json, timeout_ms: PROBE_MS };
}

function made(folder: string): void {
  try {
    mkdirSync(join(folder, 'history'), { recursive: true });
  } catch (error) {
    throw unusable(folder, error);
  }
}

/** @returns the exit status @throws {UsageError} */
export async function watch(
  nodes: Nodes,
  settings: Settings,
  verify: VerifyOptions,
  findRelease: ProbeOptions['findRelease'],
): Promise<number> {
  made(settings.folder);
  const release = lockFolder(settings.folder);
  try {
    return await rounds(nodes, settings, verify, findRelease);
  } finally {
    release();
  }
}

async function rounds(
  nodes: Nodes,
  settings: Settings,
  verify: VerifyOptions,
  findRelease: ProbeOptions['findRelease'],
): Promise<number> {
  const board = createBoard();
  const file_bytes = Math.min(MAX_FILE_BYTES, settings.max_bytes / HISTORY_PART / FILE_PART);
  const history = openHistory(join(settings.folder, 'history'), nodes.watch, file_bytes, (entry) => board.take(entry));
  const { collateral } = verify;
  const findReferences =
    collateral === undefined || nodes.next_drivers.length === 0
      ? async () => null
      : createReferenceSearch({ collateral, roots: verify.roots }, nodes.next_drivers);
  const alarms = createAlarms(nodes.webhook);
  const proofs = openProofs(settings.folder);
  const options = { verify, timeout_ms: settings.timeout_ms, findRelease, findReferences };
  const one: Watch = { nodes, settings, options, board, history, proofs, alarms };
  if (history.cut > 0) {
    console.error(`countersign: the last line of the history was cut off (${history.cut} bytes); it is removed`);
    history.append({ kind: 'cut', bytes: history.cut }, new Date());
  }
  const ending = new AbortController();
  const end = () => ending.abort();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, end);
  try {
    for (;;) {
      const states = await round(one, ending.signal);
      if (settings.once || ending.signal.aborted) return settings.once ? statusOf(states) : 0;
      await pause(settings.every_ms * (1 + JITTER * (2 * Math.random() - 1)), ending.signal);
      if (ending.signal.aborted) return 0;
    }
  } finally {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.off(signal, end);
    history.close();
  }
}

/** 0: all proven. 1: one failed. 3: none failed, and one is away or was not checked. */
function statusOf(states: readonly State[]): number {
  if (states.includes('failed')) return 1;
  return states.every((state) => state === 'good') ? 0 : 3;
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', done);
  });
}

/** Asks every node once. @returns their states, of those that were asked */
async function round(one: Watch, signal: AbortSignal): Promise<State[]> {
  const began_ms = performance.now();
  const waiting = [...one.nodes.nodes];
  const states: State[] = [];
  const work = async () => {
    for (let node = waiting.shift(); node !== undefined && !signal.aborted; node = waiting.shift()) {
      const state = await ask(one, node, signal);
      if (state !== null) states.push(state);
    }
  };
  const workers = Array.from({ length: AT_A_TIME }, () =>
    work().catch((error) => {
      // What one cannot write, no other can: they end, and then the round does.
      waiting.length = 0;
      throw error;
    }),
  );
  const failed = (await Promise.allSettled(workers)).find((worker) => worker.status === 'rejected');
  if (failed !== undefined) throw failed.reason;
  publish(one, performance.now() - began_ms);
  const trouble = await one.alarms.send();
  if (trouble !== null) console.error(`countersign: ${trouble}`);
  return states;
}

/** null: the watch ends. @throws {UsageError} where the disk does not take it */
async function ask(
  { nodes, options, board, history, proofs, alarms, settings }: Watch,
  node: Node,
  signal: AbortSignal,
) {
  const probed = await probe(node, options, signal);
  if (signal.aborted) return null;
  const at = new Date();
  const entry = judge(node, probed, board.standings.get(node.name) ?? null, nodes.misses, at);
  const change = board.take(history.append({ ...entry, proofs: probed.received.map((one) => proofs.keep(one)) }, at));
  if (change !== null) {
    alarms.add(change, nodes.watch);
    if (!settings.json) console.log(plain(`${timeInWords(change.entry.time)}  ${changeInWords(change)}`));
  }
  return entry.state;
}

function publish({ nodes, settings, board, history, proofs }: Watch, round_ms: number): void {
  const { folder, every_ms, once, max_bytes } = settings;
  history.keep(max_bytes / HISTORY_PART);
  proofs.drop(max_bytes - max_bytes / HISTORY_PART);
  const at = new Date();
  const due = once ? null : new Date(at.getTime() + every_ms * (1 + JITTER) + Math.max(round_ms, settings.timeout_ms));
  const names = nodes.nodes.map(({ name }) => name);
  const { head, oldest, files } = history;
  const site = siteOf({ watch: nodes.watch, names, board, head, oldest, files, at, due, has: proofs.has });
  const standings = new Map([...board.standings].filter(([name]) => names.includes(name)));
  const bytes = history.bytes + proofs.bytes;
  const metrics = metricsText({ standings, entries: head.entry, bytes, round_ms, at });
  for (const [name, text] of Object.entries({ ...site, 'metrics.prom': metrics }))
    writeWhole(join(folder, name), Buffer.from(text));
  if (settings.json) console.log(site['status.json']);
}

/** Prints the changes after a time or an entry, and how each node is now. @throws {UsageError} for a history that is not whole */
function changesSince({ folder, json }: Settings, since: string): number {
  const entry = /^\d{1,8}$/.test(since) ? Number(since) : null;
  const time_ms = entry === null ? Date.parse(since) : null;
  if (Number.isNaN(time_ms))
    throw new UsageError(`--since ${since}: neither a time (ISO 8601) nor the number of an entry`);
  const board = createBoard();
  const changes: object[] = [];
  const print = (line: string) => json || console.log(plain(line));
  const isLater = (one: { entry: number; time: string }) =>
    entry === null ? Date.parse(one.time) > (time_ms ?? 0) : one.entry > entry;
  const { head, oldest } = readHistory(join(folder, 'history'), null, (one) => {
    const change = board.take(one);
    if (change === null || !isLater(change.entry)) return;
    changes.push({ ...change.entry, was: change.was, sentence: sentenceOf(change.entry) });
    print(`${change.entry.entry}  ${timeInWords(change.entry.time)}  ${changeInWords(change)}`);
  });
  const standings = [...board.standings];
  const now = standings.map(([node, { last }]) => ({ node, state: last?.state ?? 'away' }));
  if (changes.length === 0) print('nothing changed');
  const labels = standings.map(
    ([node, { last }]) => `${node} ${(last === null ? LABELS.away : labelOf(last)).toLowerCase()}`,
  );
  print(`now: ${labels.join(', ')}`);
  print(`entries ${oldest} to ${head.entry}, each after the one before; the SHA-256 of the last: ${head.sha256}`);
  if (json) console.log(JSON.stringify({ head, oldest, changes, now }, null, 2));
  return 0;
}
