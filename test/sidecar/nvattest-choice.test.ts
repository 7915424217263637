// Which drivers make the sidecar choose nvattest by itself.
import { expect, test } from 'vitest';
import { chooseAttester } from '../../sidecar/attesters/choose.ts';
import { driverVersionIn, needsNvattest, readsNewFormat } from '../../sidecar/driver/versions.ts';

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
