// Everything that signs in the vectors: simulated devices, RIM signers and responders under test roots of their own.
import type { Holder } from '../../demo/twin/certificate.ts';
import {
  chainPem,
  DEVICE_ROOT,
  type Device,
  GH100,
  type Issuers,
  makeDevice,
  makeIssuers,
  makeRoot,
} from '../../demo/twin/pki.ts';
import { makeResponder } from '../../test/twin/ocsp.ts';
import { makeRimSigner, RIM_ROOT, type RimSigner } from '../../test/twin/rim-signer.ts';
import { type Keep, keepNothing } from './store.ts';

/** The clock of every vector. */
export const AT = new Date('2025-06-01T12:00:00Z');
export const DAY_MS = 24 * 60 * 60 * 1000;

export interface World {
  readonly issuers: Issuers;
  /** Two GPUs of one maker. */
  readonly a: Device;
  readonly b: Device;
  readonly rimSigner: RimSigner;
  /** Made the same way under roots that nobody trusts. */
  readonly strangers: { readonly issuers: Issuers; readonly device: Device; readonly rimSigner: RimSigner };
  /** Answers for certificates that `issuer` issued. `name` tells issuers apart where keys are kept. */
  responder(name: string, issuer: Holder): Holder;
}

export function makeWorld(keep: Keep = keepNothing): World {
  const issuers = keptIssuers(keep, '');
  const theirs = keptIssuers(keep, 'stranger-');
  return {
    issuers,
    a: keptDevice(keep, 'a', issuers),
    b: keptDevice(keep, 'b', issuers),
    rimSigner: keptSigner(keep, ''),
    strangers: {
      issuers: theirs,
      device: keptDevice(keep, 'stranger', theirs),
      rimSigner: keptSigner(keep, 'stranger-'),
    },
    responder: (name, issuer) => keep(`responder-of-${name}`, () => makeResponder(issuer)),
  };
}

function keptIssuers(keep: Keep, prefix: string): Issuers {
  const root = keep(`${prefix}device-root`, () => makeRoot(DEVICE_ROOT));
  let made: Issuers | undefined;
  const once = (): Issuers => {
    made ??= makeIssuers(root);
    return made;
  };
  const identity = keep(`${prefix}identity`, () => once().identity);
  const provisioner = keep(`${prefix}provisioner`, () => once().provisioner);
  return { chip: GH100, root, identity, provisioner };
}

function keptDevice(keep: Keep, name: string, issuers: Issuers): Device {
  let made: Device | undefined;
  const once = (): Device => {
    made ??= makeDevice(issuers);
    return made;
  };
  const brom = keep(`device-${name}-brom`, () => once().brom);
  const leaf = keep(`device-${name}-leaf`, () => ({ key: once().key, certificate: once().chain[0] }));
  return deviceOf(issuers, brom, leaf);
}

/** A device whose certificates were made one by one. */
export function deviceOf(issuers: Issuers, brom: Holder, leaf: Holder): Device {
  const above = [issuers.provisioner.certificate, issuers.identity.certificate, issuers.root.certificate] as const;
  return {
    chain: [leaf.certificate, brom.certificate, ...above],
    brom,
    key: leaf.key,
    hwmodel: 'SIMULATED GH100 A01 GSP BROM',
    ueid: BigInt(`0x${leaf.certificate.serial.toString('hex')}`).toString(),
  };
}

function keptSigner(keep: Keep, prefix: string): RimSigner {
  const root = keep(`${prefix}rim-root`, () => makeRoot(RIM_ROOT));
  let made: RimSigner | undefined;
  const once = (): RimSigner => {
    made ??= makeRimSigner(root);
    return made;
  };
  const ca = keep(`${prefix}rim-ca`, () => once().ca);
  const intermediate = keep(`${prefix}rim-intermediate`, () => once().intermediate);
  const signer = keep(`${prefix}rim-signer`, () => once().signer);
  const chain = [signer.certificate, intermediate.certificate, ca.certificate, root.certificate] as const;
  return { root, ca, intermediate, signer, chain };
}

export const chainBase64 = (device: Device): string => Buffer.from(chainPem(device)).toString('base64');
