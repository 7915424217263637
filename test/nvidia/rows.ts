// One row of the table for each vector: what a right verifier says, what ours says, what NVIDIA's says.
import { X509Certificate } from 'node:crypto';
import { appraiseEvidence, createCollateral } from '../../verify/index.ts';
import { type EvidenceCase, ocsp550 } from './cases.ts';
import { type Services, startServices } from './services.ts';
import { nvidiaAppraises, type Tools, type Verdict } from './verifier.ts';

export interface Row {
  readonly vector: string;
  readonly expected: string;
  readonly ours: string;
  /** '-' and the reason where it cannot run. */
  readonly nvidia: string;
}

export async function evidenceRow(one: EvidenceCase, tools: Tools): Promise<Row> {
  return { vector: one.name, expected: one.expected, ours: await ours(one), nvidia: await nvidias(one, tools) };
}

/** 'pass', or the code of the first check that failed. */
export async function ours({ arch, chain, report, nonce, rims, ocsp, clocks, without }: EvidenceCase): Promise<string> {
  const certificate = Buffer.from(chain).toString('base64');
  const evidence = [{ arch, certificate, evidence: report.toString('base64'), nonce }];
  const collateral = createCollateral({ rims, ocsp });
  const result = await appraiseEvidence(evidence, { at: clocks.report, clocks, without, collateral });
  return result.checks.find(({ status }) => status === 'fail')?.code ?? (result.valid ? 'pass' : 'invalid');
}

async function nvidias(one: EvidenceCase, tools: Tools): Promise<string> {
  if (one.arch === 'LS10') return '- its switch verifier needs libnvidia-nscq, which needs a switch';
  const services = await servicesFor(one);
  const { arch, chain, report, nonce, clocks } = one;
  try {
    // It has one clock: the latest at which its certificates, or ours of the RIM signers, are looked at.
    const verdict = await nvidiaAppraises({ arch, chain, report, nonce }, clocks.rim ?? clocks.report, tools, services);
    const mark = services.stoodIn.size > 0 ? ' [stand-in OCSP]' : '';
    return `${describe(verdict)}${mark}`;
  } finally {
    await services.close();
  }
}

/** Its services with the case's documents; for certificates that no response is about, genuine ones about others stand in. */
export function servicesFor({ chain, rims, ocsp }: EvidenceCase): Promise<Services> {
  const device = new Set(chainOf(chain).map(({ serialNumber }) => BigInt(`0x${serialNumber}`)));
  const [ofDevice, ofRim] = [ocsp550('gpu_certificate_l2'), ocsp550('gpu_rim_l2')];
  return startServices({
    rims: new Map([...rims].map(([id, document]) => [id, Buffer.from(document)])),
    ocsp,
    standIn: (serial) => (device.has(serial) ? ofDevice : ofRim),
  });
}

const chainOf = (pem: string) =>
  (pem.match(/-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g) ?? []).map(
    (one) => new X509Certificate(one),
  );

function describe({ valid, chain, signature, measurements, said }: Verdict): string {
  if (valid) return 'pass';
  if (
    chain === true &&
    signature === true &&
    measurements === null &&
    said.some((line) => /Unable to fetch/.test(line))
  )
    return '- chain and signature pass, then it needs a RIM: there is none here, and no way without';
  return `fail: ${said.find((line) => !/^GPU Attestation failed$/.test(line)) ?? `measurements ${measurements}`}`;
}
