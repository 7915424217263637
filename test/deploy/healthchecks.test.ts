import { createServer } from 'node:http';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createSidecar } from '../../gateway/attestation/sidecar-client.ts';
import { unavailableAttester } from '../../sidecar/choose.ts';
import { AttesterError } from '../../sidecar/common/attester.ts';
import { startServer } from '../../sidecar/server/server.ts';
import { startBackend } from '../support/backend.ts';
import { type Folder, SILENT, startGateway, startSidecar, temporaryFolder, UNCHECKED } from '../support/harness.ts';
import { startProcess } from '../support/process.ts';

let folder: Folder;
let ends: (() => unknown)[];

beforeEach(() => {
  folder = temporaryFolder();
  ends = [() => folder.remove()];
});
afterEach(async () => {
  for (const end of ends.reverse()) await end();
});

/** Exit code and words, as Docker keeps them. */
async function checked(
  script: string,
  env: Record<string, string>,
  args: readonly string[] = [],
): Promise<[number | null, string]> {
  const process = startProcess(script, args, env);
  const { code } = await process.exited;
  return [code, process.output().trim()];
}

describe("the sidecar's health check", () => {
  const check = (socket: string) => checked('sidecar/healthcheck.ts', { SIDECAR_SOCKET: socket });

  it('passes when the sidecar says hello', async () => {
    const sidecar = await startSidecar(folder);
    ends.push(() => sidecar.close());
    expect(await check(sidecar.socket)).toEqual([0, 'simulated: ready']);
  });

  it.each(['a b', 'c#', 'ü'])('passes with a socket in a folder named %s', async (name) => {
    const sidecar = await startSidecar({ ...folder, path: join(folder.path, name) });
    ends.push(() => sidecar.close());
    expect(await check(sidecar.socket)).toEqual([0, 'simulated: ready']);
  });

  it('passes beside 64 gateways', async () => {
    const sidecar = await startSidecar(folder);
    ends.push(() => sidecar.close());
    const options = { attest_timeout_ms: 1_000, allow_simulated: true, ...UNCHECKED };
    const gateways = Array.from({ length: 64 }, () => createSidecar({ sidecar_socket: sidecar.socket, ...options }));
    ends.push(() => {
      for (const one of gateways) one.close();
    });
    await Promise.all(gateways.map((one) => one.ready(5_000)));
    expect(await check(sidecar.socket)).toEqual([0, 'simulated: ready']);
  });

  it('passes, and says why, when the GPU cannot attest: a restart would bring nothing', async () => {
    const sidecar_socket = join(folder.path, 'sidecar.sock');
    const trouble = new AttesterError('collection_failed', 'CC mode is off', false);
    const attester = unavailableAttester('nvtrust', () => Promise.reject(trouble));
    const limits = { attest_queue_max: 1, attest_deadline_ms: 1_000, drain_ms: 5_000 };
    const server = await startServer(attester, { sidecar_socket, ...limits, unavailable: trouble }, SILENT);
    ends.push(() => server.close());
    expect(await check(sidecar_socket)).toEqual([0, 'nvtrust: cannot attest: CC mode is off']);
  });

  it('fails without a sidecar, and before something else', async () => {
    const socket = join(folder.path, 'sidecar.sock');
    expect(await check(socket)).toEqual([1, 'not reachable: ENOENT']);
    const other = createServer((_request, response) => response.end('hello'));
    await new Promise<void>((resolve) => other.listen(socket, resolve));
    ends.push(() => other.close());
    const [code] = await check(socket);
    expect(code).toBe(1);
  });
});

describe("the gateway's health check", () => {
  const BACKEND_URL = 'http://127.0.0.1:1/v1';
  const check = (url: string, ...args: string[]) =>
    checked('gateway/healthcheck.ts', { BACKEND_URL, PORT: new URL(url).port }, args);

  it('passes while chat works, with a sidecar or without', async () => {
    const backend = await startBackend();
    ends.push(() => backend.close());
    const gateway = await startGateway({ BACKEND_URL: backend.url, SIDECAR_SOCKET: join(folder.path, 'none.sock') });
    ends.push(() => gateway.close());
    expect(await check(gateway.url)).toEqual([0, '/health answers 200']);
    expect(await check(gateway.url, 'tee,canary')).toEqual([1, '/health?require=tee,canary answers 503']);
    expect(await check(gateway.url, 'canary')).toEqual([0, '/health?require=canary answers 200']);
  });

  it('fails while the backend is down, and without a gateway', async () => {
    const gateway = await startGateway({ BACKEND_URL, SIDECAR_SOCKET: join(folder.path, 'none.sock') });
    ends.push(() => gateway.close());
    expect(await check(gateway.url)).toEqual([1, '/health answers 503']);
    expect(await check('http://127.0.0.1:1')).toEqual([1, 'not reachable: ECONNREFUSED']);
  });
});
