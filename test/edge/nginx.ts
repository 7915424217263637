// A real nginx in front of a gateway, as anybody who terminates the outer TLS would run it, that keeps everything that it can see: limits by a
// key of its own, logs with all that it knows, and a tap on either side of it.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync, readFileSync, readSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { debianProgram, MissingPart } from '../support/debian.ts';
import { eventually, freePort } from '../support/harness.ts';

/** The path of nginx; null where it cannot be had, which is said. */
export function nginxProgram(): string | null {
  try {
    return debianProgram('nginx', 'nginx-light');
  } catch (error) {
    if (!(error instanceof MissingPart)) throw error;
    console.log(`SKIPPED: an edge in front of the gateway needs ${error.message}`);
    return null;
  }
}

export interface Tap {
  readonly port: number;
  /** Every byte in both directions. */
  seen(): Buffer;
  close(): Promise<void>;
}

/** Copies bytes between a client and 127.0.0.1:`port`, and keeps them. */
export async function openTap(port: number): Promise<Tap> {
  const kept: Buffer[] = [];
  const sockets = new Set<Socket>();
  const server: Server = createServer((client) => {
    const target = connect(port, '127.0.0.1');
    for (const [from, to] of [
      [client, target],
      [target, client],
    ] as const) {
      sockets.add(from);
      from.on('data', (chunk) => {
        kept.push(chunk);
        to.write(chunk);
      });
      from.on('end', () => to.end());
      from.on('error', () => to.destroy());
      from.on('close', () => sockets.delete(from));
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    seen: () => Buffer.concat(kept),
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

export interface Edge {
  /** Where clients come in. */
  readonly url: string;
  /** What passed on either side of it. */
  wire(): Buffer;
  /** Its logs, the debug log among them. */
  logs(): Buffer;
  /** What its processes have in memory that can be written. */
  memory(): Buffer;
  close(): Promise<void>;
}

/** The key that the edge wants of its own clients, in `x-edge-key`. */
export const EDGE_KEY = 'edge-key-of-a-customer';
export const BURST = 20;

export async function startEdge(program: string, folder: string, gatewayUrl: string): Promise<Edge> {
  const inside = await openTap(Number(new URL(gatewayUrl).port));
  const port = await freePort();
  const outside = await openTap(port);
  mkdirSync(folder, { recursive: true });
  const file = (name: string) => join(folder, name);
  writeFileSync(file('nginx.conf'), configuration(folder, port, inside.port));
  const nginx = spawn(program, ['-p', folder, '-c', file('nginx.conf'), '-e', file('error.log')], { stdio: 'ignore' });
  await eventually(async () => reachable(port), 10_000);
  return {
    url: `http://127.0.0.1:${outside.port}`,
    wire: () => Buffer.concat([outside.seen(), inside.seen()]),
    logs: () => Buffer.concat([readFileSync(file('access.log')), readFileSync(file('error.log'))]),
    memory: () => Buffer.concat(processesOf(nginx).map(memoryOf)),
    async close() {
      const ended = once(nginx, 'exit');
      nginx.kill('SIGTERM');
      await ended;
      await Promise.all([inside.close(), outside.close()]);
    },
  };
}

const configuration = (folder: string, port: number, gateway: number) => `
daemon off;
user root;
worker_processes 1;
pid ${folder}/nginx.pid;
error_log ${folder}/error.log debug;
events { worker_connections 256; }
http {
  log_format everything escape=none '$time_local $status $request_uri $http_authorization $http_x_edge_key $content_type '
    '$sent_http_content_type $http_date $request_length $bytes_sent $request_body';
  access_log ${folder}/access.log everything;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  # Known customers by a key that says nothing to the gateway.
  map $http_x_edge_key $customer { default ""; "${EDGE_KEY}" one; "another-edge-key" two; }
  limit_req_zone $customer zone=customers:1m rate=1r/m;
  server {
    listen 127.0.0.1:${port};
    client_max_body_size 32m;
    location = /ohttp {
      if ($customer = "") { return 401 '{"error":{"message":"No edge key.","type":"invalid_request_error","param":null,"code":"edge_key"}}'; }
      limit_req zone=customers burst=${BURST} nodelay;
      limit_req_status 429;
      proxy_pass http://127.0.0.1:${gateway};
      proxy_http_version 1.1;
      proxy_buffering off;
      proxy_request_buffering off;
      # What an edge may do to headers: they are not part of what is sealed.
      proxy_set_header x-forwarded-for $remote_addr;
      proxy_set_header x-edge-key "";
      proxy_set_header authorization "Bearer written-by-the-edge";
      proxy_hide_header x-request-id;
      add_header via "1.1 edge";
    }
    location / {
      proxy_pass http://127.0.0.1:${gateway};
      proxy_http_version 1.1;
      proxy_buffering off;
    }
  }
}
`;

/** The master and its worker. */
function processesOf(nginx: ChildProcess): number[] {
  const { pid } = nginx;
  if (pid === undefined) return [];
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean);
  return [pid, ...children.map(Number)];
}

/** The parts of a process's memory that it can write: its heap, its stack, its buffers. */
function memoryOf(pid: number): Buffer {
  const parts: Buffer[] = [];
  const fd = openSync(`/proc/${pid}/mem`, 'r');
  try {
    for (const line of readFileSync(`/proc/${pid}/maps`, 'utf8').split('\n')) {
      const range = /^([0-9a-f]+)-([0-9a-f]+) rw/.exec(line);
      if (range === null || line.endsWith('[vvar]')) continue;
      const [from, to] = [BigInt(`0x${range[1]}`), BigInt(`0x${range[2]}`)];
      const part = Buffer.alloc(Number(to - from));
      readSync(fd, part, 0, part.length, from);
      parts.push(part);
    }
  } finally {
    closeSync(fd);
  }
  return Buffer.concat(parts);
}

function reachable(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.on('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}
