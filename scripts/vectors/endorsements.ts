// Reference values and revocation answers for the twin, right or with one thing wrong.
import type { Certificate, Holder } from '../../demo/twin/certificate.ts';
import type { Device } from '../../demo/twin/pki.ts';
import { makeOcspResponse, type OcspAnswer } from '../../test/twin/ocsp.ts';
import { makeRim, RIM_IDS, type RimOptions } from '../../test/twin/rim.ts';
import type { RimSigner } from '../../test/twin/rim-signer.ts';
import { withProduct } from './resign.ts';
import { AT, type World } from './world.ts';

export type Change = Partial<Omit<OcspAnswer, 'certificate' | 'issuer'>>;

const HOUR_MS = 60 * 60 * 1000;
/** The window of every answer: from six hours before the clock of the vectors to eighteen after it. */
export const THIS_UPDATE = new Date(AT.getTime() - 6 * HOUR_MS);
export const NEXT_UPDATE = new Date(AT.getTime() + 18 * HOUR_MS);

/** What is asked about: all of a device's chain and of the RIM signers' but leaf of the first and the roots. */
export function subjects(world: World, device: Device): Readonly<Record<string, readonly [Certificate, Holder]>> {
  const { issuers, rimSigner } = world;
  return {
    brom: [device.brom.certificate, issuers.provisioner],
    provisioner: [issuers.provisioner.certificate, issuers.identity],
    identity: [issuers.identity.certificate, issuers.root],
    'rim-signer': [rimSigner.signer.certificate, rimSigner.intermediate],
    'rim-intermediate': [rimSigner.intermediate.certificate, rimSigner.ca],
    'rim-ca': [rimSigner.ca.certificate, rimSigner.root],
  };
}

export function answerAbout(
  world: World,
  name: string,
  [certificate, issuer]: readonly [Certificate, Holder],
  change: Change = {},
): Buffer {
  return makeOcspResponse({
    certificate,
    issuer: issuer.certificate,
    responder: world.responder(name, issuer),
    status: 'good',
    thisUpdate: THIS_UPDATE,
    nextUpdate: NEXT_UPDATE,
    ...change,
  });
}

/** Good answers by what they are about; `changes` makes some say otherwise. */
export function answers(
  world: World,
  device: Device = world.a,
  changes: Readonly<Record<string, Change>> = {},
): Map<string, Buffer> {
  const all = Object.entries(subjects(world, device));
  return new Map(all.map(([name, subject]) => [name, answerAbout(world, name, subject, changes[name])]));
}

/** The two manifests that the twin's report asks for, by id. */
export function rims(
  signer: RimSigner,
  options: { readonly driver?: RimOptions; readonly vbios?: RimOptions } = {},
): Map<string, string> {
  return new Map([
    [RIM_IDS.driver, withProduct(makeRim('driver', signer, options.driver), signer)],
    [RIM_IDS.vbios, withProduct(makeRim('vbios', signer, options.vbios), signer)],
  ]);
}
