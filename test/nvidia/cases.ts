// NVIDIA's genuine evidence, each with the documents and clocks under which its verdict is known.
import type { Clocks, FailureCode } from '../../verify/index.ts';
import { vector } from '../support/vectors.ts';

export interface EvidenceCase {
  readonly name: string;
  readonly arch: 'HOPPER' | 'BLACKWELL' | 'LS10';
  readonly report: Buffer;
  /** PEM, leaf first, root last. */
  readonly chain: string;
  /** Hex; of the report itself where the vector states none. */
  readonly nonce: string;
  /** RIM documents by the id that the report asks for. */
  readonly rims: ReadonlyMap<string, string>;
  /** OCSP responses about this device and its RIMs, DER. */
  readonly ocsp: readonly Buffer[];
  readonly clocks: Clocks & { readonly report: Date };
  readonly without: { readonly referenceValues: boolean; readonly revocation: boolean };
  /** What a right verifier says: that it passes, or the code of the first check that fails. */
  readonly expected: 'pass' | FailureCode;
}

const ALL = { referenceValues: false, revocation: false };
const NO_REVOCATION = { referenceValues: false, revocation: true };
const REPORT_ONLY = { referenceValues: true, revocation: true };
const at = (iso: string) => new Date(iso);
const OCSP_550 = [
  'gpu_certificate_l2',
  'gpu_certificate_l3',
  'gpu_certificate_l4',
  'gpu_rim_l2',
  'gpu_driver_rim_l3',
  'gpu_driver_rim_l4',
  'gpu_vbios_l4',
] as const;

export function evidenceCases(): EvidenceCase[] {
  const genuine550 = device('HOPPER', 'h100-550.90.07', {
    report: vector('nvidia/h100-550.90.07/report.bin'),
    rims: rims('h100-550.90.07', [
      ['NV_GPU_DRIVER_GH100_550.90.07', 'NV_GPU_DRIVER_GH100_550.90.07.xml'],
      ['NV_GPU_VBIOS_1010_0200_882_96009F0001', 'NV_GPU_VBIOS_1010_0200_882_96009F0001.xml'],
    ]),
    ocsp: OCSP_550.map(ocsp550),
    without: ALL,
    // There is no instant at which all seven responses hold.
    clocks: {
      report: at('2025-09-01T00:00:00Z'),
      ocsp: at('2025-08-21T12:00:00Z'),
      rim: at('2025-09-01T00:00:00Z'),
      rimOcsp: at('2025-10-24T12:00:00Z'),
    },
  });
  const driver545 = ['NV_GPU_DRIVER_GH100_545.00', 'Driver_RIM_test_no_gpu.swidtag'] as const;
  const vbios545 = 'NV_GPU_VBIOS_1010_0200_882_96005E0001';
  const genuine545 = device('HOPPER', 'h100-545.00', {
    rims: rims('h100-545.00', [driver545, [vbios545, '1010_0200_882_96005E0001_test_no_gpu.swidtag']]),
    without: NO_REVOCATION,
    clocks: { report: at('2025-06-01T00:00:00Z') },
  });
  const [evidence590] = JSON.parse(vector('nvidia/h100-590.12/evidence.json').toString()) as Stored[];
  if (evidence590 === undefined) throw new TypeError('no evidence in nvidia/h100-590.12');
  return [
    genuine550,
    {
      ...genuine550,
      name: 'h100-550.90.07, its RIM signers expired',
      clocks: { ...genuine550.clocks, rim: at('2026-07-01T00:00:00Z') },
      expected: 'rim_signer_expired',
    },
    {
      ...genuine550,
      name: 'h100-550.90.07, one clock for all',
      clocks: { report: at('2025-09-01T00:00:00Z') },
      expected: 'revocation_invalid',
    },
    {
      ...genuine550,
      name: 'h100-550.90.07, another nonce asked for',
      nonce: '00'.repeat(32),
      expected: 'report_nonce_mismatch',
    },
    genuine545,
    {
      ...genuine545,
      name: 'h100-545.00, another genuine VBIOS RIM',
      rims: rims('h100-545.00', [driver545, [vbios545, '1010_0200_882_96005E0001_PROD.swidtag']]),
      expected: 'measurement_mismatch',
    },
    device('HOPPER', 'h100-535.86.09', broken('h100-535.86.09')),
    device('HOPPER', 'h100-590.12', {
      report: Buffer.from(evidence590.evidence, 'base64'),
      chain: Buffer.from(evidence590.certificate, 'base64').toString(),
      nonce: evidence590.nonce,
    }),
    device('BLACKWELL', 'blackwell-575.32'),
    device('LS10', 'switch-ls10'),
    device('LS10', 'switch-ls10', broken('switch-ls10')),
  ];
}

interface Stored {
  readonly certificate: string;
  readonly evidence: string;
  readonly nonce: string;
}

function broken(folder: string): Partial<EvidenceCase> {
  const report = hex(`${folder}/report-invalid-signature.hex`);
  return { name: `${folder}, its signature broken`, report, expected: 'report_signature_invalid' };
}

function device(arch: EvidenceCase['arch'], folder: string, own: Partial<EvidenceCase> = {}): EvidenceCase {
  const report = own.report ?? hex(`${folder}/report.hex`);
  return {
    name: folder,
    arch,
    report,
    chain: own.chain ?? vector(`nvidia/${folder}/chain.pem`).toString(),
    nonce: report.subarray(4, 36).toString('hex'),
    rims: new Map(),
    ocsp: [],
    clocks: { report: at('2025-09-01T00:00:00Z') },
    without: REPORT_ONLY,
    expected: 'pass',
    ...own,
  };
}

function rims(folder: string, files: readonly (readonly [id: string, file: string])[]): Map<string, string> {
  return new Map(files.map(([id, file]) => [id, vector(`nvidia/${folder}/${file}`).toString()]));
}

const hex = (path: string) =>
  Buffer.from(
    vector(`nvidia/${path}`)
      .toString()
      .replace(/0x|[^0-9a-f]/gi, ''),
    'hex',
  );

/** A genuine response by its short name. */
export function ocsp550(name: string): Buffer {
  const file = `test_${name}_base64encoded_ocsp_response.dat`;
  return Buffer.from(vector(`nvidia/h100-550.90.07/ocsp/${file}`).toString(), 'base64');
}
