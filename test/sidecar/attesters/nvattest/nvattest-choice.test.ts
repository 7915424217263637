// Which attester ATTESTER=auto chooses, and which takes over where one cannot read a driver's reports.
import { describe, expect, test } from 'vitest';
import { inOrder } from '../../../../sidecar/choose.ts';
import { type Attester, AttesterError, type Reason } from '../../../../sidecar/common/attester.ts';
import { driverVersionIn, readsNewFormat } from '../../../../sidecar/driver/versions.ts';
import { freshNonce, never } from '../../../support/attest.ts';

const PROPRIETARY = `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)`;
const open = (version: string) =>
  `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  ${version}  Release Build  (dvs-builder@U22-I3)  Thu Jul 17 2025
GCC version:  gcc version 13.3.0`;

test('the version is read from both kinds of kernel module', () => {
  expect(driverVersionIn(PROPRIETARY)).toBe('550.90.07');
  expect(driverVersionIn(open('580.65.06'))).toBe('580.65.06');
  expect(driverVersionIn(open('615.12'))).toBe('615.12');
  expect(driverVersionIn('GCC version:  gcc version 13.3.0')).toBeNull();
});

test('nvattest reads the new format from 2.0.0 on', () => {
  expect(['1.0', '1.2.1', '2.0.0', '2.0.0.1790976895', '10.1', 'x'].map(readsNewFormat)).toEqual([
    false,
    false,
    true,
    true,
    true,
    null,
  ]);
});

const error = (reason: Reason, words: string) => new AttesterError('collection_failed', words, false, { reason });

/** Whose `attest` answers with its name, or fails for as long as `format` says so. */
function candidate(name: string, { fails, format }: { fails?: Reason; format?: () => boolean } = {}) {
  const closed: string[] = [];
  const make = async (): Promise<Attester> => {
    if (fails !== undefined) throw error(fails, 'it says why');
    return {
      name,
      devices: [],
      simulated: null,
      async attest() {
        if (format?.()) throw error('new_format', 'not one that it reads');
        return { token: name, evidence: [] };
      },
      close: async () => void closed.push(name),
    };
  };
  return { name, make, closed };
}

const PASSES = new Set<Reason | null>(['no_sdk', 'no_nvattest']);

async function choose(
  candidates: readonly ReturnType<typeof candidate>[],
  passes: ReadonlySet<Reason | null> = PASSES,
) {
  const told: string[] = [];
  const attester = await inOrder(candidates, passes, (name, reason) => told.push(`${name}: ${reason}`));
  const attest = async () => (await attester.attest(freshNonce(), never)).token;
  return { attester, attest, told };
}

describe('attesters in order', () => {
  test('the first that can run is chosen, and each one before it is named with its reason', async () => {
    const { attester, told } = await choose([candidate('nvtrust'), candidate('native', { fails: 'no_driver' })]);
    expect([attester.name, attester.reason]).toEqual(['nvtrust', 'the first choice']);
    const last = await choose([
      candidate('nvtrust', { fails: 'no_sdk' }),
      candidate('nvattest', { fails: 'no_nvattest' }),
      candidate('native'),
    ]);
    const reason = 'nvtrust: no_sdk: it says why; nvattest: no_nvattest: it says why';
    expect([last.attester.name, last.attester.reason]).toEqual(['native', reason]);
    expect([...told, ...last.told]).toEqual(['nvtrust: the first choice', `native: ${reason}`]);
  });

  test("the machine's failure is everybody's: the next one is not asked", async () => {
    const order = [candidate('nvtrust', { fails: 'cc_off' }), candidate('native')];
    await expect(choose(order)).rejects.toMatchObject({ reason: 'cc_off', message: 'cc_off: it says why' });
    const broken = { ...candidate('nvtrust'), make: () => Promise.reject(new TypeError('a fault')) };
    await expect(choose([broken, candidate('native')])).rejects.toThrow(TypeError);
  });

  test('an attester that is named gives way to nobody at the start', async () => {
    const order = [candidate('nvtrust', { fails: 'no_sdk' }), candidate('nvattest')];
    await expect(choose(order, new Set())).rejects.toMatchObject({ reason: 'no_sdk' });
  });

  test('all reasons are named where none can run', async () => {
    const order = [candidate('nvtrust', { fails: 'no_sdk' }), candidate('native', { fails: 'no_ffi' })];
    await expect(choose(order)).rejects.toMatchObject({
      reason: 'no_ffi',
      words: 'nvtrust: no_sdk: it says why; native: no_ffi: it says why',
    });
  });

  test("a report's own format makes one give way, past those that cannot run, and the attestation is made", async () => {
    let newer = false;
    const [nvtrust, nvattest] = [
      candidate('nvtrust', { format: () => newer }),
      candidate('nvattest', { fails: 'no_nvattest' }),
    ];
    const { attester, attest, told } = await choose([nvtrust, nvattest, candidate('native')]);
    expect(await attest()).toBe('nvtrust');
    newer = true;
    expect(await attest()).toBe('native');
    expect(await attest()).toBe('native');
    expect(nvtrust.closed).toEqual(['nvtrust']);
    expect(attester.name).toBe('native');
    expect(told.at(-1)).toBe('native: nvtrust: new_format: not one that it reads; nvattest: no_nvattest: it says why');
  });

  test('one that nobody can follow stays, says both reasons, and attests again once it can', async () => {
    let newer = true;
    const order = [candidate('nvtrust', { format: () => newer }), candidate('nvattest', { fails: 'nvattest_old' })];
    const { attester, attest } = await choose(order, new Set());
    await expect(attest()).rejects.toMatchObject({
      reason: 'new_format',
      retryable: false,
      words: 'nvtrust: new_format: not one that it reads; nvattest: nvattest_old: it says why',
    });
    newer = false;
    expect(await attest()).toBe('nvtrust');
    expect(attester.name).toBe('nvtrust');
  });
});
