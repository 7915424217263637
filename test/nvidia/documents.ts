// The vectors that are documents and no evidence: broken RIMs, the new opaque data, tokens, roots.
import { X509Certificate } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fromHex } from '../../verify/common/bytes.ts';
import { CheckFailure } from '../../verify/common/checks.ts';
import { deviceRoots, rimRoots } from '../../verify/gpu/nvidia.ts';
import { verifyRim } from '../../verify/gpu/rim/rim.ts';
import { parseOpaque } from '../../verify/gpu/spdm/opaque.ts';
import { verifyTokenSignature } from '../../verify/token/signature.ts';
import { parseToken } from '../../verify/token/token.ts';
import { vector } from '../support/vectors.ts';
import type { Row } from './rows.ts';
import type { Services } from './services.ts';
import { nvidiaReads, type Tools } from './verifier.ts';

const AT = new Date('2025-09-01T00:00:00Z');
const BROKEN_RIMS = [
  'failure_duplicate_index',
  'failure_empty_payload',
  'failure_invalid_alternatives',
  'failure_invalid_size',
  'failure_missing_hash',
  'failure_missing_x509_data',
  'failure_no_payload',
  'incorrect_signature_driver_rim',
] as const;

export async function rimRows(tools: Tools, services: Services): Promise<Row[]> {
  const rows: Row[] = [];
  for (const name of BROKEN_RIMS) {
    const document = vector(`nvidia/rim-broken/${name}.xml`).toString();
    const nvidia = await nvidiaReads('rim', document, AT, tools, services);
    rows.push({
      vector: `rim-broken/${name}`,
      expected: 'refused',
      ours: await refusal(async () => void (await verifyRim(document, { roots: rimRoots(), at: AT }))),
      nvidia: nvidia.valid ? 'accepted' : `refused: ${nvidia.said}`,
    });
  }
  return rows;
}

export async function opaqueRow(tools: Tools, services: Services): Promise<Row> {
  const hex = vector('nvidia/opaque-nvdaod/nvdaod_opaque_hopper_620.12.hex').toString().trim();
  const nvidia = await nvidiaReads('opaque', hex, AT, tools, services);
  const { format, driverVersion } = parseOpaque(fromHex(hex));
  return {
    vector: 'opaque-nvdaod',
    expected: 'driver 620.12',
    ours: `driver ${driverVersion} (${format})`,
    nvidia: nvidia.valid ? nvidia.said : `cannot read it: ${nvidia.said}`,
  };
}

/** The last is signed by NVIDIA, by a key that is not among the vectors: offline, that is what a right verifier can say. */
const TOKENS = [
  ['nvtrust-local-claims-2.0', 'self-asserted', null],
  ['nvtrust-local-claims-3.0', 'self-asserted', null],
  ['nvattest-local-alg-none', 'self-asserted', '- it reads tokens of its own shape'],
  ['nras-es384-detached-eat', 'token_key_unavailable', "- needs NVIDIA's service for the key"],
] as const;

export async function tokenRows(tools: Tools, services: Services): Promise<Row[]> {
  const rows: Row[] = [];
  for (const [name, expected, why] of TOKENS) {
    const token = vector(`nvidia/tokens/${name}.json`).toString().trim();
    const parsed = parseToken(token);
    const at = new Date(issuedAt(parsed.bundles[0]?.overall.claims.iat) + 60_000);
    const ours = await refusal(async () => (await verifyTokenSignature(parsed, { at })).signature);
    rows.push({
      vector: `tokens/${name}`,
      expected,
      ours,
      nvidia: why ?? (await readToken(token, at, tools, services)),
    });
  }
  return rows;
}

async function readToken(token: string, at: Date, tools: Tools, services: Services): Promise<string> {
  const { valid, said } = await nvidiaReads('token', token, at, tools, services);
  return `${valid ? 'valid' : 'refused'} ${said}`;
}

const issuedAt = (iat: unknown) => (typeof iat === 'number' ? iat * 1000 : AT.getTime());

/** What it returns as text, or how it refuses. */
async function refusal(check: () => Promise<string | undefined>): Promise<string> {
  try {
    return (await check()) ?? 'accepted';
  } catch (error) {
    if (!(error instanceof CheckFailure)) throw error;
    return `refused: ${error.code}: ${error.message}`;
  }
}

/** The root that each pins, compared with the vector's. */
export function rootRows({ python }: Tools): Row[] {
  const library = join(dirname(python), '..', 'lib');
  const [version] = readdirSync(library);
  const certs = join(library, version ?? '', 'site-packages', 'verifier', 'certs');
  const verdict = (pem: string, other: string | Uint8Array) =>
    new X509Certificate(pem).fingerprint256 === new X509Certificate(other).fingerprint256 ? 'pinned' : 'another';
  return (
    [
      ['device-identity-root', deviceRoots(), 'verifier_device_root.pem'],
      ['rim-root', rimRoots(), 'verifier_RIM_root.pem'],
    ] as const
  ).map(([name, ours, theirs]) => {
    const root = vector(`nvidia/roots/${name}.pem`).toString();
    const nvidia = verdict(root, readFileSync(join(certs, theirs), 'utf8'));
    return { vector: `roots/${name}`, expected: 'pinned', ours: verdict(root, ours[0]?.der ?? ''), nvidia };
  });
}
