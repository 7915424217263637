// Which drivers make the sidecar choose nvattest by itself, and which attester ATTESTER=auto chooses.
import { describe, expect, test } from 'vitest';
import { chooseAttester, nativeOrElse } from '../../../../sidecar/choose.ts';
import { type Attester, AttesterError } from '../../../../sidecar/common/attester.ts';
import { driverVersionIn, needsNvattest, readsNewFormat } from '../../../../sidecar/driver/versions.ts';

const PROPRIETARY = `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)`;
const open = (version: string) =>
  `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  ${version}  Release Build  (dvs-builder@U22-I3)  Thu Jul 17 2025
GCC version:  gcc version 13.3.0`;

test('the version is read from both kinds of kernel module', () => {
  expect(driverVersionIn(PROPRIETARY)).toBe('550.90.07');
  expect(driverVersionIn(open('580.65.06'))).toBe('580.65.06');
  expect(driverVersionIn(open('620.12'))).toBe('620.12');
  expect(driverVersionIn('GCC version:  gcc version 13.3.0')).toBeNull();
});

test('branch 620 and later need nvattest', () => {
  expect(['535.86.09', '550.90.07', '595.71.05', '', 'none', '62'].filter(needsNvattest)).toEqual([]);
  expect(['620.12', '620.00.01', '1000.1'].every(needsNvattest)).toBe(true);
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

test('only the default gives way, and says so', () => {
  const told: string[] = [];
  const choose = (name: string, text: string | null) => chooseAttester(name, text, (version) => told.push(version));
  expect(choose('nvtrust', open('580.65.06'))).toBe('nvtrust');
  expect(choose('nvtrust', null)).toBe('nvtrust');
  expect(choose('native', open('620.12'))).toBe('native');
  expect(told).toEqual([]);
  expect(choose('nvtrust', open('620.12'))).toBe('nvattest');
  expect(told).toEqual(['620.12']);
});

describe('ATTESTER=auto', () => {
  const attester = (name: string) => ({ name }) as Attester;
  const fails = (reason: 'no_ffi' | 'no_nscq' | 'cc_off' | 'no_sdk', words: string) => async () => {
    throw new AttesterError('collection_failed', words, false, { reason });
  };
  async function choose(native: () => Promise<Attester>, nvtrust: () => Promise<Attester>) {
    const said: string[] = [];
    const chosen = await nativeOrElse(native, nvtrust, (name, reason) => said.push(`${name}: ${reason}`));
    return { name: chosen.name, said };
  }

  test("is native where the driver's libraries can be asked, and says so", async () => {
    const { name, said } = await choose(async () => attester('native'), fails('no_sdk', 'never asked'));
    expect(name).toBe('native');
    expect(said).toEqual([expect.stringMatching(/^native: the driver's libraries/)]);
  });

  test.each([
    ['no_ffi', 'koffi is missing'],
    ['no_nscq', 'libnvidia-nscq is missing'],
  ] as const)('is nvtrust where native fails with %s, and says why', async (reason, words) => {
    const chosen = await choose(fails(reason, words), async () => attester('nvtrust'));
    expect(chosen).toEqual({ name: 'nvtrust', said: [`nvtrust: ${words}`] });
  });

  test("fails as native does where the machine is the reason: nvtrust's failure would be the same", async () => {
    let asked = false;
    const nvtrust = async () => {
      asked = true;
      return attester('nvtrust');
    };
    await expect(choose(fails('cc_off', 'confidential computing is off'), nvtrust)).rejects.toMatchObject({
      reason: 'cc_off',
    });
    expect(asked).toBe(false);
    await expect(choose(async () => Promise.reject(new TypeError('a fault')), nvtrust)).rejects.toThrow(TypeError);
  });

  test('names both failures where neither can run', async () => {
    const both = choose(fails('no_ffi', 'koffi is missing'), fails('no_sdk', 'there is no SDK'));
    await expect(both).rejects.toMatchObject({
      reason: 'no_sdk',
      words: 'native: koffi is missing; nvtrust: there is no SDK',
    });
  });
});
