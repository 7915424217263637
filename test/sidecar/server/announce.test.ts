// A gateway that stays connected learns what the sidecar has become: an attester that was late, or one that gave way.
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createSimulatedAttester } from '../../../demo/twin/gpu.ts';
import type { Sidecar } from '../../../gateway/attestation/interfaces.ts';
import { createSidecar } from '../../../gateway/attestation/sidecar-client.ts';
import { nonceOf, type Raw } from '../../../proto/attestation/raw.ts';
import { inOrder, unavailableAttester } from '../../../sidecar/choose.ts';
import { type Attester, AttesterError } from '../../../sidecar/common/attester.ts';
import { type Folder, type RunningSidecar, startSidecar, temporaryFolder, UNCHECKED } from '../../support/harness.ts';

let folder: Folder;
let running: RunningSidecar | null = null;
let gateway: Sidecar | null = null;
const RAW = '{"request":{},"response":{},"timestamp":1700000000}' as Raw;
const bytes = Buffer.from(RAW);
const stays = () => {};
const ccOff = () => new AttesterError('collection_failed', 'cc_off: confidential computing is off', false);
const newFormat = () =>
  new AttesterError('collection_failed', 'not one that the SDK reads', false, { reason: 'new_format' });

beforeEach(() => {
  folder = temporaryFolder();
});
afterEach(async () => {
  gateway?.close();
  await running?.close();
  running = null;
  folder.remove();
});

const simulated = () => createSimulatedAttester({ rootDir: join(folder.path, 'root') });
const connect = (sidecar_socket: string) =>
  createSidecar({
    sidecar_socket,
    attest_timeout_ms: 5_000,
    allow_simulated: true,
    ...UNCHECKED,
  });

describe('a connected gateway', () => {
  test('hears of the devices and keys of an attester that was late, on the same connection', async () => {
    const real = await simulated();
    const token_keys = { keys: [{ kty: 'EC', kid: 'k' }] };
    let can = false;
    const late = unavailableAttester('native', async () => {
      if (!can) throw ccOff();
      return { ...real, name: 'native', token_keys };
    });
    // Only a test's attester has a test's root.
    const attester = Object.defineProperty(late, 'simulated', { value: real.simulated });
    running = await startSidecar(folder, { attester, unavailable: ccOff(), trial_every_ms: 50 });
    gateway = connect(running.socket);
    await expect.poll(() => gateway?.unavailable?.message).toMatch(/^cc_off/);
    expect(gateway.hello).toMatchObject({ attester: 'native', devices: [] });
    can = true;
    await expect.poll(() => gateway?.unavailable, { timeout: 3_000 }).toBeNull();
    expect(gateway.hello).toMatchObject({ attester: 'native', devices: real.devices, token_keys });
    const attested = await gateway.attest('owner', 'one', bytes, await nonceOf(RAW), stays);
    expect(JSON.parse(`{${attested.members.json}}`).evidence).toHaveLength(1);
  });

  test('hears that one attester gave way to another, before its first answer', async () => {
    const real = await simulated();
    let [asked, closed, told] = [0, 0, 0];
    const first: Attester = {
      ...real,
      name: 'nvtrust',
      attest: async () => {
        asked++;
        throw newFormat();
      },
      close: async () => void closed++,
    };
    const next = async () => ({ ...real, name: 'nvattest', devices: [...real.devices] });
    const order = [
      { name: 'nvtrust', make: async () => first },
      { name: 'nvattest', make: next },
    ];
    running = await startSidecar(folder, { attester: await inOrder(order, new Set(), () => told++) });
    gateway = connect(running.socket);
    await gateway.ready(2_000);
    expect(gateway.hello?.attester).toBe('nvtrust');
    for (const id of ['one', 'two']) await gateway.attest('owner', id, bytes, await nonceOf(RAW), stays);
    expect(gateway.hello).toMatchObject({
      attester: 'nvattest',
      attester_reason: 'nvtrust: new_format: not one that the SDK reads',
    });
    expect({ asked, closed, told }).toEqual({ asked: 1, closed: 1, told: 2 });
  });
});
