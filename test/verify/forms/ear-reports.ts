// EAR for tests: reports as real hardware would give them, which no machine here can, and what the draft's text demands of every claims set.
import { expect } from 'vitest';
import type { CpuClaims } from '../../../verify/cpu.ts';
import { type Ear, type EarAppraisal, earOf } from '../../../verify/forms/ear.ts';
import {
  CHECKS,
  type Check,
  type CheckName,
  CPU_CHECKS,
  type DeviceClaims,
  type FailureCode,
  type VerificationReport,
  type VerifyOptions,
} from '../../../verify/index.ts';

export const ISSUED = new Date('2026-10-11T12:13:14.900Z');
export const MADE = { build: 'countersign 9.9.9', issued: ISSUED };

const TIERS = ['none', 'affirming', 'warning', 'contraindicated'];
const CATEGORIES = [
  'instance-identity',
  'configuration',
  'executables',
  'file-system',
  'hardware',
  'runtime-opaque',
  'storage-opaque',
  'sourced-data',
];
/** AR4SI §2.3.2, written once more. */
const tierOf = (value: number) => {
  const [from, to] = value < 0 ? [-value, -value] : [value, value];
  if (value === -1 || from < 2) return 'none';
  return (value < 0 ? to <= 32 : to <= 31)
    ? 'affirming'
    : (value < 0 ? to <= 96 : to <= 95)
      ? 'warning'
      : 'contraindicated';
};

/** What the draft's text demands of every claims set; returns it for more. */
export function wellFormed(ear: Ear): Ear {
  expect(ear.eat_profile).toBe('tag:ietf.org,2026:rats/ear#04');
  expect(Number.isInteger(ear.iat)).toBe(true);
  expect(Object.keys(ear.ear_verifier_id)).toEqual(['developer', 'build']);
  expect(TIERS).toContain(ear.ear_status);
  expect(['true', 'false', 'unknown']).toContain(ear.ear_all_submods_bound);
  const submods = Object.entries(ear.submods);
  expect(submods.length).toBeGreaterThan(0);
  for (const [label, { ear_status, ear_trustworthiness_vector: vector, eat_nonce }] of submods) {
    expect(label).toMatch(/^(cpu|gpu|(gpu|nvswitch|device)\/\d+)$/);
    expect(Object.keys(vector).length).toBeGreaterThan(0);
    for (const [category, value] of Object.entries(vector)) {
      expect(CATEGORIES).toContain(category);
      expect(Number.isInteger(value) && value >= -128 && value <= 127).toBe(true);
      // No higher trust than the worst of the vector.
      const tier = tierOf(value);
      if (ear_status === 'affirming') expect(tier).toBe('affirming');
      if (ear_status === 'warning') expect(['affirming', 'warning', 'none']).toContain(tier);
    }
    if (eat_nonce !== undefined) expect(eat_nonce).toMatch(/^[\w-]{11,86}$/);
    // Nor of the whole than of a part.
    if (ear.ear_status === 'affirming') expect(ear_status).toBe('affirming');
    if (ear_status === 'contraindicated') expect(ear.ear_status).toBe('contraindicated');
  }
  expect(JSON.stringify(ear.submods)).not.toContain(':null');
  return ear;
}

export const resultOf = (report: VerificationReport, options: VerifyOptions = {}) =>
  wellFormed(earOf(report, options, MADE));

// A report as real hardware would give one, which no machine here can: everything passed, of one GPU and one processor.

const DEVICE_CHECKS = [
  'report_form',
  'report_nonce',
  'report_signature',
  'report_chain',
  'report_fwid',
  'revocation',
  'reference_values',
  'device_mode',
] as const satisfies readonly CheckName[];

export const GPU: DeviceClaims = {
  kind: 'gpu',
  arch: 'HOPPER',
  chip: 'GH100',
  model: 'GH100 A01 GSP BROM',
  ueid: '478176379286082186618948445787393647364802107249',
  driver: '550.90.07',
  vbios: '96.00.9F.00.01',
  mode: 'spt',
  measurements_matched: 42,
};
export const CPU: CpuClaims = {
  type: 'TDX',
  simulated: false,
  product: null,
  chip_id: null,
  ppid: '0a'.repeat(16),
  vmpl: null,
  report_data: 'd0'.repeat(32) + '00'.repeat(32),
  measurement: 'a1'.repeat(48),
  rtmrs: ['10', '11', '12', '13'].map((byte) => byte.repeat(48)),
  host_data: 'c0'.repeat(48),
  id_key_digest: null,
  tcb: null,
  fmspc: '50806f000000',
  tcb_status: 'UpToDate',
  advisories: [],
  pcrs: null,
  software: null,
};
export const SNP: Partial<CpuClaims> = { type: 'SEV_SNP', product: 'Genoa', vmpl: 0, rtmrs: null, tcb_status: null };
export const KNOWN = { launch: 'ef'.repeat(32), images: null, uncompared: null };
export const NONCE = '5e'.repeat(32);

export interface Spec {
  readonly devices?: readonly DeviceClaims[];
  readonly cpu?: Partial<CpuClaims> | null;
  readonly skip?: readonly CheckName[];
  /** `reference_values` fails of every device, `reference_values[1]` of the second. */
  readonly fail?: Readonly<Record<string, FailureCode>>;
}

export function reportOf({ devices = [GPU], cpu = {}, skip = [], fail = {} }: Spec = {}): VerificationReport {
  const unmeasured: CheckName[] = cpu?.software === undefined ? ['cpu_measurement', 'cpu_software'] : [];
  const one = (name: CheckName, device?: number): Check => {
    const code = fail[`${name}[${device}]`] ?? fail[name];
    const at = device === undefined ? {} : { device };
    if (code !== undefined) return { name, status: 'fail', code, detail: '', ...at };
    return { name, status: [...skip, ...unmeasured].includes(name) ? 'skip' : 'pass', detail: '', ...at };
  };
  const checks = [...CHECKS, ...(cpu === null ? [] : CPU_CHECKS.filter((name) => name !== 'cpu_vtpm'))].flatMap(
    (name) =>
      (DEVICE_CHECKS as readonly CheckName[]).includes(name) ? devices.map((_, i) => one(name, i)) : [one(name)],
  );
  const valid = checks.every(({ status }) => status !== 'fail');
  const unread = (i: number) =>
    ['report_signature', 'report_chain'].some((name) => `${name}[${i}]` in fail || name in fail);
  return {
    valid,
    incomplete: false,
    level: valid ? 'gpu+cpu' : 'none',
    checks,
    claims: {
      simulated: false,
      time: null,
      nonce: NONCE,
      batch: null,
      token: null,
      devices: devices.filter((_, i) => !unread(i)),
      cpu: cpu === null ? null : { ...CPU, ...cpu },
    },
    proven: ['a'],
    not_proven: ['b'],
  };
}

export const GPU_LABEL = `gpu/${GPU.ueid}`;
export const submod = (ear: Ear, label: string): EarAppraisal => {
  const found = ear.submods[label];
  if (found === undefined) throw new Error(`no submodule ${label} beside ${Object.keys(ear.submods)}`);
  return found;
};
export const judgedAs = (ear: Ear, label: string) => {
  const { ear_status, ear_trustworthiness_vector } = submod(ear, label);
  return [ear_status, ear_trustworthiness_vector];
};
