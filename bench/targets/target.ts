// What is measured: something that answers on a port, with the backend behind it.
import type { ChildProcess } from 'node:child_process';
import type { Aim, Watch } from '../jobs.ts';
import { expectation, requestBytes } from '../load/ask.ts';
import { streamReader, wholeReader } from '../load/check.ts';
import { Connection } from '../load/connection.ts';
import type { Scene } from '../scene.ts';
import { sleep } from '../system/clock.ts';
import { tree } from '../system/proc.ts';
import { pidOf, stop } from '../system/process.ts';

export interface Target {
  readonly name: string;
  readonly aim: Aim;
  readonly watch: Watch;
  /** Why its streams cannot be measured; null when a trial stream was right. */
  readonly streams: string | null;
  stop(): Promise<void>;
}

/** A way to start a target. */
export interface TargetKind {
  readonly name: string;
  /** One line for the legend under the tables. */
  readonly about: string;
  /** Not part of a quick run, unless it is named. */
  readonly slow?: boolean;
  /** The figures that it is no part of. */
  readonly without?: readonly string[];
  /** What it can take, where the plan's is too much: requests a second as a low load, silent streams. */
  readonly limits?: { readonly low_rate: number; readonly idle_streams: number };
  /** @throws {Unavailable} when it cannot run here. */
  start(where: Where): Promise<Target>;
}

export interface Where {
  readonly backendPort: number;
  /** For configuration files and sockets; removed at the end. */
  readonly folder: string;
}

/** The target cannot run here, and why: said loudly, never silently left out. */
export class Unavailable extends Error {
  override readonly name = 'Unavailable';
}

const START_MS = 30_000;
const TRY_MS = 2_000;

/** Waits for the first right answer. @throws with what the process said when it does not come. */
export async function ready(
  name: string,
  aim: Aim,
  processes: { proxy: ChildProcess | null; sidecar?: ChildProcess },
  start_ms = START_MS,
): Promise<Target> {
  const children = [processes.proxy, processes.sidecar ?? null].filter((child) => child !== null);
  let said = '';
  for (const child of children)
    child.stderr?.on('data', (data) => {
      said = (said + data).slice(-2_000);
    });
  let wrong: string | null = 'nothing';
  for (const end = performance.now() + start_ms; wrong !== null; await sleep(50)) {
    if (performance.now() > end || children.some((child) => child.exitCode !== null)) {
      await Promise.all(children.map(stop));
      throw new Unavailable(`${name} does not answer rightly (${wrong}) ${said.trim().split('\n').at(-1)}`);
    }
    wrong = await tryOnce(aim, { kind: 'whole', bytes: 1024 });
  }
  return {
    name,
    aim,
    watch: {
      proxy: processes.proxy === null ? [] : tree(pidOf(processes.proxy)),
      sidecar: processes.sidecar === undefined ? [] : tree(pidOf(processes.sidecar)),
      bench: [],
    },
    streams: await tryOnce(aim, { kind: 'burst', chunks: 5 }),
    stop: async () => void (await Promise.all(children.map(stop))),
  };
}

function tryOnce(aim: Aim, scene: Scene): Promise<string | null> {
  const expected = expectation(aim, scene);
  return new Promise((resolve) => {
    const connection = new Connection(aim.port);
    const settle = (wrong: string | null) => {
      clearTimeout(timer);
      connection.leave();
      resolve(wrong);
    };
    const timer = setTimeout(() => settle('no answer'), TRY_MS);
    connection.ask(
      requestBytes(aim, scene),
      scene.kind === 'whole'
        ? wholeReader(expected, ({ wrong }) => settle(wrong))
        : streamReader(
            expected,
            () => {},
            ({ wrong }) => settle(wrong),
          ),
    );
  });
}
