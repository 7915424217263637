// Writes OCSP requests (RFC 6960 §4.1.1) with a nonce (RFC 8954).
import { type Bytes, concat, digest } from '../bytes.ts';
import type { Certificate } from '../x509/certificate.ts';
import { TAG } from '../x509/der.ts';

/** The longest nonce that RFC 8954 §2.1 lets a responder refuse to be longer than. */
export const OCSP_NONCE_BYTES = 32;

const SHA384 = Uint8Array.of(0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02);
const NONCE = Uint8Array.of(0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x02);

/** The request, DER, for one certificate. Its certID is made with SHA-384, as NVIDIA's verifiers make it. */
export async function makeOcspRequest(
  certificate: Certificate,
  issuer: Certificate,
  nonce: Uint8Array,
): Promise<Bytes> {
  const id = await makeCertId(certificate, issuer);
  const requests = value(TAG.sequence, value(TAG.sequence, id));
  const extension = value(TAG.sequence, value(TAG.oid, NONCE), value(TAG.octetString, value(TAG.octetString, nonce)));
  const extensions = value(0xa2, value(TAG.sequence, extension));
  return value(TAG.sequence, value(TAG.sequence, requests, extensions));
}

/** DER of the CertID: also the name under which an answer is kept. */
export async function makeCertId(certificate: Certificate, issuer: Certificate): Promise<Bytes> {
  const { name, key } = await issuerHashes(issuer, 'SHA-384');
  return value(
    TAG.sequence,
    value(TAG.sequence, value(TAG.oid, SHA384), value(TAG.null)),
    value(TAG.octetString, name),
    value(TAG.octetString, key),
    value(TAG.integer, serialBytes(certificate.serial)),
  );
}

/** With which hash functions a CertID may name an issuer: those that WebCrypto has. */
export type CertIdHash = 'SHA-1' | 'SHA-256' | 'SHA-384' | 'SHA-512';

interface IssuerHashes {
  readonly name: Bytes;
  readonly key: Bytes;
}

const known = new WeakMap<Certificate, Map<string, IssuerHashes>>();

/** §4.1.1: of the issuer's name, and of its public key's bits. */
export async function issuerHashes(issuer: Certificate, hash: CertIdHash): Promise<IssuerHashes> {
  const hashes = known.get(issuer) ?? new Map<string, IssuerHashes>();
  known.set(issuer, hashes);
  const before = hashes.get(hash);
  if (before !== undefined) return before;
  const [name, key] = await Promise.all([digest(hash, issuer.subject), digest(hash, issuer.publicKeyBits)]);
  hashes.set(hash, { name, key });
  return { name, key };
}

function serialBytes(serial: bigint): Uint8Array {
  const bytes: number[] = [];
  for (let rest = serial; rest > 0n || bytes.length === 0; rest >>= 8n) bytes.unshift(Number(rest & 0xffn));
  if ((bytes[0] ?? 0) >= 0x80) bytes.unshift(0);
  return Uint8Array.from(bytes);
}

/** One DER value of at most 65,535 bytes. */
function value(tag: number, ...contents: readonly Uint8Array[]): Bytes {
  const { length } = concat(...contents);
  const head =
    length < 0x80 ? [tag, length] : length < 0x100 ? [tag, 0x81, length] : [tag, 0x82, length >> 8, length & 0xff];
  return concat(Uint8Array.from(head), ...contents);
}
