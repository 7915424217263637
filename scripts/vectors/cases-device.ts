// Cases about the report, its chain and its mode, and the caller's policy.
import { labelled } from '../../demo/twin/identity.ts';
import type { ReportOptions } from '../../test/twin/report.ts';
import { withLeaf, withoutAuthority } from './devices.ts';
import { nonceHex, OTHER, rawOf, WHOLE } from './exchange.ts';
import { bare, evidenceOf, type ForgeOptions, forge } from './forge.ts';
import { ALONE, type Case, fail, good, type Kit, type Made, pass } from './kit.ts';
import { AT, DAY_MS } from './world.ts';

const NONCE = nonceHex(rawOf(WHOLE));
const OTHER_NONCE = nonceHex(rawOf(OTHER));
const forged =
  (description: string, options: (kit: Kit) => ForgeOptions, skipped: Made['skipped'] = ALONE) =>
  async (kit: Kit): Promise<Made> => ({ description, attestation: await forge(kit.world, options(kit)), skipped });

const twoDevices = async ({ world }: Kit, second: ReportOptions = {}): Promise<unknown[]> => [
  bare(await evidenceOf(world.a, NONCE), NONCE),
  bare(await evidenceOf(world.b, NONCE, second), NONCE),
];

const withoutRevocation = { without: { revocation: true } } as const;

export const DEVICE_CASES: readonly Case[] = [
  pass(
    'report_form',
    'old-driver',
    forged('a driver before 550: no FWID in the report', () => ({ report: { fwid: null } }), [...ALONE, 'report_fwid']),
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
    evidence: await twoDevices(kit),
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
    evidence: await twoDevices(kit, { breakSignature: true }),
    options: withoutRevocation,
  })),

  pass('report_chain', 'without-root', async ({ world }) => ({
    description: 'the chain comes without its root',
    attestation: await forge(world, { devices: [{ ...world.a, chain: world.a.chain.slice(0, 4) as never }] }),
    skipped: ALONE,
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

  pass('topology', 'one-mode', async (kit) => ({
    description: 'two devices, of which neither is behind protected PCIe',
    evidence: await twoDevices(kit),
    options: withoutRevocation,
    skipped: ['revocation'],
  })),
  fail('topology', 'another-mode', 'topology_mismatch', async (kit) => ({
    description: 'the second of two devices says that it is behind protected PCIe, the first that it is not',
    evidence: await twoDevices(kit, { protectedPcie: 0xaa }),
    options: withoutRevocation,
  })),

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
