// Signs an XML element in place (XML-DSig 1.1, enveloped): C14N 1.1, ECDSA P-384 with SHA-384, the signer's chain in KeyInfo.
import { createHash, type KeyObject, sign } from 'node:crypto';
import type { Certificate } from './certificate.ts';
import { canonicalize, type Element } from './xml.ts';

const DS = 'http://www.w3.org/2000/09/xmldsig#';
const C14N_1_1 = 'http://www.w3.org/2006/12/xml-c14n11';
const ECDSA_SHA384 = 'http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha384';
const SHA384 = 'http://www.w3.org/2001/04/xmldsig-more#sha384';

/** `chain`: the signer first. The root element must have a namespace declaration map of its own, and no signature yet. */
export function withSignature(root: Element, key: KeyObject, chain: readonly Certificate[]): Element {
  const signedInfo = signedInfoOver(createHash('sha384').update(canonicalize(root)).digest('base64'));
  // SignedInfo is canonicalized where it stands: under the root's namespaces and the signature's own (§4.4.1).
  const bytes = Buffer.from(canonicalize(signedInfo, { ...root.namespaces, ds: DS }));
  const value = sign('sha384', bytes, { key, dsaEncoding: 'ieee-p1363' }); // §6.4.3: r ‖ s, not DER
  const signature: Element = {
    name: 'ds:Signature',
    namespaces: { ds: DS },
    children: [
      signedInfo,
      leaf('ds:SignatureValue', value.toString('base64')),
      group('ds:KeyInfo', group('ds:X509Data', ...chain.map(x509Certificate))),
    ],
  };
  return { ...root, children: [...(root.children ?? []), signature] };
}

function signedInfoOver(digest: string): Element {
  const transforms = group(
    'ds:Transforms',
    algorithm('ds:Transform', `${DS}enveloped-signature`),
    algorithm('ds:Transform', C14N_1_1),
  );
  const reference = group(
    'ds:Reference',
    transforms,
    algorithm('ds:DigestMethod', SHA384),
    leaf('ds:DigestValue', digest),
  );
  return group(
    'ds:SignedInfo',
    algorithm('ds:CanonicalizationMethod', C14N_1_1),
    algorithm('ds:SignatureMethod', ECDSA_SHA384),
    { ...reference, attributes: { URI: '' } },
  );
}

/** The lines of the PEM form without its frame. */
const x509Certificate = ({ pem }: Certificate): Element =>
  leaf('ds:X509Certificate', pem.replace(/-----[A-Z ]+-----\n/g, ''));

const algorithm = (name: string, uri: string): Element => ({ name, attributes: { Algorithm: uri } });
const leaf = (name: string, content: string): Element => ({ name, children: [content] });
const group = (name: string, ...children: Element[]): Element => ({ name, children });
