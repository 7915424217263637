// Cases about the report, its chain, its endorsements and reference values, and the caller's policy.
import type { RimOptions } from '../../sidecar/simulated/rim.ts';
import { makeRim, RIM_IDS } from '../../sidecar/simulated/rim.ts';
import { makeRimSigner } from '../../sidecar/simulated/rim-signer.ts';
import { labelled } from '../../sidecar/simulated/twin.ts';
import { withLeaf, withoutAuthority } from './devices.ts';
import { answerAbout, type Change, NEXT_UPDATE, subjects } from './endorsements.ts';
import { nonceHex, OTHER, rawOf, WHOLE } from './exchange.ts';
import { bare, evidenceOf, type ForgeOptions, forge } from './forge.ts';
import { base64, type Case, fail, type Kit, type Made, pass } from './kit.ts';
import { withProduct } from './resign.ts';
import { AT, DAY_MS } from './world.ts';

const NONCE = nonceHex(rawOf(WHOLE));
const OTHER_NONCE = nonceHex(rawOf(OTHER));
const SKIPPED = ['expected_exchange', 'token_signature'] as const;

const good =
  (description: string, options?: Made['options']) =>
  (kit: Kit): Made => ({
    description,
    attestation_file: kit.attestation_file,
    skipped: SKIPPED,
    ...(options === undefined ? {} : { options }),
  });

const forged =
  (description: string, options: (kit: Kit) => ForgeOptions, skipped: Made['skipped'] = SKIPPED) =>
  async (kit: Kit): Promise<Made> => ({ description, attestation: await forge(kit.world, options(kit)), skipped });

/** The good answers but that about `name`, which says otherwise, or is missing. */
const status =
  (description: string, name: string, change: ((kit: Kit) => Change) | null, file = '') =>
  (kit: Kit): Made => {
    const others = (kit.options.ocsp_files ?? []).filter((path) => path !== `parts/ocsp-${name}.b64`);
    const subject = subjects(kit.world, kit.world.a)[name];
    const one =
      change === null || subject === undefined
        ? []
        : [
            kit.part(`parts/ocsp-${name}-${file}.b64`, () =>
              base64(answerAbout(kit.world, name, subject, change(kit))),
            ),
          ];
    return { description, attestation_file: kit.attestation_file, options: { ocsp_files: [...others, ...one] } };
  };

/** The good driver RIM in the place of another document. */
const driverRim =
  (description: string, file: string | null, make: (kit: Kit) => string = () => '') =>
  (kit: Kit): Made => {
    const { [RIM_IDS.driver]: _, ...others } = kit.options.rim_files ?? {};
    const path = file === null ? {} : { [RIM_IDS.driver]: kit.part(`parts/rim-driver-${file}.xml`, () => make(kit)) };
    return { description, attestation_file: kit.attestation_file, options: { rim_files: { ...others, ...path } } };
  };

const rim = ({ world }: Kit, options: RimOptions = {}, signer = world.rimSigner): string =>
  withProduct(makeRim('driver', signer, options), signer);

const twoDevices = async ({ world }: Kit, broken: boolean): Promise<unknown[]> => [
  bare(await evidenceOf(world.a, NONCE), NONCE),
  bare(await evidenceOf(world.b, NONCE, { breakSignature: broken }), NONCE),
];

const withoutRevocation = { without: { revocation: true } } as const;

export const DEVICE_CASES: readonly Case[] = [
  pass(
    'report_form',
    'old-driver',
    forged('a driver before 550: no FWID in the report', () => ({ report: { fwid: null } }), [
      ...SKIPPED,
      'report_fwid',
    ]),
  ),
  fail('report_form', 'trailing-byte', 'report_malformed', async ({ world }) => {
    const { evidence, ...rest } = await forge(world);
    const longer = evidence.map((one) => ({
      ...one,
      report: Buffer.from(`${atob(one.report)}\0`, 'latin1').toString('base64'),
    }));
    return { description: 'a byte follows the signature', attestation: { ...rest, evidence: longer } };
  }),
  fail('report_form', 'chain-not-pem', 'evidence_malformed', async ({ world }) => {
    const { evidence, ...rest } = await forge(world);
    const spoilt = evidence.map((one) => ({ ...one, certificate_chain: Buffer.from('no PEM').toString('base64') }));
    return { description: 'the certificate chain is no PEM', attestation: { ...rest, evidence: spoilt } };
  }),
  fail('report_form', 'no-evidence', 'evidence_missing', async ({ world }) => {
    const { evidence: _, ...attestation } = await forge(world);
    return { description: 'a self-asserted token without evidence', attestation };
  }),
  fail('report_form', 'one-device-twice', 'evidence_malformed', async ({ world }) => ({
    description: 'one device stands for two',
    evidence: [bare(await evidenceOf(world.a, NONCE), NONCE), bare(await evidenceOf(world.a, NONCE), NONCE)],
  })),

  pass('report_nonce', 'bare-evidence', async (kit) => ({
    description: "bare evidence of two devices in NVIDIA's form",
    evidence: await twoDevices(kit, false),
    options: withoutRevocation,
    skipped: ['revocation'],
  })),
  fail(
    'report_nonce',
    'another-answer',
    'report_nonce_mismatch',
    forged("another answer's report", () => ({ reportNonce: OTHER_NONCE })),
  ),
  fail('report_nonce', 'bare-evidence', 'report_nonce_mismatch', async ({ world }) => ({
    description: 'bare evidence that states another nonce than the device signed',
    evidence: [bare(await evidenceOf(world.a, NONCE), OTHER_NONCE)],
  })),

  pass('report_signature', 'good', good('the key of the leaf certificate signed the report')),
  fail(
    'report_signature',
    'bit-turned',
    'report_signature_invalid',
    forged('a bit of the signature is turned', () => ({ report: { breakSignature: true } })),
  ),
  fail('report_signature', 'second-device', 'report_signature_invalid', async (kit) => ({
    description: "of two devices the second one's signature is broken",
    evidence: await twoDevices(kit, true),
    options: withoutRevocation,
  })),

  pass('report_chain', 'without-root', async ({ world }) => ({
    description: 'the chain comes without its root',
    attestation: await forge(world, { devices: [{ ...world.a, chain: world.a.chain.slice(0, 4) as never }] }),
    skipped: SKIPPED,
  })),
  fail(
    'report_chain',
    'root-from-the-chain',
    'untrusted_root',
    forged('a device under a root that looks like the trusted one, brought along in the chain', ({ world }) => ({
      devices: [world.strangers.device],
    })),
  ),
  fail(
    'report_chain',
    'leaf-expired',
    'certificate_expired',
    forged('the leaf certificate expired a day ago', ({ world }) => ({
      devices: [withLeaf(world, { notAfter: new Date(AT.getTime() - DAY_MS) })],
    })),
  ),
  fail(
    'report_chain',
    'leaf-not-yet-valid',
    'certificate_expired',
    forged('the leaf certificate is valid from tomorrow', ({ world }) => ({
      devices: [withLeaf(world, { notBefore: new Date(AT.getTime() + DAY_MS) })],
    })),
  ),
  fail(
    'report_chain',
    'issuer-no-authority',
    'chain_invalid',
    forged("the leaf's issuer is not a certificate authority", ({ world }) => ({ devices: [withoutAuthority(world)] })),
  ),
  fail('report_chain', 'simulated-root-not-named', 'simulated_root_refused', (kit) => {
    const { simulated_root_file: _, ...options } = kit.options;
    return {
      description: 'a simulated device, and the caller named no simulated root',
      attestation_file: kit.attestation_file,
      options: { ...options, simulated_root_file: undefined as never },
    };
  }),

  pass('report_fwid', 'same', good('the firmware id of the report is that of the leaf certificate')),
  fail(
    'report_fwid',
    'another',
    'fwid_mismatch',
    forged('the report names another firmware than the leaf certificate was issued for', () => ({
      report: { fwid: labelled('another firmware') },
    })),
  ),

  pass('revocation', 'good', good('every certificate but leaf and roots is good')),
  fail(
    'revocation',
    'no-answer',
    'revocation_unavailable',
    status('no answer about the boot ROM certificate', 'brom', null),
  ),
  fail(
    'revocation',
    'unknown',
    'revocation_unavailable',
    status('the responder does not know the certificate', 'brom', () => ({ status: 'unknown' }), 'unknown'),
  ),
  fail(
    'revocation',
    'stale',
    'revocation_invalid',
    status(
      'the answer held until yesterday',
      'provisioner',
      () => ({ thisUpdate: new Date(AT.getTime() - 2 * DAY_MS), nextUpdate: new Date(AT.getTime() - DAY_MS) }),
      'stale',
    ),
  ),
  fail(
    'revocation',
    'from-tomorrow',
    'revocation_invalid',
    status(
      'the answer is from tomorrow',
      'provisioner',
      () => ({ thisUpdate: new Date(AT.getTime() + DAY_MS), nextUpdate: new Date(NEXT_UPDATE.getTime() + DAY_MS) }),
      'from-tomorrow',
    ),
  ),
  fail(
    'revocation',
    'signature',
    'revocation_invalid',
    status('the signature of the answer is broken', 'identity', () => ({ breakSignature: true }), 'signature'),
  ),
  fail(
    'revocation',
    'another-authoritys-responder',
    'revocation_invalid',
    status(
      "another authority's responder answers",
      'brom',
      ({ world }) => ({ responder: world.responder('identity', world.issuers.root) }),
      'foreign',
    ),
  ),
  fail(
    'revocation',
    'revoked',
    'certificate_revoked',
    status(
      'the certificate was revoked for key compromise',
      'brom',
      () => ({ status: { revokedAt: new Date(AT.getTime() - DAY_MS), reason: 1 } }),
      'revoked',
    ),
  ),
  fail(
    'revocation',
    'on-hold',
    'certificate_revoked',
    status(
      'the certificate of the RIM signer is on hold',
      'rim-signer',
      () => ({ status: { revokedAt: new Date(AT.getTime() - DAY_MS), reason: 6 } }),
      'on-hold',
    ),
  ),

  pass(
    'reference_values',
    'match',
    good('all active measurements have their reference values, some of them the second alternative'),
  ),
  fail('reference_values', 'unavailable', 'rim_unavailable', driverRim('there is no RIM for the driver', null)),
  fail(
    'reference_values',
    'document-type',
    'rim_malformed',
    driverRim(
      'the RIM has a document type',
      'document-type',
      (kit) => `<!DOCTYPE SoftwareIdentity [<!ENTITY a "a">]>${rim(kit)}`,
    ),
  ),
  fail(
    'reference_values',
    'changed',
    'rim_signature_invalid',
    driverRim('an index was made inactive after the RIM was signed', 'changed', (kit) =>
      rim(kit).replace('active="True"', 'active="False"'),
    ),
  ),
  fail(
    'reference_values',
    'another-root',
    'rim_chain_invalid',
    driverRim('the RIM is signed under another root', 'another-root', (kit) =>
      rim(kit, {}, kit.world.strangers.rimSigner),
    ),
  ),
  fail(
    'reference_values',
    'signer-expired',
    'rim_signer_expired',
    driverRim("the RIM signer's certificate expired yesterday", 'signer-expired', (kit) => {
      return rim(kit, {}, makeRimSigner(kit.world.rimSigner.root, { notAfter: new Date(AT.getTime() - DAY_MS) }));
    }),
  ),
  fail(
    'reference_values',
    'another-version',
    'rim_mismatch',
    driverRim('a RIM with the right values that is for another driver version', 'another-version', (kit) =>
      rim(kit, { version: '000.00.01' }),
    ),
  ),
  fail(
    'reference_values',
    'index-in-both',
    'rim_mismatch',
    driverRim('driver and VBIOS RIM both claim an index', 'index-in-both', (kit) =>
      rim(kit, { active: new Set([1, 7, 21]) }),
    ),
  ),
  fail(
    'reference_values',
    'another-value',
    'measurement_mismatch',
    driverRim('a measurement has none of its reference values', 'another-value', (kit) =>
      rim(kit, { measurements: new Map([[22, [labelled('another build')]]]) }),
    ),
  ),

  pass(
    'device_mode',
    'confidential',
    good('the measurements are those of confidential mode, and the token says nothing else'),
  ),
  fail(
    'device_mode',
    'debug',
    'debug_enabled',
    forged('the token says that debugging is on', () => ({ token: { claims: { dbgstat: 'enabled' } } })),
  ),
  fail(
    'device_mode',
    'no-secure-boot',
    'device_not_confidential',
    forged('the token says that the device did not boot securely', () => ({ token: { claims: { secboot: false } } })),
  ),

  pass(
    'policy',
    'fresh',
    good('a minute old, of at most five; the caller requires two checks, and they passed', {
      max_age_seconds: 300,
      required_checks: ['revocation', 'reference_values'],
    }),
  ),
  fail('policy', 'too-old', 'too_old', good('a minute old; the caller accepts ten seconds', { max_age_seconds: 10 })),
  fail(
    'policy',
    'required-check-skipped',
    'policy_refused',
    good('the caller requires a signed token, and the token is self-asserted', {
      required_checks: ['token_signature'],
    }),
  ),
];
