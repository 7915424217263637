// The gateway as a process of its own on a free port, as an operator starts it.
import { fileURLToPath } from 'node:url';
import { NODE_FLAGS } from '../../gateway/base/config.ts';
import { eventually, type GatewaySettings } from './harness.ts';
import { ROOT, type RunningProcess, startCommand } from './process.ts';
import { healthOn } from './refusals.ts';

/** A gateway that serves does so in this time, on a busy machine too. */
const SERVES_MS = 20_000;
const MAIN = fileURLToPath(new URL('../../gateway/main.ts', import.meta.url));
/** The same with other constants. */
const MAIN_WITH_LIMITS = fileURLToPath(new URL('gateway-main.ts', import.meta.url));

export interface GatewayProcess extends RunningProcess {
  /** `http://127.0.0.1:PORT`, or https. */
  readonly url: string;
  /** Its log lines so far. */
  lines(): Record<string, unknown>[];
  /**
   * Ends it after a test. @throws when it does not serve any more, on a new connection, although nobody has told it to end; or when it
   * has ended by an error that nothing caught
   */
  stop(signal?: NodeJS.Signals): Promise<void>;
}

export interface GatewayProcessOptions {
  readonly cwd?: string;
  /** A file for its log. */
  readonly log?: string | null;
  /** Of Node, beside those that it always has. */
  readonly flags?: readonly string[];
  /** What it may have of the machine, from its first instruction on. */
  readonly bounds?: Bounds;
}

export interface Bounds {
  /** The `cgroup.procs` file of the group that it belongs to. */
  readonly cgroup_procs: string;
  /** `ulimit -n`. */
  readonly descriptors: number;
}

/** Starts it, and waits until it listens. @throws when it does not within 20 s. */
export async function startGatewayProcess(
  settings: GatewaySettings,
  { cwd = ROOT, log = null, flags = [], bounds }: GatewayProcessOptions = {},
): Promise<GatewayProcess> {
  const { limits, ...env } = settings;
  const main = limits === undefined ? MAIN : MAIN_WITH_LIMITS;
  const constants = limits === undefined ? {} : { TEST_LIMITS: JSON.stringify(limits) };
  const node = [process.execPath, ...NODE_FLAGS, ...flags, main];
  const [program = '', ...args] = bounds === undefined ? node : bounded(node, bounds);
  const started = startCommand(program, args, { PORT: '0', ALLOW_SIMULATED: '1', ...constants, ...env }, cwd, log);
  const lines = () =>
    started
      .output()
      .split('\n')
      // A full disk takes half of a line.
      .filter((line) => /^\{.*\}$/.test(line))
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  const listening = () => lines().filter((line) => line.msg === 'listening');
  await eventually(() => listening().length > 0 || started.child.exitCode !== null, 20_000).catch((error) => {
    started.child.kill('SIGKILL');
    throw error;
  });
  if (listening().length === 0) throw new Error(`the gateway ended: ${started.output()}`);
  // A gateway that waited for secrets listens twice, at last perhaps with TLS.
  const url = () => urlOf(listening().at(-1) as Record<string, unknown>);
  const stop = async (signal: NodeJS.Signals = 'SIGKILL'): Promise<void> => {
    const { child, kill } = started;
    const running = () => child.exitCode === null && child.signalCode === null;
    const told = () => lines().some(({ msg }) => msg === 'draining');
    const serves = () => healthOn(url()).catch(() => null);
    let served = !running() || told();
    try {
      if (!served) await eventually(async () => (await serves()) !== null || told() || !running(), SERVES_MS);
      served ||= running() || told();
    } finally {
      if (running()) await kill(signal);
    }
    const uncaught = lines().find(({ msg }) => msg === 'uncaught error');
    if (uncaught !== undefined) throw new Error(`an uncaught error in the gateway: ${JSON.stringify(uncaught)}`);
    if (!served) throw new Error(`the gateway ended although nobody told it to: ${started.output()}`);
  };
  return {
    ...started,
    get url() {
      return url();
    },
    lines,
    stop,
  };
}

/** Of a line that says that a process listens. */
function urlOf({ address, tls }: Record<string, unknown>): string {
  return `http${tls === true ? 's' : ''}://127.0.0.1:${(address as { port: number }).port}`;
}

/** A shell that limits itself, and then becomes the command. */
function bounded(command: readonly string[], { cgroup_procs, descriptors }: Bounds): string[] {
  const script = 'echo $$ > "$0" && ulimit -n "$1" && shift && exec "$@"';
  return ['/bin/sh', '-c', script, cgroup_procs, String(descriptors), ...command];
}
