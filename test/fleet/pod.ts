// A "pod" as processes of this machine, on a loopback address of its own: a scripted engine that names itself in its answers, a sidecar with
// a simulated GPU under a root of its own, a gateway on the ports that the chart gives it.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Backend, chatBody, DONE, delta, finish, role, startBackend, stream } from '../support/backend.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { eventually, type Folder, temporaryFolder } from '../support/harness.ts';
import { type RunningProcess, startProcess } from '../support/process.ts';

export const KEYS = ['tenant-a', 'tenant-b'] as const;

export interface Pod {
  readonly name: string;
  readonly ip: string;
  readonly url: string;
  readonly engine: Backend;
  /** The certificate under which its GPU's reports verify. */
  readonly root: string;
  /** As the kernel would when the node is gone. */
  kill(): Promise<void>;
  close(): Promise<void>;
}

export interface PodOptions {
  readonly name: string;
  readonly ip: string;
  readonly storeUrl: string;
  /** How long a signature takes. */
  readonly collectionMs?: number;
  /** Another pod's root folder: two nodes that claim one root. */
  readonly rootDir?: string;
}

export const rootDirOf = (folder: Folder) => join(folder.path, 'root');

/** @throws when one of its processes does not start; none is left running then. */
export async function startPod(options: PodOptions): Promise<Pod> {
  const { name, ip, storeUrl, collectionMs = 20 } = options;
  const folder = temporaryFolder();
  const rootDir = options.rootDir ?? rootDirOf(folder);
  const socket = join(folder.path, 'socket', 'sidecar.sock');
  const processes: RunningProcess[] = [];
  const engine = await startEngine(name);
  const kill = async () => {
    await Promise.all(processes.splice(0).map((one) => one.child.exitCode ?? one.kill('SIGKILL')));
  };
  const close = async () => {
    await kill();
    await engine.close();
    folder.remove();
  };
  try {
    const sidecar = startProcess(
      'demo/twin/main.ts',
      ['--root-dir', rootDir, '--collection-ms', String(collectionMs)],
      {
        SIDECAR_SOCKET: socket,
        COLLATERAL_DIR: join(folder.path, 'collateral'),
      },
    );
    processes.push(sidecar);
    await eventually(() => existsSync(socket), 30_000);
    const keys = join(folder.path, 'keys');
    writeFileSync(keys, KEYS.map((key) => `${key}\n`).join(''), { mode: 0o600 });
    const settings = { BACKEND_URL: engine.url, SIDECAR_SOCKET: socket, API_KEYS_FILE: keys, BATCH: 'off' };
    const addresses = { HOST: ip, PORT: '8080', METRICS_HOST: ip, METRICS_PORT: '9090' };
    processes.push(await startGatewayProcess({ ...settings, ...addresses, ATTESTATION_STORE_URL: storeUrl }));
  } catch (error) {
    await close();
    throw error;
  }
  const root = readFileSync(join(rootDir, 'root.pem'), 'utf8');
  return { name, ip, url: `http://${ip}:8080`, engine, root, kill, close };
}

/** Answers with its pod's name, whole or streamed, each under an id of its own. To `hold` it says so for a minute. */
async function startEngine(pod: string): Promise<Backend> {
  let answers = 0;
  return startBackend((request, response) => {
    const id = `chatcmpl-${pod}-${++answers}`;
    const content = `Answered by ${pod}.`;
    if (/"stream"\s*:\s*true/.test(request.body)) {
      const [deltas, pause_ms] = request.body.includes('"hold"') ? [60, 1_000] : [1, 20];
      const events = [role(), ...Array(deltas).fill(delta(content)), finish(), DONE];
      return stream(
        events.map((event) => event.replace('chatcmpl-1', id)),
        pause_ms,
      )(request, response);
    }
    const body = chatBody(content, id);
    response
      .writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) })
      .end(body);
  });
}
