// What a fault happens to: a gateway and a sidecar as processes of their own, and a scripted backend between them.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Backend, startBackend } from '../support/backend.ts';
import { ask } from '../support/client.ts';
import { type Bounds, type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts';
import { eventually, type Folder, type GatewaySettings, temporaryFolder } from '../support/harness.ts';
import { type RunningProcess, startProcess } from '../support/process.ts';
import { type Cost, costOf } from './cost.ts';
import { echo, sleep } from './words.ts';

const START_MS = 30_000;

/** Variables, and options of the simulated machine. */
export interface SidecarSettings {
  readonly [variable: Uppercase<string>]: string;
  readonly args?: readonly string[];
}

export interface StageOptions {
  readonly gateway?: GatewaySettings;
  readonly sidecar?: SidecarSettings;
  /** Where run/ is: the socket and the simulated root. By default a folder of the stage's own. */
  readonly run?: string;
  /** Where the simulated root is, if not in `run`. */
  readonly root?: string;
  /** A file for the gateway's log. */
  readonly log?: string;
  /** The gateway's. */
  readonly bounds?: Bounds;
}

export class Stage {
  readonly folder: Folder;
  readonly backend: Backend;
  readonly gateway: GatewayProcess;
  /** The one that runs now. */
  sidecar: RunningProcess;
  readonly #startSidecar: () => RunningProcess;
  readonly #root: string;
  readonly #metrics_port: string | undefined;

  private constructor(
    folder: Folder,
    backend: Backend,
    gateway: GatewayProcess,
    startSidecar: () => RunningProcess,
    root: string,
    metrics_port: string | undefined,
  ) {
    this.folder = folder;
    this.backend = backend;
    this.gateway = gateway;
    this.#startSidecar = startSidecar;
    this.#root = root;
    this.#metrics_port = metrics_port;
    this.sidecar = startSidecar();
  }

  /** Resolves when the service is whole. */
  static async start(options: StageOptions = {}): Promise<Stage> {
    const folder = temporaryFolder();
    const backend = await startBackend(echo());
    const run = options.run ?? join(folder.path, 'run');
    const socket = join(run, 'sidecar.sock');
    const root = options.root ?? join(run, 'root');
    const settings: GatewaySettings = {
      BACKEND_URL: backend.url,
      SIDECAR_SOCKET: socket,
      // Soon full, so that what is kept is no growth.
      ATTESTATION_STORE_BYTES: String(4 * 1024 * 1024),
      ...options.gateway,
    };
    const gateway = await startGatewayProcess(settings, {
      log: options.log ?? null,
      ...(options.bounds === undefined ? {} : { bounds: options.bounds }),
    });
    const { args = [], ...sidecar } = options.sidecar ?? {};
    const startSidecar = () =>
      startProcess('demo/twin/main.ts', ['--root-dir', root, ...args], { SIDECAR_SOCKET: socket, ...sidecar });
    const stage = new Stage(folder, backend, gateway, startSidecar, root, settings.METRICS_PORT);
    await stage.whole();
    return stage;
  }

  get url(): string {
    return this.gateway.url;
  }

  /** PEM of the simulated root under which this stage's attestations verify. */
  get root(): string {
    return readFileSync(join(this.#root, 'root.pem'), 'utf8');
  }

  get cost(): Cost {
    return costOf(this.gateway.child.pid as number);
  }

  /** Of the one that runs now. */
  get sidecarCost(): Cost {
    return costOf(this.sidecar.child.pid as number);
  }

  /** Ends the sidecar and starts it again, as a supervisor does. */
  async restartSidecar(signal: NodeJS.Signals): Promise<void> {
    await this.sidecar.kill(signal);
    this.sidecar = this.#startSidecar();
  }

  startSidecar(): void {
    this.sidecar = this.#startSidecar();
  }

  /** Every two seconds, but never within a second of its listening: on a busy machine a start alone can take as long. */
  async restartSidecarWhile(goesOn: () => boolean): Promise<number> {
    let restarts = 0;
    while (goesOn()) {
      await this.restartSidecar(restarts++ % 2 === 0 ? 'SIGKILL' : 'SIGTERM');
      const { sidecar } = this;
      const interval = sleep(2_000);
      await eventually(() => sidecar.output().includes('"listening"'), START_MS);
      await sleep(1_000);
      await interval;
    }
    return restarts;
  }

  /** Resolves when backend and sidecar are there for the gateway. */
  async whole(): Promise<void> {
    await eventually(async () => (await this.health()) === 'ok', START_MS);
  }

  async health(): Promise<string> {
    try {
      return (await ask(`${this.url}/health`, { method: 'GET' })).json().status;
    } catch {
      return 'unreachable';
    }
  }

  /** The text of /metrics, on METRICS_PORT where that is set. */
  async metrics(): Promise<string> {
    const url = this.#metrics_port === undefined ? this.url : `http://127.0.0.1:${this.#metrics_port}`;
    return (await ask(`${url}/metrics`, { method: 'GET' })).text;
  }

  /** A gauge of /metrics; its labels count as part of its name. */
  async gauge(name: string): Promise<number> {
    const text = await this.metrics();
    const line = text.split('\n').find((one) => one.startsWith(`${name} `));
    return line === undefined ? Number.NaN : Number(line.slice(name.length + 1));
  }

  async close(): Promise<void> {
    const { child, kill } = this.sidecar;
    try {
      await this.gateway.stop();
    } finally {
      if (child.exitCode === null && child.signalCode === null) await kill('SIGKILL');
      await this.backend.close();
      this.folder.remove();
    }
  }
}
