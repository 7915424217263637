// Cases about what others say of a device: revocation answers and reference values.

import { labelled } from '../../demo/twin/identity.ts';
import type { RimOptions } from '../../test/twin/rim.ts';
import { makeRim, RIM_IDS } from '../../test/twin/rim.ts';
import { makeRimSigner } from '../../test/twin/rim-signer.ts';
import { answerAbout, type Change, NEXT_UPDATE, subjects } from './endorsements.ts';
import { base64, type Case, fail, good, type Kit, type Made, pass } from './kit.ts';
import { withProduct } from './resign.ts';
import { AT, DAY_MS } from './world.ts';

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

export const COLLATERAL_CASES: readonly Case[] = [
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
];
