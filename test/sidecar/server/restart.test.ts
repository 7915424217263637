import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Backend, startBackend } from '../../support/backend.ts';
import { ask, chat } from '../../support/client.ts';
import { eventually, type Folder, type RunningGateway, startGateway, temporaryFolder } from '../../support/harness.ts';
import { type RunningProcess, startProcess } from '../../support/process.ts';

let folder: Folder;
let backend: Backend;
let gateway: RunningGateway;
let sidecar: RunningProcess | null = null;
let socket: string;

function startSidecarProcess(cpu = 'off'): RunningProcess {
  return startProcess('sidecar/main.ts', [], {
    ATTESTER: 'simulated',
    SIDECAR_SOCKET: socket,
    SIMULATED_ROOT_DIR: join(folder.path, 'root'),
    SIMULATED_COLLECTION_MS: '5',
    CPU_EVIDENCE: cpu,
  });
}

const health = async () => (await ask(`${gateway.url}/health`, { method: 'GET' })).json();

beforeEach(async () => {
  folder = temporaryFolder();
  socket = join(folder.path, 'run', 'sidecar.sock');
  backend = await startBackend();
  gateway = await startGateway({ BACKEND_URL: backend.url, SIDECAR_SOCKET: socket, SIDECAR_WAIT_MS: '10000' });
});
afterEach(async () => {
  await gateway.close();
  if (sidecar?.child.exitCode === null) await sidecar.kill('SIGKILL');
  await backend.close();
  folder.remove();
});

describe('no sidecar at all', () => {
  it('refuses tee with 503 and retry-after before the backend is asked, and serves the rest', async () => {
    const alone = await startGateway({
      BACKEND_URL: backend.url,
      SIDECAR_SOCKET: join(folder.path, 'nobody.sock'),
      SIDECAR_WAIT_MS: '100',
    });
    const refused = await chat(alone.url, { messages: [{ role: 'user' }], tee: true });
    expect([refused.status, refused.json().error.code]).toEqual([503, 'attestation_unavailable']);
    expect(refused.headers['retry-after']).toMatch(/^\d+$/);
    expect(backend.seen).toHaveLength(0);
    expect((await chat(alone.url, { messages: [{ role: 'user' }] })).status).toBe(200);
    const state = await ask(`${alone.url}/health`, { method: 'GET' });
    expect([state.status, state.json().status]).toEqual([200, 'degraded']);
    await alone.close();
  });

  it('waits for one that is on its way', async () => {
    const waiting = chat(gateway.url, { messages: [{ role: 'user' }], tee: true });
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(backend.seen).toHaveLength(0);
    sidecar = startSidecarProcess();
    const got = await waiting;
    expect([got.status, typeof got.json().attestation.nonce]).toEqual([200, 'string']);
  });

  it('costs the backend nothing when the client leaves before one comes', async () => {
    const waiting = ask(`${gateway.url}/v1/chat/completions`, {
      body: '{"messages":[{"role":"user"}],"tee":true}',
      signal: AbortSignal.timeout(200),
    });
    await expect(waiting).rejects.toMatchObject({ name: 'AbortError' });
    sidecar = startSidecarProcess();
    await eventually(async () => (await health()).status === 'ok', 15_000);
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(backend.seen).toHaveLength(0);
  });

  it('is what a simulated one is to a gateway that does not allow it', async () => {
    sidecar = startSidecarProcess();
    await eventually(async () => (await health()).status === 'ok', 15_000);
    const strict = await startGateway({
      BACKEND_URL: backend.url,
      SIDECAR_SOCKET: socket,
      SIDECAR_WAIT_MS: '300',
      ALLOW_SIMULATED: '0',
    });
    const refused = await chat(strict.url, { messages: [{ role: 'user' }], tee: true });
    expect([refused.status, refused.json().error.code]).toEqual([503, 'attestation_unavailable']);
    expect((await ask(`${strict.url}/health`, { method: 'GET' })).json().sidecar.status).toBe('refused');
    await strict.close();
  });
});
