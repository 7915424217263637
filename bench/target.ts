// A target: something that answers on a port, with the bench's backend behind it.
import type { ChildProcess } from 'node:child_process';
import type { Watch } from './load.ts';
import { stop, tree } from './processes.ts';
import { type Aim, requestBody, SMALL, sleep, type Tee, wrongWhole } from './wire.ts';

export interface Where {
  readonly backendPort: number;
  /** For configuration files and sockets; removed at the end. */
  readonly folder: string;
  /** A folder for CPU profiles of ours. */
  readonly profile: string | null;
}
/** What `begin` starts. */
export interface Begun {
  readonly port: number;
  readonly proxy: ChildProcess | null;
  readonly sidecar?: ChildProcess;
  readonly headers?: Readonly<Record<string, string>>;
  readonly start_ms?: number;
}
export interface Kind {
  readonly name: string;
  /** One line for the legend. */
  readonly about: string;
  /** Rewrites answers. Not part of a quick run unless it is named. */
  readonly other?: true;
  /** Far fewer requests a second than the rest. */
  readonly slow?: true;
  /** The checkout that it is of. */
  readonly root?: string;
  readonly tee?: Tee;
  begin(where: Where): Promise<Begun>;
}
export interface Target {
  readonly kind: Kind;
  readonly aim: Aim;
  /** With the processes that it has by now. */
  watch(): Watch;
  stop(): Promise<void>;
}

const START_MS = 30_000;

/** Starts it and waits for the first right answer. @throws with what it said when none comes. */
export async function open(kind: Kind, where: Where, own: readonly number[]): Promise<Target> {
  const { port, proxy, sidecar = null, headers = {}, start_ms = START_MS } = await kind.begin(where);
  const aim: Aim = { port, headers, tee: kind.tee ?? 'none', exact: kind.other !== true };
  const children = [proxy, sidecar].filter((child) => child !== null);
  let said = '';
  for (const child of children)
    child.stderr?.on('data', (data) => {
      said = (said + data).slice(-2_000);
    });
  const stopThem = async () => void (await Promise.all(children.map(stop)));
  for (const end = performance.now() + start_ms; ; await sleep(50)) {
    const wrong = await once(aim).then(
      (body) => wrongWhole(body, aim),
      (error: Error) => error.message,
    );
    if (wrong === null) break;
    if (performance.now() < end && children.every(({ exitCode }) => exitCode === null)) continue;
    await stopThem();
    throw new Error(`it does not answer rightly (${wrong}) ${said.trim().split('\n').at(-1)}`);
  }
  return { kind, aim, watch: () => ({ proxy: tree(proxy), sidecar: tree(sidecar), bench: own }), stop: stopThem };
}

/** One whole answer. */
export async function once(aim: Aim): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${aim.port}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', connection: 'close', ...aim.headers },
    body: requestBody(SMALL, aim.tee),
    signal: AbortSignal.timeout(10_000),
  });
  const body = await response.text();
  if (!response.ok) throw new Error(`status ${response.status}`);
  return body;
}
