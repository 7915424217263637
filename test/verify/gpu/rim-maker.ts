// Makes RIMs of our own under a test root, whole or with one thing wrong that the signature still covers.
import { createHash, type KeyObject, sign } from 'node:crypto';
import type { Holder, Certificate as Issued } from '../../../demo/twin/certificate.ts';
import { makeRoot } from '../../../demo/twin/pki.ts';
import { childElements, type Element, isNamed, parseXml } from '../../../verify/gpu/rim/xml.ts';
import { canonicalDocument, canonicalSubset } from '../../../verify/gpu/rim/xml-signature.ts';
import { type Certificate, parseCertificate } from '../../../verify/x509/certificate.ts';
import { makeRimSigner, RIM_ROOT, type SignerOptions } from '../../twin/rim-signer.ts';

export const DS = 'http://www.w3.org/2000/09/xmldsig#';
export const C14N = 'http://www.w3.org/2006/12/xml-c14n11';
const SWID = 'http://standards.iso.org/iso/19770/-2/2015/schema.xsd';
const SHA384 = 'http://www.w3.org/2001/04/xmlenc#sha384';

export interface Signer {
  readonly roots: readonly Certificate[];
  readonly key: KeyObject;
  /** Leaf first. */
  readonly chain: readonly Issued[];
  readonly ca: Holder;
}

export function newSigner(options: SignerOptions = {}): Signer {
  const root = makeRoot(RIM_ROOT);
  const { chain, signer, ca } = makeRimSigner(root, options);
  return { roots: [parseCertificate(root.certificate.der)], key: signer.key, chain, ca };
}

/** One `ns0:Resource`. `attributes` are laid over the usual ones; null takes one away. */
export function resource(index: number, attributes: Readonly<Record<string, string | null>> = {}): string {
  const all = {
    type: 'Measurement',
    index: `${index}`,
    active: 'True',
    alternatives: '1',
    'ns2:Hash0': hashOf(index),
    name: `Measurement_${index}`,
    size: '48',
    ...attributes,
  };
  const written = Object.entries(all).filter(([, value]) => value !== null);
  return `<ns0:Resource${written.map(([name, value]) => ` ${name}="${value}"`).join('')}/>`;
}

/** What measurement block `index + 1` holds. */
export const hashOf = (index: number): string => createHash('sha384').update(`${index}`).digest('hex');

export interface DocumentParts {
  readonly version?: string;
  readonly payload?: string;
  readonly meta?: string;
  readonly rootAttributes?: string;
}

/** An unsigned document; `signed` puts the signature before its last end tag. */
export function document(parts: DocumentParts = {}): string {
  const { version = '1.2.3', payload = resource(0), rootAttributes = '' } = parts;
  const { meta = `<ns0:Meta colloquialVersion="${version}" edition="GPU" product="TEST"/>` } = parts;
  return `<SoftwareIdentity xmlns="${SWID}" xmlns:ns0="${SWID}" xmlns:ns2="${SHA384}" tagId="test-${version}"${rootAttributes}>\n  ${meta}\n  <ns0:Payload>${payload}</ns0:Payload>\n</SoftwareIdentity>`;
}

export interface Faults {
  /** Changes SignedInfo before it is signed. */
  readonly signedInfo?: (text: string) => string;
  /** Changes KeyInfo, which is not signed. */
  readonly keyInfo?: (text: string) => string;
  /** Signs with this key instead. */
  readonly key?: KeyObject;
}

export function signed(body: string, signer: Signer, faults: Faults = {}): string {
  const digest = createHash('sha384')
    .update(canonicalDocument(...located(assembled(body, '', '', ''))))
    .digest('base64');
  const { signedInfo: edit = same, keyInfo: editKeys = same } = faults;
  const signedInfo = edit(signedInfoText(digest));
  const certificates = signer.chain.map(
    ({ der }) => `<ds:X509Certificate>${der.toString('base64')}</ds:X509Certificate>`,
  );
  const keyInfo = editKeys(`<ds:KeyInfo><ds:X509Data>${certificates.join('\n')}</ds:X509Data></ds:KeyInfo>`);
  const [root, signature] = located(assembled(body, signedInfo, '', ''));
  const bytes = canonicalSubset(childElements(signature)[0] as Element, [root, signature]);
  const value = sign('sha384', Buffer.from(bytes), { key: faults.key ?? signer.key, dsaEncoding: 'ieee-p1363' });
  return assembled(body, signedInfo, `<ds:SignatureValue>${value.toString('base64')}</ds:SignatureValue>`, keyInfo);
}

const same = (text: string) => text;

function signedInfoText(digest: string): string {
  return `<ds:SignedInfo><ds:CanonicalizationMethod Algorithm="${C14N}"/><ds:SignatureMethod Algorithm="http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha384"/><ds:Reference URI=""><ds:Transforms><ds:Transform Algorithm="${DS}enveloped-signature"/><ds:Transform Algorithm="${C14N}"/></ds:Transforms><ds:DigestMethod Algorithm="http://www.w3.org/2001/04/xmldsig-more#sha384"/><ds:DigestValue>${digest}</ds:DigestValue></ds:Reference></ds:SignedInfo>`;
}

function assembled(body: string, ...parts: string[]): string {
  const at = body.lastIndexOf('</');
  return `${body.slice(0, at)}<ds:Signature xmlns:ds="${DS}">${parts.join('')}</ds:Signature>${body.slice(at)}`;
}

function located(text: string): [Element, Element] {
  const root = parseXml(text);
  return [root, childElements(root).find((child) => isNamed(child, DS, 'Signature')) as Element];
}
