// SELF_CHECK=0: the sidecar sends what its GPU signed unchecked, and the gateway's own check still refuses what does not hold.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createSimulatedAttester } from '../../../demo/twin/gpu.ts';
import type { Attester } from '../../../sidecar/common/attester.ts';
import { freshNonce } from '../../support/attest.ts';
import { chatAnswer } from '../../support/backend.ts';
import { CHAT, chat } from '../../support/client.ts';
import { eventually, type Folder, type Service, startService, temporaryFolder } from '../../support/harness.ts';

let folder: Folder;
let service: Service;
let honest = true;

beforeAll(async () => {
  folder = temporaryFolder();
  const twin = await createSimulatedAttester({ rootDir: folder.path, collectionMs: 0 });
  const attester: Attester = {
    ...twin,
    attest: (nonce, ...rest) => twin.attest(honest ? nonce : freshNonce(), ...rest),
  };
  service = await startService({}, { attester, selfCheck: false });
  service.backend.script = chatAnswer('Hello.');
});
afterAll(async () => {
  await service.close();
  folder.remove();
});

const status = async () => (await chat(service.gateway.url, { ...CHAT, tee: true })).status;

test('what another nonce was signed for reaches no client, and what holds does', async () => {
  expect(await status()).toBe(200);
  honest = false;
  expect(await status()).toBe(503);
  honest = true;
  await eventually(async () => (await status()) === 200);
});
