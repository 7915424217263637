// What both verifiers are asked: every vector, and all genuine evidence of GPUs, switches and processors.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { inputOf, type Vector, type VectorOptions } from '../../scripts/vectors/vector.ts';
import type { CpuReference } from '../../verify/cpu/cpu-options.ts';
import { vectorPath } from '../support/vectors.ts';
import { bytesOf, type Case, caseOf, cases, lastDigest, memberOf, optionsOf } from '../verify/cpu/cases.ts';
import { CLOCKS, evidenceOf, h100, h100Rims, ocspResponses, text } from '../verify/gpu/genuine.ts';
import type { Input, Options, Question } from './package.ts';

const folder = fileURLToPath(new URL('../../vectors/', import.meta.url));
const base64 = (bytes: Uint8Array | string) => Buffer.from(bytes).toString('base64');

const asInput = (value: unknown): Input => (typeof value === 'string' ? { text: value } : { value });

export const vectors = (): Question[] =>
  readdirSync(join(folder, 'cases'))
    .filter((name) => name.endsWith('.json'))
    .map((name) => {
      const vector = JSON.parse(readFileSync(join(folder, 'cases', name), 'utf8')) as Vector;
      const call = vector.evidence === undefined ? 'attestation' : 'evidence';
      return { name, call, input: asInput(inputOf(folder, vector)), options: optionsOfVector(vector.options) };
    });

function optionsOfVector(given: VectorOptions): Options {
  const file = (name: string | undefined) =>
    name === undefined ? undefined : readFileSync(join(folder, name), 'utf8');
  const { expected, without, max_age_seconds: maxAgeSeconds, max_batch: maxBatch, required_checks } = given;
  const rims = Object.entries(given.rim_files ?? {}).map(([id, name]) => [id, file(name)]);
  const { transcript } = expected ?? {};
  return {
    at: given.at,
    simulatedRoot: file(given.simulated_root_file),
    roots: { rim: file(given.rim_root_file) },
    collateral: {
      rims: Object.fromEntries(rims),
      ocsp: (given.ocsp_files ?? []).map((name) => (file(name) ?? '').replace(/\s/g, '')),
    },
    bundles: Object.fromEntries(
      Object.entries(given.bundle_files ?? {}).map(([sha256, name]) => [sha256, file(name) ?? '']),
    ),
    nrasKeys: given.nras_keys,
    expected: { ...expected, transcript: transcript === undefined ? undefined : base64(transcript) },
    without: { referenceValues: without?.reference_values, revocation: without?.revocation },
    policy: { maxAgeSeconds, maxBatch, requiredChecks: required_checks },
    ...(given.cpu === undefined ? {} : { cpu: given.cpu }),
    limits: { maxCharacters: given.max_characters },
  };
}

// NVIDIA's.

const NEITHER: Options = { at: '2025-09-01T00:00:00Z', without: { referenceValues: true, revocation: true } };
const clocks = Object.fromEntries(Object.entries(CLOCKS).map(([name, at]) => [name, at.toISOString()]));

export function gpus(): Question[] {
  const one = (name: string, value: unknown, options: Options = NEITHER): Question => ({
    name,
    call: 'evidence',
    input: asInput(value),
    options,
  });
  const ocsp = ocspResponses().map(base64);
  const rims = Object.fromEntries(h100Rims());
  const full: Options = { at: '2025-09-01T00:00:00Z', clocks, collateral: { rims, ocsp } };
  const [driver = ''] = Object.keys(rims);
  const broken = readdirSync(vectorPath('nvidia/rim-broken'));
  const older = evidenceOf('HOPPER', 'h100-545.00', 'report.hex');
  const with545 = (vbios: string): Options => ({
    at: '2025-09-01T00:00:00Z',
    without: { revocation: true },
    clocks: { rim: '2024-01-01T00:00:00Z' },
    collateral: { rims: [text('h100-545.00/Driver_RIM_test_no_gpu.swidtag'), text(`h100-545.00/${vbios}`)] },
  });
  const blackwell = evidenceOf('BLACKWELL', 'blackwell-575.32', 'report.hex');
  const ls10 = evidenceOf('LS10', 'switch-ls10', 'report.hex');
  const newest = text('h100-590.12/evidence.json');
  return [
    one('an H100 with all its endorsements', [h100()], full),
    one('the same with its nonce demanded', [h100()], { ...full, expected: { nonce: h100().nonce } }),
    one('another nonce demanded', [h100()], { ...full, expected: { nonce: '00'.repeat(32) } }),
    one('offline', [h100()], { at: '2025-09-01T00:00:00Z' }),
    one('years later', [h100()], { ...full, clocks: {}, at: '2027-01-01T00:00:00Z' }),
    one('revocation demanded', [h100()], { ...NEITHER, policy: { requiredChecks: ['revocation'] } }),
    one('no check behind the first that fails', [h100()], { at: '2027-01-01T00:00:00Z', stopAtFailure: true }),
    one('with its own reference values', [older], with545('1010_0200_882_96005E0001_test_no_gpu.swidtag')),
    one('with those of production', [older], with545('1010_0200_882_96005E0001_PROD.swidtag')),
    one('a broken signature', [evidenceOf('HOPPER', 'h100-535.86.09', 'report-invalid-signature.hex')]),
    one("in NVIDIA's own form", newest),
    one('Blackwell', [blackwell]),
    one('a switch', [ls10]),
    one('a switch with a broken signature', [evidenceOf('LS10', 'switch-ls10', 'report-invalid-signature.hex')]),
    one('four devices', [h100(), older, ls10, blackwell]),
    one('one device twice', [h100(), h100()]),
    one('a switch that nobody names', [...(JSON.parse(newest) as unknown[]), ls10]),
    one("another device's chain", [{ ...h100(), certificate: older.certificate }]),
    one('another architecture', [{ ...h100(), arch: 'BLACKWELL' }]),
    one('without a nonce', [{ ...h100(), nonce: undefined }]),
    one('in two forms', [{ ...h100(), report: h100().evidence }]),
    ...broken.map((name) =>
      one(`a broken RIM: ${name}`, [h100()], {
        ...full,
        collateral: { rims: { ...rims, [driver]: text(`rim-broken/${name}`) }, ocsp },
      }),
    ),
  ];
}

// AMD's and Intel's.

function memberOfAny(one: Case): object {
  if (one.kind === 'software') return memberOf(caseOf('milan-v2-aci'));
  if (one.kind !== 'eventlog') return memberOf(one);
  const log = bytesOf(one, 'log');
  if (one.mutate?.some(({ note }) => note !== undefined))
    log.writeUInt8(log.readUInt8(lastDigest(log)) ^ 1, lastDigest(log));
  return { type: 'TDX', report: base64(bytesOf(one, 'quote')), event_log: base64(log) };
}

function referenceOf(one: Case): CpuReference {
  const launch = createHash('sha256').update(bytesOf(one, 'policy')).digest('hex');
  const measurement = [bytesOf(one, 'report').toString('hex', 0x90, 0xc0)];
  return { version: 1, cpu: [{ type: 'SEV_SNP', measurement, launch_in: 'host_data' }], launch: [launch] };
}

export const processors = (): Question[] =>
  cases.map((one) => {
    const { policy, without, expected } = optionsOf(one);
    const reference = one.kind === 'software' ? referenceOf(one) : undefined;
    return {
      name: one.id,
      call: 'cpu',
      input: { text: JSON.stringify(memberOfAny(one)) },
      options: { at: one.at, policy, without: { revocation: without?.revocation }, expected, reference },
    };
  });

/** A member of a genuine case, and where in it each byte counts; of the rest every `STEP`th is changed. */
const MEMBERS: readonly (readonly [id: string, member: string, ...ranges: (readonly [number, number])[]])[] = [
  ['turin-v5-caci', 'report', [0, 16], [0x30, 0x50], [0x180, 0x1f8], [0x208, 0x210]],
  ['milan-v2', 'report', [0, 16], [0x30, 0x50], [0x180, 0x1f8]],
  ['v4-uptodate', 'report', [0, 48], [168, 176], [632, 640], [764, 776], [1_220, 1_300]],
  ['v5-uptodate', 'report', [0, 56], [174, 184], [638, 706]],
  ['snp-milan-v1', 'report', [0, 32], [1_216, 1_260]],
  ['snp-milan-v1', 'message', [0, 200]],
  ['tdx-v2', 'report', [0, 32], [1_216, 1_240]],
  ['tdx-v2', 'message', [0, 200]],
  ['v4-ccel-log', 'event_log', [0, 160]],
  ['v4-dstack-rtmr3-log', 'event_log', [0, 8]],
];
const STEP = 61;

/** Genuine evidence of processors in which one byte is another one, or at which it breaks off. */
export const bytewise = (): Question[] =>
  MEMBERS.flatMap(([id, name, ...ranges]) => {
    const question = processors().find((one) => one.name === id);
    if (question === undefined || !('text' in question.input)) throw new TypeError(`no case ${id}`);
    const { text: given } = question.input;
    const bytes = Buffer.from(new RegExp(`"${name}":"([^"]*)"`).exec(given)?.[1] ?? '', 'base64');
    const counts = (at: number) => at % STEP === 0 || ranges.some(([from, to]) => at >= from && at < to);
    return [...bytes.keys()].filter(counts).flatMap((at) =>
      [1, 0xff].map((bits) => {
        const changed = Uint8Array.from(bytes);
        changed[at] = (changed[at] ?? 0) ^ bits;
        const other = at % 7 === 0 && bits === 1 ? changed.subarray(0, at) : changed;
        const input = { text: given.replace(base64(bytes), () => base64(other)) };
        return { ...question, name: `${id}: byte ${at} of ${name} ^ ${bits}`, input } as Question;
      }),
    );
  });
