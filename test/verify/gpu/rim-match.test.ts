// Reference values against measurement blocks: what matches, what does not, and what is compared at all.
import { describe, expect, it } from 'vitest';
import type { FailureCode } from '../../../verify/common/checks.ts';
import { matchMeasurements } from '../../../verify/gpu/reference-values.ts';
import type { Manifest, Measurement } from '../../../verify/gpu/rim/rim.ts';

type ReportFacts = Parameters<typeof matchMeasurements>[2];

const value = (byte: number) => byte.toString(16).padStart(2, '0').repeat(48);
const measurement = (values: readonly string[], active = true): Measurement => ({ active, values, name: '', size: 48 });
const rim = (version: string, measurements: Record<number, Measurement>, parts: Partial<Manifest> = {}): Manifest => ({
  ...{ id: 'x', version, kind: 'driver', product: 'GH100', edition: 'GPU', manufacturerId: '5703' },
  measurements: new Map(Object.entries(measurements).map(([index, own]) => [Number(index), own])),
  minimumSvns: new Map(),
  ...parts,
});

const blocks = new Map(Array.from({ length: 64 }, (_, i) => [i + 1, value(i)]));
const facts: ReportFacts = { driverVersion: '550.90.07', vbiosVersion: '96.00.9F.00.01' };
const driver = rim('550.90.07', { 7: measurement([value(7)]), 8: measurement([value(0)], false) });
const vbios = rim('96.00.9f.00.01', { 1: measurement([value(9), value(1)]) });
const failed = (act: () => unknown, code: FailureCode, message: RegExp | string) =>
  expect(act).toThrow(expect.objectContaining({ code, message: expect.stringMatching(message) }));

describe('matching measurements', () => {
  it('holds RIM index i against block i + 1, and any alternative will do', () => {
    expect(matchMeasurements({ driver, vbios }, blocks, facts)).toEqual({
      matched: 2,
      driver: 1,
      vbios: 1,
      skipped: [],
    });
    const shifted = rim('550.90.07', { 6: measurement([value(7)]) });
    failed(
      () => matchMeasurements({ driver: shifted, vbios }, blocks, facts),
      'measurement_mismatch',
      /driver RIM indices 6$/,
    );
  });

  it('takes a switch by its BIOS RIM alone', () => {
    expect(matchMeasurements({ vbios }, blocks, { vbiosVersion: '96.00.9F.00.01' }).matched).toBe(1);
  });

  it('names every index that does not match, by RIM and in order', () => {
    const wrong = rim('550.90.07', {
      20: measurement([value(0)]),
      7: measurement([value(7)]),
      3: measurement([value(0)]),
    });
    const absent = rim('96.00.9F.00.01', { 64: measurement([value(64)]) });
    const message = 'the device does not match driver RIM indices 3, 20; VBIOS RIM indices 64';
    failed(() => matchMeasurements({ driver: wrong, vbios: absent }, blocks, facts), 'measurement_mismatch', message);
  });

  it('matches no block that is missing, empty, shorter or longer', () => {
    for (const block of [undefined, '', value(7).slice(2), `${value(7)}00`]) {
      const other = new Map(blocks);
      if (block === undefined) other.delete(8);
      else other.set(8, block);
      failed(() => matchMeasurements({ driver, vbios }, other, facts), 'measurement_mismatch', /driver RIM indices 7/);
    }
  });

  it('fails when nothing is active', () => {
    const idle = rim('550.90.07', { 7: measurement([value(7)], false) });
    failed(
      () => matchMeasurements({ driver: idle, vbios }, blocks, facts),
      'measurement_mismatch',
      /nothing in the driver RIM/,
    );
    failed(() => matchMeasurements({ driver, vbios }, new Map(), facts), 'measurement_mismatch', /7.*1/);
  });

  it('refuses an index that both claim, except for what is inactive in one', () => {
    const both = rim('96.00.9F.00.01', { 7: measurement([value(7)]), 8: measurement([value(8)]) });
    failed(() => matchMeasurements({ driver, vbios: both }, blocks, facts), 'rim_mismatch', /both claim 7$/);
    const bounded = { minimumSvns: new Map([[30, { name: 'x', minimum: 1 }]]) };
    const rims = { driver: { ...driver, ...bounded }, vbios: { ...vbios, ...bounded } };
    failed(
      () => matchMeasurements(rims, blocks, { ...facts, svns: new Map([[30, 1]]) }),
      'rim_mismatch',
      /opaque type 30/,
    );
  });

  it('wants the versions that the report names, without regard to case', () => {
    for (const [other, message] of [
      [{ ...facts, driverVersion: '550.90.08' }, /driver RIM is for '550.90.07'/],
      [{ ...facts, vbiosVersion: '96.00.9F.00.02' }, /VBIOS RIM is for '96.00.9f.00.01'/],
      [{ vbiosVersion: '96.00.9F.00.01' }, /names no driver version/],
      [{ ...facts, product: 'GB100' }, /driver RIM is for 'GH100'/],
    ] as const)
      failed(() => matchMeasurements({ driver, vbios }, blocks, other), 'rim_mismatch', message);
    expect(matchMeasurements({ driver, vbios }, blocks, { ...facts, product: 'gh100' }).matched).toBe(2);
  });

  it('skips index 35 where NVDEC0 is disabled, and only there', () => {
    const decoder = rim('550.90.07', {
      7: measurement([value(7)]),
      35: measurement([value(0)]),
      36: measurement([value(36)]),
    });
    failed(() => matchMeasurements({ driver: decoder, vbios }, blocks, facts), 'measurement_mismatch', /indices 35$/);
    failed(
      () => matchMeasurements({ driver: decoder, vbios }, blocks, { ...facts, nvdec0Disabled: false }),
      'measurement_mismatch',
      /35/,
    );
    const matched = matchMeasurements({ driver: decoder, vbios }, blocks, { ...facts, nvdec0Disabled: true });
    expect(matched).toEqual({ matched: 3, driver: 2, vbios: 1, skipped: [35] });
  });

  it('wants security versions at least as high as the RIM bounds them', () => {
    const bounded = { ...driver, minimumSvns: new Map([[30, { name: 'FSP', minimum: 3 }]]) };
    const match = (svns: ReadonlyMap<number, number>) =>
      matchMeasurements({ driver: bounded, vbios }, blocks, { ...facts, svns });
    expect(match(new Map([[30, 3]])).matched).toBe(2);
    failed(() => match(new Map([[30, 2]])), 'measurement_mismatch', /security version 3 of opaque type 30/);
    failed(() => match(new Map()), 'measurement_mismatch', /security version 3/);
    failed(
      () => matchMeasurements({ driver: bounded, vbios }, blocks, facts),
      'measurement_mismatch',
      /security version 3/,
    );
  });
});
