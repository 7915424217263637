// XML as a small tree with two ways of writing it: as a file, and in the canonical form that is signed (C14N 1.1).
import { createHash, type KeyObject, sign } from 'node:crypto';
import type { Certificate } from '../../demo/twin/certificate.ts';

export interface Element {
  /** With its prefix, if any. */
  readonly name: string;
  /** Prefix to namespace; '' is the default namespace. */
  readonly namespaces?: Readonly<Record<string, string>>;
  readonly attributes?: Readonly<Record<string, string>>;
  readonly children?: readonly (Element | string)[];
}

type Namespaces = Readonly<Record<string, string>>;

/** As a file: declarations and attributes in the order given, an element without children closed at once. */
export function serialize(node: Element | string): string {
  if (typeof node === 'string') return text(node);
  const declared = Object.entries(node.namespaces ?? {})
    .map(declaration)
    .join('');
  const attributes = Object.entries(node.attributes ?? {})
    .map(attribute)
    .join('');
  const children = node.children ?? [];
  const end = children.length === 0 ? '/>' : `>${children.map(serialize).join('')}</${node.name}>`;
  return `<${node.name}${declared}${attributes}${end}`;
}

/**
 * Canonical XML 1.1, inclusive, without comments (§1.1, §2.3): namespaces sorted by prefix and written where they first
 * come into force, attributes sorted by namespace and then local name, no element closed at once. For an element apart
 * from its document, `inherited` are the namespaces its ancestors declare: all of them are written on it (§2.4).
 */
export function canonicalize(node: Element | string, inherited: Namespaces = {}): string {
  return canonical(node, inherited, {});
}

function canonical(node: Element | string, inScope: Namespaces, written: Namespaces): string {
  if (typeof node === 'string') return text(node);
  const scope: Namespaces = { ...inScope, ...node.namespaces };
  const fresh = Object.entries(scope).filter(([prefix, uri]) => written[prefix] !== uri);
  const declared = fresh.sort(byKey).map(declaration).join('');
  const attributes = Object.entries(node.attributes ?? {})
    .map(([name, value]) => [sortKey(name, scope), attribute([name, value])] as const)
    .sort(byKey)
    .map(([, written]) => written)
    .join('');
  const children = (node.children ?? []).map((child) => canonical(child, scope, scope)).join('');
  return `<${node.name}${declared}${attributes}>${children}</${node.name}>`;
}

/** Namespace name, then local name; an attribute without a prefix is in no namespace and comes first. */
function sortKey(name: string, scope: Namespaces): string {
  const colon = name.indexOf(':');
  return colon < 0 ? `\0${name}` : `${scope[name.slice(0, colon)] ?? ''}\0${name.slice(colon + 1)}`;
}

const byKey = ([a]: readonly [string, string], [b]: readonly [string, string]): number => (a < b ? -1 : a > b ? 1 : 0);

const declaration = ([prefix, uri]: readonly [string, string]): string =>
  ` xmlns${prefix === '' ? '' : `:${prefix}`}="${quoted(uri)}"`;
const attribute = ([name, value]: readonly [string, string]): string => ` ${name}="${quoted(value)}"`;
const text = (value: string): string => value.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
const quoted = (value: string): string =>
  value.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');

// Signs an XML element in place (XML-DSig 1.1, enveloped): C14N 1.1, ECDSA P-384 with SHA-384, the signer's chain in KeyInfo.

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
