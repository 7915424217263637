// Reads the one ds:Signature of a RIM (XML Signature 1.1) and refuses every form but NVIDIA's: enveloped, over the whole
// document, by closed algorithms. What it returns is not yet trusted: verifySignature in signature.ts makes it so.
import { EncodingError, fromBase64 } from '../bytes.ts';
import { CheckFailure } from '../checks.ts';
import { type Certificate, parseCertificate } from '../x509/certificate.ts';
import { DerError } from '../x509/der.ts';
import { childElements, descendants, type Element, isNamed, malformed, onlyElements, onlyText } from './tree.ts';

const XMLDSIG = 'http://www.w3.org/2000/09/xmldsig#';
const C14N_11 = 'http://www.w3.org/2006/12/xml-c14n11';
const ENVELOPED = 'http://www.w3.org/2000/09/xmldsig#enveloped-signature';
const ECDSA_SHA384 = 'http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha384';
const SHA384 = 'http://www.w3.org/2001/04/xmldsig-more#sha384';
const DIGEST_BYTES = 48;
/** r ‖ s on P-384. */
const SIGNATURE_BYTES = 96;
const MAX_CERTIFICATES = 8;

export interface EnvelopedSignature {
  readonly element: Element;
  readonly signedInfo: Element;
  /** SHA-384 that the canonical document is said to have. */
  readonly digest: Uint8Array;
  readonly value: Uint8Array;
  /** As they stand in ds:X509Data: the signer's first. */
  readonly certificates: readonly Certificate[];
}

/** @throws {CheckFailure} rim_malformed for another form, rim_signature_invalid for another algorithm. */
export function readSignature(root: Element): EnvelopedSignature {
  const element = onlySignature(root);
  const [signedInfo, signatureValue, keyInfo, ...more] = parts(element, 'Signature');
  if (signedInfo === undefined || signatureValue === undefined || keyInfo === undefined || more.length > 0)
    throw malformed('Signature is not SignedInfo, SignatureValue and KeyInfo');
  return {
    element,
    signedInfo,
    digest: signedDigest(signedInfo),
    value: bytes(signatureValue, 'SignatureValue', SIGNATURE_BYTES),
    certificates: certificates(keyInfo),
  };
}

/** One signature, a child of the root, and nothing of its namespace outside of it: nowhere for a second to hide. */
function onlySignature(root: Element): Element {
  const found = childElements(root).filter((child) => isNamed(child, XMLDSIG, 'Signature'));
  const [element] = found;
  if (element === undefined) throw malformed('the document has no signature');
  const inside = new Set(descendants(element));
  for (const other of descendants(root)) {
    if (other.namespace !== XMLDSIG) continue;
    if (!inside.has(other)) throw malformed('the document has more than one signature');
    if (other !== element && other.local === 'Signature') throw malformed('a signature within the signature');
  }
  return element;
}

/** XML Signature §4.4: which algorithms, and over what. */
function signedDigest(signedInfo: Element): Uint8Array {
  const [canonicalization, method, reference, ...more] = parts(signedInfo, 'SignedInfo');
  algorithm(canonicalization, 'CanonicalizationMethod', C14N_11);
  algorithm(method, 'SignatureMethod', ECDSA_SHA384);
  if (more.length > 0) throw malformed('SignedInfo has more than one reference');
  const [transforms, digestMethod, digestValue, ...rest] = parts(reference, 'Reference', { URI: '' });
  const [enveloped, canonical, ...others] = parts(transforms, 'Transforms');
  algorithm(enveloped, 'Transform', ENVELOPED);
  algorithm(canonical, 'Transform', C14N_11);
  if (others.length > 0) throw malformed('Transforms has more than two transforms');
  algorithm(digestMethod, 'DigestMethod', SHA384);
  if (rest.length > 0) throw malformed('Reference has more than three parts');
  return bytes(digestValue, 'DigestValue', DIGEST_BYTES);
}

function certificates(keyInfo: Element): Certificate[] {
  const [x509Data, ...more] = parts(keyInfo, 'KeyInfo');
  if (x509Data === undefined || more.length > 0) throw malformed('KeyInfo is not one X509Data');
  const found = parts(x509Data, 'X509Data');
  if (found.length === 0) throw malformed('X509Data has no certificate');
  if (found.length > MAX_CERTIFICATES) throw malformed(`X509Data has more than ${MAX_CERTIFICATES} certificates`);
  return found.map((element) => {
    try {
      return parseCertificate(bytes(element, 'X509Certificate'));
    } catch (cause) {
      if (cause instanceof DerError) throw malformed(`X509Certificate: ${cause.message}`, { cause });
      throw cause;
    }
  });
}

/** The child elements of one that must be `local`, with these attributes and no others. */
function parts(
  element: Element | undefined,
  local: string,
  attributes: Readonly<Record<string, string>> = {},
): Element[] {
  expect(element, local, attributes);
  return onlyElements(element);
}

function algorithm(element: Element | undefined, local: string, uri: string): void {
  if (element === undefined || !isNamed(element, XMLDSIG, local)) throw malformed(`${local} is missing`);
  const [only] = element.attributes;
  if (only !== undefined && only.local === 'Algorithm' && only.value !== uri)
    throw new CheckFailure('rim_signature_invalid', `${local} is not the one algorithm that is accepted`);
  if (parts(element, local, { Algorithm: uri }).length > 0) throw malformed(`${local} has parameters`);
}

function bytes(element: Element | undefined, local: string, length?: number): Uint8Array {
  expect(element, local, {});
  let value: Uint8Array;
  try {
    value = fromBase64(onlyText(element).replace(/[ \t\n\r]+/g, ''));
  } catch (cause) {
    if (cause instanceof EncodingError) throw malformed(`${local} is not base64`, { cause });
    throw cause;
  }
  if (length !== undefined && value.length !== length) throw malformed(`${local} has not ${length} bytes`);
  return value;
}

function expect(
  element: Element | undefined,
  local: string,
  attributes: Readonly<Record<string, string>>,
): asserts element is Element {
  if (element === undefined || !isNamed(element, XMLDSIG, local)) throw malformed(`${local} is missing`);
  const wanted = Object.entries(attributes);
  const exact = wanted.every(([name, value]) =>
    element.attributes.some((a) => a.local === name && a.namespace === '' && a.value === value),
  );
  if (!exact || element.attributes.length !== wanted.length)
    throw malformed(`${local} has other attributes than it may`);
}
