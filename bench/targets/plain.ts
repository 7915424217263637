// What is not ours and speaks HTTP only: nothing at all, nginx, HAProxy, and the bare pipe.
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Aim } from '../jobs.ts';
import { freePort, start, startNode } from '../system/process.ts';
import { ready, type Target, type TargetKind, Unavailable, type Where } from './target.ts';

export const plainAim = (port: number): Aim => ({ port, headers: '', tee: false, exact: true });

export const direct: TargetKind = {
  name: 'direct',
  about: 'no proxy: the load generator asks the backend itself',
  start: ({ backendPort }) => ready('direct', plainAim(backendPort), { proxy: null }),
};

export const pipe: TargetKind = {
  name: 'pipe',
  about: 'bench/programs/pipe.ts: node:http in, node:http out, pipe',
  async start({ backendPort }) {
    const port = await freePort();
    const env = { PORT: String(port), BACKEND_URL: `http://127.0.0.1:${backendPort}/v1` };
    return ready('pipe', plainAim(port), { proxy: startNode('bench/programs/pipe.ts', { env }) });
  },
};

export const nginx: TargetKind = {
  name: 'nginx',
  about: 'one process, upstream connections kept, no log, responses not buffered (as event streams need it)',
  start: startNginx,
};

async function startNginx({ backendPort, folder }: Where): Promise<Target> {
  const program = find('nginx');
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
  access_log off; client_body_buffer_size 256k; keepalive_requests 100000000; keepalive_timeout 600s; client_max_body_size 16m;
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
  return ready('nginx', plainAim(port), { proxy: start([program, '-c', file, '-e', 'stderr']) });
}

export const haproxy: TargetKind = {
  name: 'haproxy',
  about: 'one thread, backend connections reused, no log',
  async start({ backendPort, folder }) {
    const program = find('haproxy');
    const port = await freePort();
    const file = join(folder, `haproxy-${port}.cfg`);
    writeFileSync(
      file,
      `global
  nbthread 1
  maxconn 9000
defaults
  mode http
  option http-no-delay
  option abortonclose
  http-reuse always
  timeout connect 5s
  timeout client 600s
  timeout server 600s
listen relay
  bind 127.0.0.1:${port} backlog 4096
  server backend 127.0.0.1:${backendPort}
`,
    );
    return ready('haproxy', plainAim(port), { proxy: start([program, '-db', '-f', file]) });
  },
};

/** @throws {Unavailable} */
function find(program: string): string {
  const { stdout } = spawnSync('sh', ['-c', `PATH="$PATH:/usr/sbin:/usr/local/sbin"; command -v ${program}`]);
  const path = stdout.toString().trim();
  if (path === '') throw new Unavailable(`${program} is not installed (npm run bench -- --install)`);
  return path;
}
