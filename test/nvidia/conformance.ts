// NVIDIA's Python verifier, unmodified except for its two root certificates, as vectors/README.md's contract has it: `node test/nvidia/conformance.ts CASE`.
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { answers } from '../../scripts/vectors/endorsements.ts';
import { keepIn } from '../../scripts/vectors/store.ts';
import { inputOf, type Vector } from '../../scripts/vectors/vector.ts';
import { makeWorld } from '../../scripts/vectors/world.ts';
import type { CheckName } from '../../verify/index.ts';
import { debianProgram } from '../support/debian.ts';
import { twinVenv } from '../twin/venv.ts';
import { startServices } from './services.ts';
import { nvidiaPython } from './venv.ts';
import { type Appraisal, nvidiaAppraises, type Verdict } from './verifier.ts';

const EXIT = { valid: 0, invalid: 1, usage: 2, incomplete: 3, unsupported: 4 } as const;
/** The checks that evidence alone decides. What a token, raw, an exchange or a policy says is nothing that it is given. */
const OF_EVIDENCE: readonly CheckName[] = [
  'report_form',
  'report_nonce',
  'report_signature',
  'report_chain',
  'report_fwid',
  'revocation',
  'reference_values',
  'topology',
];
const CACHE = fileURLToPath(new URL('../../.cache/nvidia/', import.meta.url));

/** What its complaints are in our words: the first that matches decides. */
const CODES: readonly (readonly [complaint: RegExp, code: string])[] = [
  [/firmware ID in the device certificate chain is not matching/, 'fwid_mismatch'],
  [
    /number of certificates fetched from the GPU is unexpected|extracting the individual certificates/,
    'evidence_malformed',
  ],
  [/certificate has expired\n.*RIM cert chain/, 'rim_signer_expired'],
  [/RIM cert chain verification failed/, 'rim_chain_invalid'],
  [/certificate has expired|certificate is not yet valid/, 'certificate_expired'],
  [/unable to get (local )?issuer certificate|self-signed certificate/, 'untrusted_root'],
  [
    /invalid CA certificate|certificate signature failure|GPU attestation report certificate chain validation failed/,
    'chain_invalid',
  ],
  [/nonce in the SPDM GET MEASUREMENT request message is not matching/, 'report_nonce_mismatch'],
  [/Attestation report signature verification failed/, 'report_signature_invalid'],
  [/ocsp response .*failed|OCSP response does not contain/, 'revocation_invalid'],
  [/OCSP request failed|certificate status is UNKNOWN/, 'revocation_unavailable'],
  [/IS REVOKED FOR REASON/, 'certificate_revoked'],
  [/Could not fetch RIM file/, 'rim_unavailable'],
  [/Schema validation of .* RIM failed|fetching the (driver|vbios) RIM/, 'rim_malformed'],
  [/RIM signature verification failed/, 'rim_signature_invalid'],
  [/measurement at the same index|version in the RIM file is not matching/, 'rim_mismatch'],
  [/both MPT and SPT modes/, 'topology_mismatch'],
];

/** Of NVIDIA's form: what an attestation carries is brought into it. */
interface Evidence {
  readonly arch: string;
  readonly certificate: string;
  readonly evidence: string;
  readonly nonce: string;
}

interface Carrying {
  readonly nonce: string;
  readonly evidence?: readonly { readonly arch: string; readonly report: string; readonly certificate_chain: string }[];
}

const [file, ...more] = process.argv.slice(2);
if (file === undefined || more.length > 0) {
  console.error('usage: node test/nvidia/conformance.ts CASE');
  process.exitCode = EXIT.usage;
} else {
  const vector = JSON.parse(readFileSync(file, 'utf8')) as Vector;
  const folder = dirname(dirname(file));
  const evidence = evidenceOf(folder, vector);
  if (evidence === null) process.exitCode = EXIT.unsupported;
  else await appraise(folder, vector, evidence);
}

/** null: the case is about something else, or asks for what it cannot do. */
function evidenceOf(folder: string, vector: Vector): Evidence[] | null {
  const { check, options } = vector;
  // It cannot be told to do without reference values.
  if (!OF_EVIDENCE.includes(check) || options.without?.reference_values) return null;
  const input = inputOf(folder, vector);
  if (vector.evidence !== undefined) return input as Evidence[];
  if (typeof input !== 'object') return null;
  const { nonce, evidence = [] } = input as Carrying;
  if (evidence.length === 0) return null;
  return evidence.map(({ arch, report, certificate_chain }) => ({
    arch,
    certificate: certificate_chain,
    evidence: report,
    nonce,
  }));
}

async function appraise(folder: string, { options }: Vector, evidence: readonly Evidence[]): Promise<void> {
  const text = (path: string) => readFileSync(join(folder, path), 'utf8');
  const device = options.simulated_root_file === undefined ? undefined : text(options.simulated_root_file);
  const rim = options.rim_root_file === undefined ? undefined : text(options.rim_root_file);
  const services = await startServices({
    rims: new Map(Object.entries(options.rim_files ?? {}).map(([id, path]) => [id, Buffer.from(text(path))])),
    ocsp: options.without?.revocation
      ? goodAnswers(folder)
      : (options.ocsp_files ?? []).map((path) => Buffer.from(text(path), 'base64')),
  });
  try {
    const tools = { python: pythonUnder(device, rim), faketime: debianProgram('faketime', 'faketime') };
    const [first, ...others] = evidence.map((one) => ({
      arch: one.arch as Appraisal['arch'],
      report: Buffer.from(one.evidence, 'base64'),
      chain: Buffer.from(one.certificate, 'base64').toString(),
    }));
    const nonce = evidence[0]?.nonce ?? '';
    if (first === undefined) throw new TypeError('no evidence');
    conclude(await nvidiaAppraises({ ...first, nonce, others }, new Date(options.at), tools, services));
  } finally {
    await services.close();
  }
}

/** Nor without revocation: a case that wants none is served answers that say good, under the vectors' own keys. */
function goodAnswers(folder: string): Buffer[] {
  const world = makeWorld(keepIn(join(folder, 'keys')));
  return [world.a, world.b].flatMap((device) => [...answers(world, device).values()]);
}

/** Its packages with these roots in place of NVIDIA's, made once for each pair of them. */
function pythonUnder(device: string | undefined, rim: string | undefined): string {
  const base = dirname(dirname(nvidiaPython()));
  const certificates = join(base, 'lib/python3.11/site-packages/verifier/certs');
  const roots = {
    device: device ?? readFileSync(join(certificates, 'verifier_device_root.pem'), 'utf8'),
    rim: rim ?? readFileSync(join(certificates, 'verifier_RIM_root.pem'), 'utf8'),
  };
  const id = createHash('sha256')
    .update(JSON.stringify([base, roots]))
    .digest('hex')
    .slice(0, 12);
  const folder = join(CACHE, `roots-${id}`);
  const python = join(folder, 'venv/bin/python');
  if (existsSync(python)) return python;
  const part = `${folder}.part-${process.pid}`;
  mkdirSync(part, { recursive: true });
  twinVenv(part, base, roots);
  try {
    // Only what is whole has this name.
    renameSync(part, folder);
  } catch (error) {
    rmSync(part, { recursive: true });
    // Another process may have been faster.
    if (!existsSync(python)) throw error;
  }
  return python;
}

function conclude({ valid, policy, said, measurements }: Verdict): void {
  for (const line of said) console.log(line);
  // A device under a test root proves nothing about hardware, no matter who says that it is right.
  if (valid && policy) return say('valid', 'none');
  const known = CODES.find(([complaint]) => complaint.test(said.join('\n')))?.[1];
  const code = known ?? (measurements === 'fail' ? 'measurement_mismatch' : 'unknown_to_us');
  say(/_unavailable$/.test(code) ? 'incomplete' : 'invalid', code);
}

function say(verdict: 'valid' | 'invalid' | 'incomplete', word: string): void {
  console.log(`${verdict} ${word}`);
  process.exitCode = EXIT[verdict];
}
