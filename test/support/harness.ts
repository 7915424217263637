// Starts what a test needs: a gateway on a free port, a sidecar on a socket of its own, and any backend between them.

import { mkdtempSync, rmSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Logger, pino } from 'pino';
import { createSimulatedCpu } from '../../demo/twin/cpu.ts';
import { createSimulatedAttester } from '../../demo/twin/gpu.ts';
import { buildApp } from '../../gateway/app.ts';
import { loadConfig } from '../../gateway/base/config.ts';
import type { Limits } from '../../gateway/base/limits.ts';
import { createHttpServer } from '../../gateway/http/server.ts';
import { createPermits } from '../../gateway/limits/concurrency.ts';
import type { Attester, AttesterError } from '../../sidecar/common/attester.ts';
import { startServer } from '../../sidecar/server/server.ts';
import { type Backend, startBackend } from './backend.ts';
import { expectServing } from './refusals.ts';

export const SILENT = pino({ level: 'silent' });

export interface Folder {
  readonly path: string;
  remove(): void;
}

export function temporaryFolder(): Folder {
  const path = mkdtempSync(join(tmpdir(), 'countersign-'));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

/** For tests of the connection to a sidecar alone, whose scripted sidecars sign nothing. */
export const UNCHECKED = {
  sidecar_uid: null,
  checker: { warm() {}, check: async () => ({ devices: [] }), checkSession: async () => null },
  permits: createPermits({ max_permits: 16, max_waiting: 1_000 }),
  max_attestations_waiting: 1_000,
} as const;

export interface RunningGateway {
  /** `http://127.0.0.1:PORT` */
  readonly url: string;
  /** @throws when it does not serve a new connection any more. */
  close(): Promise<void>;
}

/** Variables, as the process's environment has them, and constants that are others for a test. */
export interface GatewaySettings {
  readonly [variable: Uppercase<string>]: string;
  readonly limits?: Partial<Limits>;
}

/** A gateway in this process. */
export async function startGateway(settings: GatewaySettings, log = SILENT): Promise<RunningGateway> {
  const { limits, ...env } = settings;
  // The canary's questions would be among those that a test counts.
  const defaults = { PORT: '0', ALLOW_SIMULATED: '1', CANARY_INTERVAL_MS: '0' };
  const config = {
    ...loadConfig({ ...defaults, ...env }),
    max_verify_per_second: 0,
    sidecar_wait_ms: 3_000,
    ...limits,
  };
  const built = buildApp(config, log);
  const server = createHttpServer(built.app.fetch, { ...config, tls: null }, log);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  let closed = false;
  return {
    url,
    async close() {
      if (closed) return;
      closed = true;
      server.closeAllConnections();
      try {
        await expectServing(url);
      } finally {
        server.closeAllConnections();
        await new Promise<void>((resolve) => server.close(() => resolve()));
        await built.close();
      }
    },
  };
}

export interface RunningSidecar {
  readonly socket: string;
  readonly attester: Attester;
  close(): Promise<void>;
}

/** A sidecar in this process with the simulated attester, its socket and root in `folder`. */
export async function startSidecar(
  folder: Folder,
  options: {
    collectionMs?: number;
    queueMax?: number;
    deadlineMs?: number;
    signers?: 'all' | 'any';
    selfCheck?: boolean;
    drainMs?: number;
    attester?: Attester;
    unavailable?: AttesterError;
    trial_every_ms?: number;
    /** The processor that signs as well; without it none does. */
    cpu?: Parameters<typeof startServer>[1]['cpu'];
    log?: Logger;
  } = {},
): Promise<RunningSidecar> {
  const socket = join(folder.path, 'sidecar.sock');
  const attester =
    options.attester ??
    (await createSimulatedAttester({
      rootDir: join(folder.path, 'simulated-root'),
      collectionMs: options.collectionMs ?? 0,
    }));
  const server = await startServer(
    attester,
    {
      sidecar_socket: socket,
      attest_queue_max: options.queueMax ?? 1024,
      attest_deadline_ms: options.deadlineMs ?? 30_000,
      self_check: options.selfCheck ?? true,
      drain_ms: options.drainMs ?? 5_000,
      signers: options.signers ?? 'all',
      unavailable: options.unavailable ?? null,
      cpu: options.cpu ?? null,
      ...(options.trial_every_ms === undefined ? {} : { trial_every_ms: options.trial_every_ms }),
    },
    options.log ?? SILENT,
  );
  return { socket, attester, close: () => server.close() };
}

/** Polls until `condition` holds. @throws when it does not within `timeout_ms`. */
export async function eventually(condition: () => boolean | Promise<boolean>, timeout_ms = 20_000): Promise<void> {
  const end = performance.now() + timeout_ms;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`not within ${timeout_ms} ms`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** A port of the loopback interface that nobody listens on. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

export interface Service {
  readonly folder: Folder;
  readonly backend: Backend;
  readonly sidecar: RunningSidecar;
  readonly gateway: RunningGateway;
  close(): Promise<void>;
}

/** A scripted backend, a simulated sidecar and a gateway between them, with these settings. */
export async function startService(
  settings: GatewaySettings = {},
  sidecarOptions: Parameters<typeof startSidecar>[1] = {},
): Promise<Service> {
  const folder = temporaryFolder();
  const backend = await startBackend();
  const sidecar = await startSidecar(folder, sidecarOptions);
  const gateway = await startGateway({ BACKEND_URL: backend.url, SIDECAR_SOCKET: sidecar.socket, ...settings });
  return {
    folder,
    backend,
    sidecar,
    gateway,
    async close() {
      await gateway.close();
      await sidecar.close();
      await backend.close();
      folder.remove();
    },
  };
}

type Processor = Parameters<typeof createSimulatedCpu>[0]['type'];

/** A service whose sidecar has a simulated processor, and attests nothing without it. `root`: PEM of the test roots of both. */
export async function startServiceWithProcessor(
  settings: GatewaySettings = {},
  type: Processor = 'TDX',
): Promise<Service & { readonly root: string }> {
  const roots = temporaryFolder();
  const collector = await createSimulatedCpu({ type, rootDir: roots.path });
  const service = await startService(settings, { cpu: { collector, required: true } });
  return {
    ...service,
    root: (service.sidecar.attester.simulated?.root ?? '') + (collector.simulated?.root ?? ''),
    async close() {
      await service.close();
      roots.remove();
    },
  };
}
