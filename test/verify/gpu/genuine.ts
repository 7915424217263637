// NVIDIA's genuine evidence as the verifier takes it, read in place.
import { readdirSync } from 'node:fs';
import type { Clocks } from '../../../verify/index.ts';
import { vector, vectorPath } from '../../support/vectors.ts';

export interface NvidiaEvidence {
  arch: string;
  evidence: string;
  certificate: string;
  nonce: string;
}

const NVIDIA = 'nvidia';
export const H100 = 'h100-550.90.07';

export const text = (path: string): string => vector(`${NVIDIA}/${path}`).toString('utf8');

/** A report kept as bytes or as hex text. */
export function reportBytes(path: string): Uint8Array<ArrayBuffer> {
  const bytes = vector(`${NVIDIA}/${path}`);
  return new Uint8Array(path.endsWith('.hex') ? Buffer.from(bytes.toString('utf8').replace(/\s/g, ''), 'hex') : bytes);
}

export const chainText = (folder: string): string => text(`${folder}/chain.pem`);

export function evidenceOf(arch: string, folder: string, report: string | Uint8Array): NvidiaEvidence {
  const bytes = typeof report === 'string' ? reportBytes(`${folder}/${report}`) : report;
  return {
    arch,
    evidence: Buffer.from(bytes).toString('base64'),
    certificate: Buffer.from(chainText(folder)).toString('base64'),
    nonce: Buffer.from(bytes.subarray(4, 36)).toString('hex'),
  };
}

export const h100 = (): NvidiaEvidence => evidenceOf('HOPPER', H100, 'report.bin');

export const RIM_FILES = {
  driver: `${H100}/NV_GPU_DRIVER_GH100_550.90.07.xml`,
  vbios: `${H100}/NV_GPU_VBIOS_1010_0200_882_96009F0001.xml`,
} as const;

/** By id: the file's name is the id. */
export const h100Rims = (): Map<string, string> =>
  new Map(Object.values(RIM_FILES).map((file) => [file.slice(H100.length + 1, -'.xml'.length), text(file)]));

export function ocspResponses(): Uint8Array<ArrayBuffer>[] {
  return readdirSync(vectorPath(`${NVIDIA}/${H100}/ocsp`)).map(
    (file) => new Uint8Array(Buffer.from(text(`${H100}/ocsp/${file}`), 'base64')),
  );
}

/** The genuine H100's endorsements were never valid at one instant. */
export const CLOCKS = {
  report: new Date('2025-09-01T00:00:00Z'),
  rim: new Date('2025-09-01T00:00:00Z'),
  ocsp: new Date('2025-08-21T12:00:00Z'),
  rimOcsp: new Date('2025-10-24T12:00:00Z'),
} as const satisfies Clocks;
