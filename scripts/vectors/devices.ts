// Devices whose certificates are wrong in one way each, under the same test root as the good ones.

import * as ext from '../../demo/twin/certificate.ts';
import {
  type Certificate,
  type Holder,
  issue,
  keyIdentifier,
  name,
  newKey,
  spki,
} from '../../demo/twin/certificate.ts';
import { FWID, TWIN } from '../../demo/twin/identity.ts';
import type { Device } from '../../demo/twin/pki.ts';
import { NOT_AFTER, NOT_BEFORE, positive, randomSerial } from '../../demo/twin/pki.ts';
import { deviceOf, type World } from './world.ts';

export interface LeafChange {
  readonly notBefore?: Date;
  readonly notAfter?: Date;
  readonly fwid?: Uint8Array;
  readonly ca?: boolean;
  readonly commonName?: string;
  /** `digitalSignature` by default. */
  readonly usage?: 'digitalSignature' | 'keyCertSign';
  readonly extensions?: readonly Buffer[];
  /** In place of the identifier of the issuer's key. */
  readonly authorityKeyId?: Buffer;
}

const subject = (commonName: string) => name(['C', TWIN.country], ['O', TWIN.organization], ['CN', commonName]);

/** A leaf under `issuer`, of a key of its own. */
export function makeLeaf(issuer: Holder, change: LeafChange = {}): Holder {
  const { key, publicKey } = newKey();
  const serial = keyIdentifier(publicKey);
  serial[0] = positive(serial[0]);
  const constraints = change.ca === undefined ? [] : [ext.basicConstraints(change.ca)];
  const spec = {
    subject: subject(change.commonName ?? 'SIMULATED GH100 A01 GSP FMC LF'),
    serial,
    notBefore: change.notBefore ?? NOT_BEFORE,
    notAfter: change.notAfter ?? NOT_AFTER,
    extensions: [...constraints, ext.keyUsage(change.usage ?? 'digitalSignature'), ...(change.extensions ?? [])],
    lateExtensions: [ext.firmwareId(spki(issuer.certificate.publicKey), change.fwid ?? FWID)],
    ...(change.authorityKeyId === undefined ? {} : { authorityKeyId: change.authorityKeyId }),
  };
  return { key, certificate: issue(spec, publicKey, issuer) };
}

/** The good device `a` with another leaf, of another key. */
export const withLeaf = (world: World, change: LeafChange): Device =>
  deviceOf(world.issuers, world.a.brom, makeLeaf(world.a.brom, change));

/** A device whose boot ROM has a certificate that makes it no authority. */
export function withoutAuthority(world: World): Device {
  const { key, publicKey } = newKey();
  const spec = {
    subject: subject('SIMULATED GH100 A01 GSP BROM'),
    serial: randomSerial(),
    notBefore: NOT_BEFORE,
    notAfter: NOT_AFTER,
    extensions: [ext.basicConstraints(false), ext.keyUsage('keyCertSign')],
  };
  const brom = { key, certificate: issue(spec, publicKey, world.issuers.provisioner) };
  return deviceOf(world.issuers, brom, makeLeaf(brom));
}

/** The same device, its chain as another's. */
export const withChain = (device: Device, chain: readonly Certificate[]): Device => ({
  ...device,
  chain: chain as unknown as Device['chain'],
});
