// What is measured: ours, of this checkout and of an earlier one, and what is beside it.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { litellm, portkey, sglang } from './others.ts';
import { freePort, ROOT, start } from './processes.ts';
import type { Kind, Where } from './target.ts';
import type { Tee } from './wire.ts';

/** How ours are run: `collection_ms` is how long the simulated GPU takes for a signature. */
export interface Setting {
  readonly collection_ms: number;
  readonly gpus: number;
}

/** Gateway or sidecar of a checkout: every setting that the bench gives it, and the flags of Node in its `package.json`. */
function startOurs(which: 'gateway' | 'sidecar', root: string, setting: Setting, at: At, { profile }: Where) {
  const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const flags = (scripts[which] as string).split(' ').filter((word) => word.startsWith('--'));
  const profiled = profile === null || which === 'sidecar' ? [] : ['--cpu-prof', `--cpu-prof-dir=${profile}`];
  const [gpus, collection_ms, root_dir] = [String(setting.gpus), String(setting.collection_ms), `${at.socket}.root`];
  const env = {
    HOST: '127.0.0.1',
    PORT: String(at.port),
    BACKEND_URL: `http://127.0.0.1:${at.backendPort}/v1`,
    SIDECAR_SOCKET: at.socket,
    LOG_LEVEL: 'info',
    ALLOW_SIMULATED: '1',
    CANARY_INTERVAL_MS: '0',
    ATTESTER: 'simulated',
    ...(setting.gpus > 1 ? { SIGNERS: 'any' } : {}),
  };
  // A checkout from before the simulated machine had options has settings for it.
  const earlier = !existsSync(join(root, 'demo/twin/options.ts'));
  const simulated = { SIMULATED_GPUS: gpus, SIMULATED_COLLECTION_MS: collection_ms, SIMULATED_ROOT_DIR: root_dir };
  const counts = { ...simulated, MAX_ATTESTATIONS_IN_FLIGHT: String(setting.gpus + 1) };
  const program =
    which === 'sidecar' && !earlier
      ? ['demo/twin/main.ts', '--root-dir', root_dir, '--collection-ms', collection_ms, '--gpus', gpus]
      : [`${which}/main.ts`];
  const command = [process.execPath, ...flags, ...profiled, ...program];
  return start(command, { cwd: root, env: earlier ? { ...env, ...counts } : env });
}
interface At {
  readonly port: number;
  readonly socket: string;
  readonly backendPort: number;
}

/** Ours with a simulated GPU; without one where nobody asks for tee. */
export function ours(name: string, root: string, tee: Tee, setting: Setting | null, about: string): Kind {
  return {
    name,
    about,
    root,
    tee,
    async begin(where) {
      const port = await freePort();
      const at = { port, socket: join(where.folder, `${port}.sock`), backendPort: where.backendPort };
      const of = setting ?? { collection_ms: 0, gpus: 1 };
      const sidecar = setting === null ? {} : { sidecar: startOurs('sidecar', root, of, at, where) };
      return { port, proxy: startOurs('gateway', root, of, at, where), ...sidecar };
    },
  };
}

/** A sidecar and the path of its socket. */
export async function sidecarAlone(root: string, setting: Setting, where: Where) {
  const socket = join(where.folder, `${await freePort()}.sock`);
  return {
    socket,
    sidecar: startOurs('sidecar', root, setting, { port: 0, socket, backendPort: where.backendPort }, where),
  };
}

const direct: Kind = {
  name: 'direct',
  about: 'no proxy: the load generator asks the backend itself',
  begin: async ({ backendPort }) => ({ port: backendPort, proxy: null }),
};

const pipe: Kind = {
  name: 'pipe',
  about: 'bench/pipe.ts: node:http in, node:http out, pipe',
  async begin({ backendPort }) {
    const port = await freePort();
    const env = { PORT: String(port), BACKEND_URL: `http://127.0.0.1:${backendPort}/v1` };
    return { port, proxy: start([process.execPath, 'bench/pipe.ts'], { env }) };
  },
};

const nginx: Kind = {
  name: 'nginx',
  about: 'one process, upstream connections kept, no log, responses not buffered (as event streams need it)',
  async begin({ backendPort, folder }) {
    const { stdout } = spawnSync('sh', ['-c', 'PATH="$PATH:/usr/sbin:/usr/local/sbin"; command -v nginx']);
    const program = stdout.toString().trim();
    if (program === '') throw new Error('it is not installed (apt-get install nginx-light)');
    const port = await freePort();
    const file = join(folder, `nginx-${port}.conf`);
    const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
      (name) => `${name}_temp_path ${join(folder, `nginx-${name}`)};`,
    );
    writeFileSync(
      file,
      `daemon off; master_process off; worker_processes 1; worker_rlimit_nofile 20000;
pid ${file}.pid; error_log stderr crit;
events { worker_connections 9000; }
http {
  access_log off; client_body_buffer_size 256k; keepalive_requests 100000000; keepalive_timeout 600s;
  ${temporary.join(' ')}
  upstream backend { server 127.0.0.1:${backendPort}; keepalive 512; keepalive_requests 100000000; }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    location / {
      proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_read_timeout 600s;
    }
  }
}
`,
    );
    return { port, proxy: start([program, '-c', file, '-e', 'stderr']) };
  },
};

const NO_COLLECTION: Setting = { collection_ms: 0, gpus: 1 };

/** Everything that relays, in the order of the tables. `before`: another checkout of this repository, or null. */
export function kinds(before: string | null): Kind[] {
  const both = (name: string, root: string) => [
    ours(name, root, 'none', null, `the gateway of ${commitOf(root)} in one process, without tee, its log on`),
    ours(`${name} tee`, root, 'strict', NO_COLLECTION, `every answer proven by the software twin, collection 0 ms`),
  ];
  return [
    direct,
    nginx,
    pipe,
    portkey,
    litellm,
    sglang,
    ...both('ours', ROOT),
    ...(before === null ? [] : both('before', before)),
  ];
}

export function commitOf(root: string): string {
  const { status, stdout } = spawnSync('git', ['rev-parse', '--short=8', 'HEAD'], { cwd: root, encoding: 'utf8' });
  return status === 0 ? stdout.trim() : 'a checkout';
}
