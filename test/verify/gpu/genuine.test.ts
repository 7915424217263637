// The table: every genuine vector, what a right verifier says of it, and what ours says.
import { describe, expect, test } from 'vitest';
import { compareTokenWithReports } from '../../../verify/attestation.ts';
import { equal, toBase64 } from '../../../verify/common/bytes.ts';
import { CheckFailure } from '../../../verify/common/checks.ts';
import { parseReport } from '../../../verify/gpu/spdm/report.ts';
import {
  appraiseEvidence,
  createCollateral,
  type VerificationReport,
  type VerifyOptions,
} from '../../../verify/index.ts';
import { parseToken } from '../../../verify/token/token.ts';
import { type Certificate, parsePem } from '../../../verify/x509/certificate.ts';
import { parseOcspResponse } from '../../../verify/x509/ocsp.ts';
import { vectorsPresent } from '../../support/vectors.ts';
import { CLOCKS, chainText, evidenceOf, h100, h100Rims, ocspResponses, reportBytes, text } from './genuine.ts';

const NEITHER: VerifyOptions = { without: { referenceValues: true, revocation: true } };
const statuses = ({ checks }: VerificationReport) =>
  Object.fromEntries(checks.map(({ name, status, code }) => [name, code ?? status]));

interface Row {
  readonly name: string;
  readonly evidence: () => unknown;
  readonly options?: () => VerifyOptions;
  /** By check; `pass` where nothing is said. */
  readonly expected: Readonly<Record<string, string>>;
  readonly level: string;
}

const UNASKED = { revocation: 'skip', reference_values: 'skip', device_mode: 'skip' } as const;
/** The report does not say whether there are switches, or those that it names did not sign. */
const OPEN = { topology: 'skip' } as const;
const with545 = (vbios: string) => (): VerifyOptions => ({
  without: { revocation: true },
  clocks: { rim: new Date('2024-01-01T00:00:00Z') },
  collateral: createCollateral({
    rims: [text('h100-545.00/Driver_RIM_test_no_gpu.swidtag'), text(`h100-545.00/${vbios}`)],
  }),
});
const broken = { report_signature: 'report_signature_invalid', report_fwid: 'skip', ...UNASKED, ...OPEN } as const;

const TABLE: readonly Row[] = [
  {
    name: 'h100-550.90.07: everything passes, each endorsement at a time at which it was valid',
    evidence: () => [h100()],
    options: () => ({ clocks: CLOCKS, collateral: createCollateral({ rims: h100Rims(), ocsp: ocspResponses() }) }),
    expected: {},
    level: 'gpu',
  },
  {
    name: 'h100-545.00 with its reference values: passes, without a firmware id',
    evidence: () => [evidenceOf('HOPPER', 'h100-545.00', 'report.hex')],
    options: with545('1010_0200_882_96005E0001_test_no_gpu.swidtag'),
    expected: { report_fwid: 'skip', revocation: 'skip', ...OPEN },
    level: 'gpu',
  },
  {
    name: 'h100-545.00 with the production VBIOS RIM of the same id: measurement mismatch',
    evidence: () => [evidenceOf('HOPPER', 'h100-545.00', 'report.hex')],
    options: with545('1010_0200_882_96005E0001_PROD.swidtag'),
    expected: {
      report_fwid: 'skip',
      revocation: 'skip',
      reference_values: 'measurement_mismatch',
      device_mode: 'skip',
      ...OPEN,
    },
    level: 'none',
  },
  {
    name: 'h100-535.86.09 with a broken signature: the signature fails, the chain passes',
    evidence: () => [evidenceOf('HOPPER', 'h100-535.86.09', 'report-invalid-signature.hex')],
    expected: broken,
    level: 'none',
  },
  {
    name: "h100-590.12 in NVIDIA's own form: passes",
    evidence: () => text('h100-590.12/evidence.json'),
    expected: { ...UNASKED, ...OPEN },
    level: 'gpu',
  },
  {
    name: 'blackwell-575.32: passes, its firmware id under the other OID',
    evidence: () => [evidenceOf('BLACKWELL', 'blackwell-575.32', 'report.hex')],
    expected: { ...UNASKED, ...OPEN },
    level: 'gpu',
  },
  {
    name: 'switch-ls10: passes',
    evidence: () => [evidenceOf('LS10', 'switch-ls10', 'report.hex')],
    expected: { ...UNASKED, ...OPEN, report_fwid: 'skip' },
    level: 'none',
  },
  {
    name: 'switch-ls10 with a broken signature: the signature fails, the chain passes',
    evidence: () => [evidenceOf('LS10', 'switch-ls10', 'report-invalid-signature.hex')],
    expected: broken,
    level: 'none',
  },
];

describe.skipIf(!vectorsPresent)('genuine evidence', () => {
  test.each(TABLE)('$name', async ({ evidence, options, expected, level }) => {
    const report = await appraiseEvidence(evidence(), options?.() ?? NEITHER);
    for (const [name, got] of Object.entries(statuses(report)))
      expect([name, got]).toEqual([name, expected[name] ?? 'pass']);
    expect(report.valid).toBe(!Object.values(expected).some((one) => one.includes('_')));
    expect(report.level).toBe(level);
  });

  test('names the indices that do not match', async () => {
    const row = TABLE[2] as Row;
    const report = await appraiseEvidence(row.evidence(), row.options?.());
    const check = report.checks.find(({ name }) => name === 'reference_values');
    expect(check?.detail).toContain('1, 2, 3, 9');
  });

  test('says what a person cares about', async () => {
    const { claims, proven } = await appraiseEvidence(TABLE[0]?.evidence(), TABLE[0]?.options?.());
    expect(claims.devices).toMatchObject([
      { kind: 'gpu', arch: 'HOPPER', model: 'GH100 A01 GSP BROM', driver: '550.90.07', vbios: '96.00.9F.00.01' },
    ]);
    expect(claims.simulated).toBe(false);
    expect(proven.join(' ')).toContain('genuine NVIDIA GPU');
    const ppcie = await appraiseEvidence(text('h100-590.12/evidence.json'), NEITHER);
    expect(ppcie.claims.devices[0]?.mode).toBe('ppcie');
    expect(ppcie.not_proven.join(' ')).toContain('a GPU is behind protected PCIe, and no switch signed');
  });

  test("by default nothing is left out: offline, and with today's clock, each endorsement has its own verdict", async () => {
    const offline = statuses(await appraiseEvidence([h100()]));
    expect(offline).toMatchObject({
      revocation: 'revocation_unavailable',
      reference_values: 'rim_unavailable',
      device_mode: 'skip',
    });
    const collateral = createCollateral({ rims: h100Rims(), ocsp: ocspResponses() });
    const late = statuses(await appraiseEvidence([h100()], { collateral, at: new Date('2027-01-01T00:00:00Z') }));
    expect(late).toMatchObject({ revocation: 'revocation_invalid', reference_values: 'rim_signer_expired' });
  });

  test('a single flipped bit of the report fails by its signature, or where it cannot be read', async () => {
    const bytes = Buffer.from(h100().evidence, 'base64');
    const codes = new Set<string>();
    for (let at = 0; at < bytes.length; at += 89) {
      const changed = Uint8Array.from(bytes);
      changed[at] = (changed[at] ?? 0) ^ 0x10;
      const { nonce } = h100();
      const report = await appraiseEvidence(
        [{ ...h100(), evidence: Buffer.from(changed).toString('base64'), nonce }],
        NEITHER,
      );
      expect([at, report.valid]).toEqual([at, false]);
      for (const { code } of report.checks) if (code !== undefined) codes.add(code);
    }
    expect([...codes].sort()).toEqual(
      ['fwid_mismatch', 'report_malformed', 'report_nonce_mismatch', 'report_signature_invalid'].filter((code) =>
        codes.has(code),
      ),
    );
    expect(codes.has('report_signature_invalid')).toBe(true);
  });

  test('one genuine device more with a broken signature refuses all', async () => {
    const second = evidenceOf('HOPPER', 'h100-535.86.09', 'report-invalid-signature.hex');
    const report = await appraiseEvidence([h100(), second], NEITHER);
    expect(report.valid).toBe(false);
    expect(report.checks.filter(({ status }) => status === 'fail')).toMatchObject([
      { name: 'report_signature', code: 'report_signature_invalid', device: 1 },
    ]);
  });

  test('several genuine devices pass together, GPU and switch alike, each on its own nonce', async () => {
    const devices = [
      h100(),
      evidenceOf('HOPPER', 'h100-545.00', 'report.hex'),
      evidenceOf('LS10', 'switch-ls10', 'report.hex'),
      evidenceOf('BLACKWELL', 'blackwell-575.32', 'report.hex'),
    ];
    const { valid, level, claims } = await appraiseEvidence(devices, NEITHER);
    expect([valid, level, claims.devices.length, claims.nonce]).toEqual([true, 'gpu', 4, null]);
  });

  test('a switch that a GPU behind protected PCIe does not name, and a GPU in another mode, refuse the whole', async () => {
    const [behind] = JSON.parse(text('h100-590.12/evidence.json')) as unknown[];
    for (const [other, detail] of [
      [evidenceOf('LS10', 'switch-ls10', 'report.hex'), 'device 1 is a switch that the GPUs do not name'],
      [h100(), 'device 1 is in another mode than device 0'],
    ]) {
      const { checks } = await appraiseEvidence([behind, other], NEITHER);
      const failed = checks.filter(({ status }) => status === 'fail');
      expect(failed).toMatchObject([{ name: 'topology', code: 'topology_mismatch', detail }]);
    }
  });

  test('a GPU names its switches by the ids that they state, turned round', () => {
    // Of one machine: the second report has a broken signature, and its list is read all the same.
    const own = parseReport(reportBytes('switch-ls10/report.hex')).opaque;
    const gpu = parseReport(reportBytes('h100-535.86.09/report-invalid-signature.hex')).opaque;
    const turned = Buffer.from(own.fabricIds?.[0] ?? '', 'hex')
      .reverse()
      .toString('hex');
    expect([own.fabricIds?.length, own.gpuIds?.length, gpu.fabricIds?.length]).toEqual([1, 8, 18]);
    expect([new Set(gpu.fabricIds).size, gpu.fabricIds?.includes(turned)]).toEqual([4, true]);
  });

  test('the same device twice is not two', async () => {
    const report = await appraiseEvidence([h100(), h100()], NEITHER);
    expect(report.checks.find(({ status }) => status === 'fail')).toMatchObject({
      code: 'evidence_malformed',
      device: 1,
    });
  });

  test('a stated nonce that is another one fails, and so does one that is expected and not stated', async () => {
    const other = '00'.repeat(32);
    expect(statuses(await appraiseEvidence([{ ...h100(), nonce: other }], NEITHER)).report_nonce).toBe(
      'report_nonce_mismatch',
    );
    const expected = { ...NEITHER, expected: { nonce: other } };
    expect((await appraiseEvidence([h100()], expected)).valid).toBe(false);
    const { nonce, ...unstated } = h100();
    expect(statuses(await appraiseEvidence([unstated], NEITHER)).report_nonce).toBe('report_nonce_mismatch');
    expect((await appraiseEvidence([unstated], { ...NEITHER, expected: { nonce } })).valid).toBe(true);
  });

  test.each([
    ['nvtrust-local-claims-2.0', true],
    ['nvtrust-local-claims-3.0', true],
    ['nras-es384-detached-eat', true],
    ['nvattest-local-alg-none', false],
  ])('%s says of the device what its report says: %s', async (file, same) => {
    const { claims } = await appraiseEvidence([h100()], NEITHER);
    const compare = () => compareTokenWithReports(parseToken(text(`tokens/${file}.json`)), claims.devices);
    if (same) expect(compare()).toMatchObject({ value: true });
    else expect(compare).toThrow(CheckFailure);
  });

  test("NVIDIA's own OCSP responder, certified by the device authority, is no device", async () => {
    const [response] = ocspResponses().map(parseOcspResponse);
    const responder = response?.certificates[0] as Certificate;
    const above = parsePem(chainText('h100-550.90.07')).filter(({ subject }) => equal(subject, responder.issuer));
    const pem = [responder, ...above].map(
      ({ der }) => `-----BEGIN CERTIFICATE-----\n${toBase64(der)}\n-----END CERTIFICATE-----\n`,
    );
    const certificate = Buffer.from(pem.join('')).toString('base64');
    const { checks } = await appraiseEvidence([{ ...h100(), certificate }], { ...NEITHER, at: CLOCKS.ocsp });
    expect(checks.find(({ name }) => name === 'report_chain')).toMatchObject({
      code: 'chain_invalid',
      detail: expect.stringContaining('not one of a device'),
    });
  });

  test("A's report does not pass under B's chain, nor as another architecture", async () => {
    const b = evidenceOf('HOPPER', 'h100-545.00', 'report.hex');
    const swapped = await appraiseEvidence([{ ...h100(), certificate: b.certificate }], NEITHER);
    expect(statuses(swapped)).toMatchObject({ report_signature: 'report_signature_invalid', report_chain: 'pass' });
    const renamed = await appraiseEvidence([{ ...h100(), arch: 'BLACKWELL' }], NEITHER);
    expect(statuses(renamed)).toMatchObject({ report_chain: 'chain_invalid' });
  });
});
