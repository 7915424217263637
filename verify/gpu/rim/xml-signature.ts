// Reads the one ds:Signature of a RIM (XML Signature 1.1) and refuses every form but NVIDIA's: enveloped, over the whole
// document, with fixed algorithms. What readSignature returns is not trusted; verifySignature verifies it.

import { digest, EncodingError, equal, fromBase64, utf8 } from '../../common/bytes.ts';
import { CheckFailure } from '../../common/checks.ts';
import { type Certificate, parseCertificate } from '../../x509/certificate.ts';
import { DerError } from '../../x509/der.ts';
import { ecdsaVerifyRaw } from '../../x509/public-key.ts';
import {
  type Attribute,
  childElements,
  descendants,
  type Element,
  isElement,
  isNamed,
  malformed,
  onlyElements,
  onlyText,
  XML_NAMESPACE,
} from './xml.ts';

// Canonical XML 1.1 without comments (https://www.w3.org/TR/xml-c14n11/), for a whole document and for one element of it.

/** Simple inheritable attributes (§2.4). `xml:id` is not inherited. */
const INHERITED = ['lang', 'space'];

/** The canonical form of the document below `root`, without the element `omitted` and all below it. */
export function canonicalDocument(root: Element, omitted: Element): string {
  return rendered(root, new Map(), root.attributes, omitted);
}

/**
 * The canonical form of the document subset that is `element` and all below it; `ancestors` from the root down.
 * @throws {CheckFailure} where an ancestor has `xml:base`, whose joining (§2.4) no RIM needs.
 */
export function canonicalSubset(element: Element, ancestors: readonly Element[]): string {
  return rendered(element, new Map(), [...element.attributes, ...inherited(element, ancestors)], null);
}

function inherited(element: Element, ancestors: readonly Element[]): Attribute[] {
  const found = new Map<string, Attribute>();
  for (const { attributes } of ancestors) {
    for (const attribute of attributes) {
      if (attribute.namespace !== XML_NAMESPACE) continue;
      if (attribute.local === 'base') throw malformed('xml:base above what is signed');
      if (INHERITED.includes(attribute.local)) found.set(attribute.local, attribute);
    }
  }
  for (const { local, namespace } of element.attributes) if (namespace === XML_NAMESPACE) found.delete(local);
  return [...found.values()];
}

/** `above`: the namespaces that the nearest element in the output has rendered or inherited. */
function rendered(
  element: Element,
  above: ReadonlyMap<string, string>,
  attributes: readonly Attribute[],
  omitted: Element | null,
): string {
  const name = element.prefix === '' ? element.local : `${element.prefix}:${element.local}`;
  let out = `<${name}${namespaceNodes(element.scope, above)}`;
  for (const { prefix, local, value } of [...attributes].sort(byName))
    out += ` ${prefix === '' ? local : `${prefix}:${local}`}="${escapedAttribute(value)}"`;
  out += '>';
  for (const node of element.children) {
    if (!isElement(node)) out += escapedText(node);
    else if (node !== omitted) out += rendered(node, element.scope, node.attributes, omitted);
  }
  return `${out}</${name}>`;
}

/** §2.3: the default namespace first, then by prefix; without those that an element above has rendered with the same URI. */
function namespaceNodes(scope: ReadonlyMap<string, string>, above: ReadonlyMap<string, string>): string {
  if (scope === above) return '';
  const fresh = [...scope].filter(([prefix, uri]) => uri !== (above.get(prefix) ?? '')).sort(([a], [b]) => order(a, b));
  return fresh.map(([prefix, uri]) => ` xmlns${prefix === '' ? '' : `:${prefix}`}="${escapedAttribute(uri)}"`).join('');
}

/** §2.2: by namespace URI, then by local name; no namespace comes first. */
function byName(a: Attribute, b: Attribute): number {
  return order(a.namespace, b.namespace) || order(a.local, b.local);
}

function order(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  '\t': '&#x9;',
  '\n': '&#xA;',
  '\r': '&#xD;',
};
const escaped = (character: string) => ESCAPES[character] ?? character;
const escapedText = (text: string) => text.replace(/[&<>\r]/g, escaped);
const escapedAttribute = (text: string) => text.replace(/[&<"\t\n\r]/g, escaped);

const XMLDSIG = 'http://www.w3.org/2000/09/xmldsig#';
const C14N_11 = 'http://www.w3.org/2006/12/xml-c14n11';
const ENVELOPED = 'http://www.w3.org/2000/09/xmldsig#enveloped-signature';
const ECDSA_SHA384 = 'http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha384';
const SHA384 = 'http://www.w3.org/2001/04/xmldsig-more#sha384';
const DIGEST_BYTES = 48;
/** r ‖ s on P-384. */
const SIGNATURE_BYTES = 96;
const MAX_CERTIFICATES = 8;

interface EnvelopedSignature {
  readonly element: Element;
  readonly signedInfo: Element;
  /** The SHA-384 of the canonical document, as SignedInfo states it. */
  readonly digest: Uint8Array;
  readonly value: Uint8Array;
  /** In the order of ds:X509Data: the signer's first. */
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

/** Exactly one signature, a child of the root; elements of its namespace elsewhere are rejected. */
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

/** XML Signature §4.4: checks the algorithms and the reference, and returns the digest. */
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

/** The child elements of an element that must have this name, these attributes and no others. */
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

// Verifies a RIM's enveloped XML signature (XML Signature 1.1 §3.2) and returns the exact text that was signed.

interface SignedDocument {
  /** The canonical text whose digest was signed: the document without its signature. Read values from nothing else. */
  readonly text: string;
  /** The signer's chain as received, leaf first. The leaf signed; the chain is not verified yet. */
  readonly chain: readonly Certificate[];
}

/** @throws {CheckFailure} rim_signature_invalid, or rim_malformed for a form that is not accepted. */
export async function verifySignature(root: Element): Promise<SignedDocument> {
  const signature = readSignature(root);
  const text = canonicalDocument(root, signature.element);
  if (!equal(await digest('SHA-384', utf8(text)), signature.digest))
    throw invalid('the digest of the document is another');
  const [leaf] = signature.certificates;
  if (leaf?.curve !== 'P-384') throw invalid('the signer has no P-384 key');
  if (leaf.isCa || leaf.keyUsage?.has('digitalSignature') === false) throw invalid('the signer may not sign documents');
  const signedInfo = utf8(canonicalSubset(signature.signedInfo, [root, signature.element]));
  if (!(await ecdsaVerifyRaw(leaf, 'SHA-384', signature.value, signedInfo)))
    throw invalid('the signature does not verify under the signer');
  return { text, chain: signature.certificates };
}

function invalid(message: string): CheckFailure {
  return new CheckFailure('rim_signature_invalid', message);
}
