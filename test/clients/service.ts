// The service as the client tests use it: three gateways with an API key, before a scripted backend, before the demo engine,
// and before a GPU that gives no proof.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import { startEngine } from '../../demo/engine/server.ts';
import type { Attester } from '../../sidecar/common/attester.ts';
import { type Backend, type Seen, startBackend } from '../support/backend.ts';
import { startGateway, startSidecar, temporaryFolder } from '../support/harness.ts';
import { createMatrix, type Matrix } from './matrix.ts';
import { MODELS, type Scripted, scripted } from './scripts.ts';

export interface Service {
  readonly key: string;
  /** Base URLs, as a client is given them. */
  readonly url: string;
  readonly demoUrl: string;
  /** Its sidecar fails every collection. */
  readonly unprovenUrl: string;
  readonly sent: Scripted['sent'];
  /** Every generation request that reached the scripted backend. */
  readonly seen: readonly Seen[];
  /** The simulated GPU's, for `verify/`. */
  readonly simulatedRoot: string;
  /** Resolves when the gateway has left the endless answer to `marker`, words that its request holds. */
  left(marker: string, timeout_ms: number): Promise<void>;
  close(): Promise<void>;
}

/** The service and the table of a test file, by the file's name: it starts before the file's tests and ends after them. */
export function serviceOf(file: string): { readonly matrix: Matrix; readonly service: () => Service } {
  const matrix = createMatrix(file);
  let service: Service;
  beforeAll(async () => {
    service = await startService();
  });
  afterAll(async () => {
    matrix.print();
    await service.close();
  });
  return { matrix, service: () => service };
}

export async function startService(): Promise<Service> {
  const folder = temporaryFolder();
  const unprovenFolder = temporaryFolder();
  const key = 'sk-clients';
  const keys = join(folder.path, 'keys');
  writeFileSync(keys, `${key}\n`);
  const { script, sent } = scripted();
  const leaving = watch();
  const backend: Backend = await startBackend((request, response) => {
    response.once('close', () => leaving.closed(request.body, !response.writableFinished));
    return script(request, response);
  });
  backend.models = JSON.stringify({ object: 'list', data: MODELS.map((id) => ({ id, object: 'model' })) });
  const engine = await startEngine();
  const sidecar = await startSidecar(folder);
  const unproven = await startSidecar(unprovenFolder, { attester: failing(sidecar.attester) });
  const env = { API_KEYS_FILE: keys, SIDECAR_SOCKET: sidecar.socket };
  const gateways = await Promise.all([
    startGateway({ ...env, BACKEND_URL: backend.url }),
    startGateway({ ...env, BACKEND_URL: `${engine.url}/v1` }),
    startGateway({ ...env, BACKEND_URL: backend.url, SIDECAR_SOCKET: unproven.socket }),
  ]);
  const [url, demoUrl, unprovenUrl] = gateways.map((gateway) => `${gateway.url}/v1`) as [string, string, string];
  return {
    key,
    url,
    demoUrl,
    unprovenUrl,
    sent,
    seen: backend.seen,
    simulatedRoot: sidecar.attester.simulated?.root ?? '',
    left: leaving.left,
    async close() {
      await Promise.all(gateways.map((gateway) => gateway.close()));
      await Promise.all([sidecar.close(), unproven.close(), backend.close(), engine.close()]);
      folder.remove();
      unprovenFolder.remove();
    },
  };
}

function failing(twin: Attester): Attester {
  return {
    ...twin,
    attest: async () => {
      // An error of no kind that is known: each request learns of it anew, and no circuit opens.
      throw new Error('the GPU gave no report');
    },
  };
}

function watch() {
  const bodies: string[] = [];
  const waiting = new Set<() => void>();
  return {
    closed(body: string, early: boolean) {
      if (!early) return;
      bodies.push(body);
      for (const look of waiting) look();
    },
    left(marker: string, timeout_ms: number): Promise<void> {
      return new Promise((resolve, reject) => {
        const timer = setTimeout(() => {
          waiting.delete(look);
          reject(new Error(`the backend was still asked for ${marker} after ${timeout_ms} ms`));
        }, timeout_ms);
        const look = () => {
          if (!bodies.some((body) => body.includes(marker))) return;
          clearTimeout(timer);
          waiting.delete(look);
          resolve();
        };
        waiting.add(look);
        look();
      });
    },
  };
}
