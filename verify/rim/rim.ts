// A verified reference integrity manifest: parsed, its XML signature and its signer's chain checked, then read.
import { digest, toHex, utf8 } from '../bytes.ts';
import { CheckFailure } from '../checks.ts';
import { LruMap } from '../lru.ts';
import type { Certificate } from '../x509/certificate.ts';
import { ChainError, verifyChain } from '../x509/chain.ts';
import { type Manifest, readManifest } from './manifest.ts';
import { verifySignature } from './signature.ts';
import { parseXml } from './xml.ts';

export interface Rim extends Manifest {
  /** The verified path of who signed it: leaf first, the pinned root last. */
  readonly signer: readonly Certificate[];
}

export interface RimOptions {
  /** The roots that RIM signers are trusted under. Nothing in the document adds one. */
  readonly roots: readonly Certificate[];
  /** The instant at which the signer's certificates must be valid. */
  readonly at: Date;
}

/** What does not depend on roots or time: the document's signature verified under the leaf of its own chain. */
interface SignedManifest {
  readonly manifest: Manifest;
  readonly chain: readonly Certificate[];
}

/** Refused before it is even hashed; the parser has the limit too. */
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
    // A document of a wrong form is refused for that; what this reads is not signed, and is dropped.
    readManifest(root);
    throw error;
  });
  return { manifest: readManifest(parseXml(text)), chain };
}

/** id-kp-codeSigning (RFC 5280 §4.2.1.12). */
const CODE_SIGNING = '1.3.6.1.5.5.7.3.3';

async function signerPath(chain: readonly Certificate[], { roots, at }: RimOptions): Promise<Certificate[]> {
  // NVIDIA's RIM signers are limited to no purpose; its OCSP responders, under the same authorities, are to theirs.
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
