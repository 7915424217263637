// What an attack happens to: a gateway in a container's own bounds, and a client that means well.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect, type TestContext } from 'vitest';
import { chatAnswer } from '../../support/backend.ts';
import { ask } from '../../support/client.ts';
import { type Folder, type GatewaySettings, temporaryFolder } from '../../support/harness.ts';
import { type SidecarSettings, Stage } from '../stage.ts';
import { COMPOSE } from './compose.ts';
import { createMemoryGroup, type MemoryGroup } from './memory-group.ts';
import type { PeacefulOptions, Times } from './peaceful.ts';

/** The API keys that there are: the peaceful client's, and the attacker's. */
export const PEACEFUL_KEY = 'a-peaceful-key-of-at-least-32-characters';
export const ATTACKERS_KEY = 'an-attackers-key-of-at-least-32-characters';

/** `ATTACK_ELSEWHERE=1` attacks another gateway, and measures one that is left in peace: what sharing the machine's cores with an attack costs. */
const ELSEWHERE = process.env.ATTACK_ELSEWHERE === '1';

const PEACE_MS = 5_000;
const WARM_MS = 2_000;
/** A machine with two cores that others use too: below this a p99 says nothing about the gateway. */
const FLOOR_MS = 750;
const TIMES_PEACE = 5;
const HEALTH_LIMIT_MS = 1_000;
const PEACEFUL_CLIENTS = 4;

export interface AttackStageOptions {
  readonly gateway?: GatewaySettings;
  readonly sidecar?: SidecarSettings;
  /** The limits of every key, as the line `*` has them. */
  readonly every_key?: string;
  /** By default what compose.yaml gives the gateway. */
  readonly memory_bytes?: number;
  readonly descriptors?: number;
  readonly peaceful?: Partial<PeacefulOptions>;
}

export interface Seen {
  readonly peace: Times;
  readonly attacked: Times;
  /** Processes of the gateway that the kernel has killed. */
  readonly killed: number;
  readonly alive: boolean;
  readonly peak_bytes: number;
  /** What the attack's process says of itself; undefined where it did not end well. */
  readonly attack: unknown;
}

export class AttackStage {
  readonly stage: Stage;
  readonly #group: MemoryGroup;
  readonly #peaceful: ChildProcess;
  readonly #folder: Folder;
  /** The one that is attacked in place of `stage`, where that is asked for. */
  readonly #elsewhere: Stage | null;

  private constructor(
    stage: Stage,
    elsewhere: Stage | null,
    group: MemoryGroup,
    peaceful: ChildProcess,
    folder: Folder,
  ) {
    this.stage = stage;
    this.#elsewhere = elsewhere;
    this.#group = group;
    this.#peaceful = peaceful;
    this.#folder = folder;
  }

  /** Ends with the test. The backend answers every request at once, and keeps nothing of it: what is slow is the gateway. */
  static async start(context: TestContext, options: AttackStageOptions = {}): Promise<AttackStage> {
    const { gateway = {}, memory_bytes = COMPOSE.memory_bytes, descriptors = COMPOSE.descriptors } = options;
    const group = createMemoryGroup(memory_bytes);
    if (group === null) {
      console.error(
        `NOT RUN: "${context.task.name}": no memory cgroup can be made here. Run as root, outside of a sandbox.`,
      );
      return context.skip('needs a memory cgroup: run as root');
    }
    const folder = temporaryFolder();
    const keys = join(folder.path, 'keys');
    const everyKey = options.every_key === undefined ? '' : `* ${options.every_key}\n`;
    writeFileSync(keys, `${everyKey}${PEACEFUL_KEY}\n${ATTACKERS_KEY}\n`);
    const start = () =>
      Stage.start({
        gateway: { API_KEYS_FILE: keys, LOG_LEVEL: 'info', ...gateway },
        sidecar: options.sidecar ?? {},
        bounds: { cgroup_procs: group.procs, descriptors },
      });
    const stage = await start().catch(async (error) => {
      folder.remove();
      await group.remove();
      throw error;
    });
    const { backend, url } = stage;
    // Where the page was not built, as it is in the image, the gateway bundles it when it is asked for it first.
    await ask(url, { method: 'GET' });
    const answered = chatAnswer('Hello.');
    backend.script = (request, response) => {
      backend.seen.length = 0;
      return answered(request, response);
    };
    const peaceful = forked('peaceful.ts', {
      url: stage.url,
      key: PEACEFUL_KEY,
      tee: false,
      connections: 'kept',
      probe_connections: 'new',
      clients: PEACEFUL_CLIENTS,
      health_limit_ms: HEALTH_LIMIT_MS,
      ...options.peaceful,
    } satisfies PeacefulOptions);
    const attacked = new AttackStage(stage, ELSEWHERE ? await start() : null, group, peaceful, folder);
    context.onTestFinished(() => attacked.#close());
    await sleep(WARM_MS);
    await attacked.#times();
    return attacked;
  }

  /** Measures peace, then runs an attack (`file` beside this one, see attack.ts) for `ms` and measures meanwhile. */
  async under(file: string, options: object, ms: number): Promise<Seen> {
    await sleep(PEACE_MS);
    const peace = await this.#times();
    const { url } = this.#elsewhere ?? this.stage;
    const attacker = forked(file, { url, key: ATTACKERS_KEY, ms, options });
    let attack: unknown;
    attacker.on('message', ({ result }: { result: unknown }) => {
      attack = result;
    });
    await once(attacker, 'exit');
    const attacked = await this.#times();
    const { child } = this.stage.gateway;
    return {
      peace,
      attacked,
      killed: this.#group.killed,
      alive: child.exitCode === null && child.signalCode === null,
      peak_bytes: this.#group.peak_bytes,
      attack,
    };
  }

  /** What the peaceful client has seen since this was asked last. */
  async #times(): Promise<Times> {
    this.#peaceful.send('times');
    const [times] = await once(this.#peaceful, 'message');
    return times;
  }

  async #close(): Promise<void> {
    this.#peaceful.disconnect();
    await this.stage.close();
    await this.#elsewhere?.close();
    this.#folder.remove();
    await this.#group.remove();
  }
}

/** Nobody was brought down: every process lives, /health answered in time, and the peaceful client hardly noticed. */
export function expectUnharmed({ peace, attacked, killed, alive, peak_bytes, attack }: Seen): void {
  const [calm_ms, attacked_ms] = [percentile(peace.chat, 99), percentile(attacked.chat, 99)];
  const seen = {
    p50: [percentile(peace.chat, 50), percentile(attacked.chat, 50)],
    p99: [calm_ms, attacked_ms],
    chats: [peace.chat.length, attacked.chat.length],
    slowest_health: Math.round(Math.max(...attacked.health)),
    failed: attacked.failed,
    peak_mib: Math.round(peak_bytes / 1024 / 1024),
    attack,
  };
  console.log(`peace, attack: ${JSON.stringify(seen)}`);
  expect({ killed, alive, failed: attacked.failed }, JSON.stringify(seen)).toEqual({
    killed: 0,
    alive: true,
    failed: {},
  });
  expect(peace.chat.length).toBeGreaterThan(20);
  expect(attacked.chat.length).toBeGreaterThan(20);
  expect(attacked.health.length).toBeGreaterThan(5);
  expect(attack, 'the attack did not end well').toBeDefined();
  expect(attacked_ms, `p99 of chat: ${JSON.stringify(seen)}`).toBeLessThan(Math.max(FLOOR_MS, TIMES_PEACE * calm_ms));
}

export function percentile(times: readonly number[], percent: number): number {
  const sorted = times.toSorted((a, b) => a - b);
  return Math.round(sorted[Math.ceil((percent / 100) * sorted.length) - 1] ?? Number.NaN);
}

function forked(file: string, given: object): ChildProcess {
  const path = fileURLToPath(new URL(file, import.meta.url));
  return fork(path, [JSON.stringify(given)], { execArgv: ['--max-old-space-size=4096'], stdio: 'inherit' });
}
