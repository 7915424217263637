// Verifies a reference integrity manifest: parses it, checks its XML signature and its signer's chain, then reads its values.

import { digest, toHex, utf8 } from '../../common/bytes.ts';
import { CheckFailure } from '../../common/checks.ts';
import { LruMap } from '../../common/lru.ts';
import type { Certificate } from '../../x509/certificate.ts';
import { ChainError, verifyChain } from '../../x509/chain.ts';
import { attribute, childElements, type Element, isNamed, malformed, parseXml } from './xml.ts';
import { verifySignature } from './xml-signature.ts';

// Reads the reference values out of a RIM: a SWID tag (ISO/IEC 19770-2) with the TCG's RIM attributes, NVIDIA's profile.

const SWID = 'http://standards.iso.org/iso/19770/-2/2015/schema.xsd';
const TCG_RIM = 'https://trustedcomputinggroup.org/resource/tcg-reference-integrity-manifest-rim-information-model/';
const SHA384_HASH = 'http://www.w3.org/2001/04/xmlenc#sha384';
const OPAQUE_DATA = 'https://docs.nvidia.com/attestation/specs/latest/opaque-data.html';

/** A resource with this index or a higher one bounds opaque data, whose type is the index minus this base. */
const OPAQUE_INDEX_BASE = 0x1000;
const MAX_OPAQUE_TYPE = 0xffff;
/** Index i is measurement block i + 1, and SPDM numbers blocks up to 0xfe. */
const MAX_MEASUREMENT_INDEX = 0xfd;
const MAX_ALTERNATIVES = 32;
const MAX_TEXT_CHARACTERS = 256;

export interface Measurement {
  /** Only an active measurement is compared. */
  readonly active: boolean;
  /** The accepted values, lowercase hexadecimal. */
  readonly values: readonly string[];
  readonly name: string;
  /** Of each value, in bytes. */
  readonly size: number;
}

/** The least security version number that a field of the opaque data may have. */
interface MinimumSvn {
  readonly name: string;
  readonly minimum: number;
}

export interface Manifest {
  /** `tagId`. NVIDIA writes a hash there, not the name that its RIM service files the document under. */
  readonly id: string;
  /** `colloquialVersion`: of the driver or the BIOS. */
  readonly version: string;
  /** Guessed from version and product. {@link version} and the measurements decide which device the RIM fits. */
  readonly kind: 'driver' | 'vbios' | 'switch-bios';
  /** '' when the document names none. */
  readonly product: string;
  readonly edition: string;
  /** `FirmwareManufacturerId`: NVIDIA's is 5703. '' when the document names none. */
  readonly manufacturerId: string;
  /** By RIM index, counted from 0. */
  readonly measurements: ReadonlyMap<number, Measurement>;
  /** By type of opaque data. */
  readonly minimumSvns: ReadonlyMap<number, MinimumSvn>;
}

/** @throws {CheckFailure} rim_malformed, saying what is wrong. */
export function readManifest(root: Element): Manifest {
  if (!isNamed(root, SWID, 'SoftwareIdentity')) throw malformed('the document is not a SoftwareIdentity');
  for (const flag of ['corpus', 'patch', 'supplemental'])
    if ((attribute(root, flag) ?? 'false') !== 'false') throw malformed(`the tag is ${flag}`);
  const resources = byIndex(only(root, 'Payload'));
  const measurements = new Map<number, Measurement>();
  const minimumSvns = new Map<number, MinimumSvn>();
  for (const [index, resource] of resources) {
    if (index < OPAQUE_INDEX_BASE) measurements.set(index, measurement(resource, index));
    else if (isActive(resource, index)) minimumSvns.set(index - OPAQUE_INDEX_BASE, minimumSvn(resource, index));
  }
  const meta = only(root, 'Meta');
  const version = required(meta, 'colloquialVersion');
  const product = bounded(attribute(meta, 'product') ?? '', 'product');
  const edition = bounded(attribute(meta, 'edition') ?? '', 'edition');
  return {
    id: required(root, 'tagId'),
    version,
    kind: kind(version, `${product} ${edition}`),
    product,
    edition,
    manufacturerId: bounded(attribute(meta, 'FirmwareManufacturerId', TCG_RIM) ?? '', 'FirmwareManufacturerId'),
    measurements,
    minimumSvns,
  };
}

/** Documents do not state their kind. A BIOS version is five pairs of digits, and NVIDIA's switches are its LS family. */
function kind(version: string, device: string): Manifest['kind'] {
  if (!/^[0-9A-Fa-f]{2}(\.[0-9A-Fa-f]{2}){4}$/.test(version)) return 'driver';
  return /\bLS_?\d|switch/i.test(device) ? 'switch-bios' : 'vbios';
}

function only(root: Element, local: string): Element {
  const [found, ...more] = childElements(root).filter((child) => isNamed(child, SWID, local));
  if (found === undefined) throw malformed(`the document has no ${local}`);
  if (more.length > 0) throw malformed(`the document has more than one ${local}`);
  return found;
}

function byIndex(payload: Element): Map<number, Element> {
  const resources = new Map<number, Element>();
  for (const resource of childElements(payload)) {
    if (!isNamed(resource, SWID, 'Resource') || attribute(resource, 'type') !== 'Measurement')
      throw malformed('the Payload has something else than measurements');
    const index = wholeNumber(resource, 'index', 'a Resource');
    if (index > MAX_MEASUREMENT_INDEX && index < OPAQUE_INDEX_BASE) throw malformed(`index ${index} is out of range`);
    if (index > OPAQUE_INDEX_BASE + MAX_OPAQUE_TYPE) throw malformed(`index ${index} is out of range`);
    if (resources.has(index)) throw malformed(`index ${index} stands twice`);
    resources.set(index, resource);
  }
  if (resources.size === 0) throw malformed('the Payload has no measurement');
  return resources;
}

function measurement(resource: Element, index: number): Measurement {
  const label = `measurement ${index}`;
  const active = isActive(resource, index);
  const alternatives = wholeNumber(resource, 'alternatives', label);
  if (alternatives < 1 || alternatives > MAX_ALTERNATIVES) throw malformed(`${label}: alternatives is out of range`);
  const size = wholeNumber(resource, 'size', label);
  if (size < 1) throw malformed(`${label}: size is out of range`);
  const hashes = resource.attributes.filter((a) => a.namespace === SHA384_HASH);
  if (hashes.length > alternatives) throw malformed(`${label}: more hashes than alternatives`);
  const values = Array.from({ length: alternatives }, (_, i) => {
    const value = attribute(resource, `Hash${i}`, SHA384_HASH);
    if (value === undefined) throw malformed(`${label}: Hash${i} is missing`);
    if (!/^([0-9A-Fa-f]{2})+$/.test(value)) throw malformed(`${label}: Hash${i} is not hexadecimal`);
    if (active && value.length !== 2 * size) throw malformed(`${label}: Hash${i} has not ${size} bytes`);
    return value.toLowerCase();
  });
  return { active, values, name: bounded(attribute(resource, 'name') ?? '', 'name'), size };
}

function minimumSvn(resource: Element, index: number): MinimumSvn {
  const minimum = wholeNumber(resource, 'minSvn', `resource ${index}`, OPAQUE_DATA);
  return { name: required(resource, 'name'), minimum };
}

/** NVIDIA writes Python's `True` and `False`. Its verifiers differ in how they read any other word. */
function isActive(resource: Element, index: number): boolean {
  const active = attribute(resource, 'active');
  if (active !== 'True' && active !== 'False')
    throw malformed(`measurement ${index}: active is neither True nor False`);
  return active === 'True';
}

function wholeNumber(element: Element, local: string, label: string, namespace = ''): number {
  const text = attribute(element, local, namespace) ?? '';
  if (!/^(0|[1-9][0-9]{0,8})$/.test(text)) throw malformed(`${label}: ${local} is not a whole number`);
  return Number(text);
}

function required(element: Element, local: string): string {
  const value = attribute(element, local) ?? '';
  if (value === '') throw malformed(`${element.local} has no ${local}`);
  return bounded(value, local);
}

function bounded(value: string, local: string): string {
  if (value.length > MAX_TEXT_CHARACTERS) throw malformed(`${local} is too long`);
  return value;
}

export interface Rim extends Manifest {
  /** The signer's verified path: leaf first, the pinned root last. */
  readonly signer: readonly Certificate[];
}

interface RimOptions {
  /** The roots that RIM signers are trusted under. Nothing in the document adds one. */
  readonly roots: readonly Certificate[];
  /** The instant at which the signer's certificates must be valid. */
  readonly at: Date;
}

/** A manifest whose signature verifies under the leaf of its own chain, which depends on neither roots nor time. */
interface SignedManifest {
  readonly manifest: Manifest;
  readonly chain: readonly Certificate[];
}

/** Larger documents are refused before they are hashed; the parser has the same limit. */
const MAX_DOCUMENT_BYTES = 1024 * 1024;
/** A manifest of 64 measurements and its certificates take about 20 KiB. */
const MAX_CACHED = 64;
/** By SHA-256 of the document. Trust in the signer is decided anew at each call. */
const cached = new LruMap<string, SignedManifest>(MAX_CACHED);

/**
 * Verifies a RIM document and reads it.
 *
 * @param xml the document, as text or as bytes; at most 1 MiB.
 * @throws {CheckFailure} rim_malformed, rim_signature_invalid, rim_chain_invalid, or rim_signer_expired when everything
 * but the clock is right.
 */
export async function verifyRim(xml: string | Uint8Array, options: RimOptions): Promise<Rim> {
  if (xml.length > MAX_DOCUMENT_BYTES) throw new CheckFailure('rim_malformed', 'the RIM is too large');
  const document = typeof xml === 'string' ? utf8(xml) : Uint8Array.from(xml);
  const id = toHex(await digest('SHA-256', document));
  const signed = cached.get(id) ?? (await verifyDocument(document));
  cached.set(id, signed);
  return { ...signed.manifest, signer: await signerPath(signed.chain, options) };
}

async function verifyDocument(document: Uint8Array): Promise<SignedManifest> {
  const root = parseXml(document);
  const { text, chain } = await verifySignature(root).catch((error: unknown) => {
    // Throws rim_malformed for a malformed document, in place of the signature's error. The result is not used.
    readManifest(root);
    throw error;
  });
  return { manifest: readManifest(parseXml(text)), chain };
}

/** id-kp-codeSigning (RFC 5280 §4.2.1.12). */
const CODE_SIGNING = '1.3.6.1.5.5.7.3.3';

async function signerPath(chain: readonly Certificate[], { roots, at }: RimOptions): Promise<Certificate[]> {
  // NVIDIA's RIM signers have no extended key usage; its OCSP responders, under the same authorities, have one.
  if (chain[0]?.extendedKeyUsage?.includes(CODE_SIGNING) === false)
    throw new CheckFailure('rim_chain_invalid', 'the RIM signer: its certificate is for another purpose');
  try {
    return await verifyChain(chain, roots, at);
  } catch (cause) {
    if (!(cause instanceof ChainError)) throw cause;
    const code = cause.reason === 'expired' ? 'rim_signer_expired' : 'rim_chain_invalid';
    throw new CheckFailure(code, `the RIM signer: ${cause.message}`, { cause });
  }
}
