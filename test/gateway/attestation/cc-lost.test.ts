// A node whose driver has torn confidential computing down: the gateway says so everywhere, and asks its sidecar for nothing more.
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createSimulatedAttester } from '../../../demo/twin/gpu.ts';
import { failed } from '../../../sidecar/common/attester.ts';
import { createReadyGuard } from '../../../sidecar/driver/ready-guard.ts';
import { type Backend, chatAnswer, startBackend } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import {
  type Folder,
  type RunningGateway,
  startGateway,
  startSidecar,
  temporaryFolder,
} from '../../support/harness.ts';
import { parseSamples } from '../../telemetry/samples.ts';
import { expectError } from '../expect-error.ts';

const TEE = { ...CHAT, tee: true };

let folder: Folder;
let backend: Backend;
let sidecar: { readonly socket: string; close(): Promise<void> };
let gateway: RunningGateway;
let ready = true;
let asked = 0;

beforeAll(async () => {
  folder = temporaryFolder();
  backend = await startBackend(chatAnswer('Hello.'));
  const twin = await createSimulatedAttester({ rootDir: folder.path });
  const attester = await createReadyGuard(async () => ready).attester(async () => ({
    ...twin,
    async attest(nonce, signal) {
      asked++;
      if (!ready) throw failed('collection_failed', 'nvml_error', 'the driver failed', 'retry');
      return twin.attest(nonce, signal);
    },
  }));
  sidecar = await startSidecar(folder, { attester, trial_every_ms: 20 });
  const { socket } = sidecar;
  gateway = await startGateway({ BACKEND_URL: backend.url, SIDECAR_SOCKET: socket, ALLOW_SIMULATED: '1' });
});
afterAll(async () => {
  await gateway.close();
  await sidecar.close();
  await backend.close();
  folder.remove();
});

const health = () => ask(`${gateway.url}/health`, { method: 'GET' });

it('is served until then, and is down from the failure on', async () => {
  expect((await chat(gateway.url, TEE)).json()).toHaveProperty('attestation');
  expect(await health()).toMatchObject({ status: 200 });
  ready = false;
  const refused = await chat(gateway.url, TEE);
  expectError(refused, 503, 'attestation_unavailable');
  expect(refused.text).toContain('restart the guest');
  const { status, json } = await health();
  expect(status).toBe(503);
  expect(json()).toMatchObject({
    status: 'down',
    backend: { status: 'ok' },
    sidecar: { trouble: { code: 'cc_lost' } },
  });
  const samples = parseSamples((await ask(`${gateway.url}/metrics`, { method: 'GET' })).text);
  expect(samples.value('countersign_sidecar_trouble', { code: 'cc_lost' })).toBe(1);
  expect(samples.value('countersign_sidecar_trouble', { code: 'other' })).toBe(0);
});

it('does not come back by itself: neither a trial nor a request reaches the GPU', async () => {
  ready = true;
  const before = asked;
  const reached = backend.seen.length;
  await new Promise((resolve) => setTimeout(resolve, 150)); // seven trials of another failure
  expectError(await chat(gateway.url, TEE), 503, 'attestation_unavailable');
  expect([asked, backend.seen.length]).toEqual([before, reached]);
  // What needs no proof is still passed on, for as long as the backend answers.
  expect((await chat(gateway.url, CHAT)).status).toBe(200);
});
