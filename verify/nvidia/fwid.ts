// The firmware id in a leaf certificate: the digest of the firmware for which the boot ROM certified the signing key.
import { toHex } from '../bytes.ts';
import type { Certificate } from '../x509/certificate.ts';
import { children, DerError, type DerValue, expectTag, oid, readOne, sequence, TAG } from '../x509/der.ts';

/** Hopper and LS10: SEQUENCE { version, SubjectPublicKeyInfo, FWID }. */
const COMPOSITE_DEVICE_ID = '2.23.133.5.4.1';
/** Blackwell: DiceTcbInfo (TCG DICE Attestation Architecture §6.1.1), with its FWIDs in the member [6]. */
const TCB_INFO = '2.23.133.5.4.1.1';
const FWIDS = 0xa6;

/** The digest as lowercase hex; null where the certificate has no such extension. @throws {DerError} */
export function fwidOf(leaf: Certificate): string | null {
  const tcbInfo = leaf.extensions.get(TCB_INFO);
  if (tcbInfo !== undefined) {
    const fwids = sequence(readOne(tcbInfo.value)).find(({ tag }) => tag === FWIDS);
    if (fwids === undefined) throw new DerError('the TCB info names no firmware');
    // The first is the firmware's; Blackwell leaves the second zero.
    return digestOf(children(fwids.content)[0]);
  }
  const composite = leaf.extensions.get(COMPOSITE_DEVICE_ID);
  return composite === undefined ? null : digestOf(sequence(readOne(composite.value))[2]);
}

/** FWID ::= SEQUENCE { hashAlg OBJECT IDENTIFIER, digest OCTET STRING } */
function digestOf(fwid: DerValue | undefined): string {
  const [algorithm, digest] = sequence(fwid);
  oid(algorithm);
  return toHex(expectTag(digest, TAG.octetString).content);
}
