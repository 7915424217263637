// Reads a Sigstore bundle in the one form that is accepted: v0.3 with one certificate, one signature and one log entry.
import { CheckFailure } from '../common/checks.ts';
import { base64, list, members, parsed, preAuthentication, refuseLarge, text, whole, withCode } from './form.ts';

/** An entry of a transparency log, with the proof that it is in there. */
export interface LogEntry {
  readonly logId: Uint8Array;
  /** `dsse/0.0.1` or `hashedrekord/0.0.2`. */
  readonly kind: string;
  readonly logIndex: bigint;
  /** Unix seconds; null where the log gave no time of its own. */
  readonly integratedTime: bigint | null;
  /** The signed entry timestamp; null where there is none. */
  readonly promise: Uint8Array | null;
  readonly proof: {
    readonly index: bigint;
    readonly treeSize: bigint;
    readonly rootHash: Uint8Array;
    readonly hashes: readonly Uint8Array[];
    readonly checkpoint: string;
  };
  /** The canonicalized body. */
  readonly body: Uint8Array;
}

/** What a bundle shows about some signed bytes. */
export interface SignedMaterial {
  /** DER. */
  readonly certificate: Uint8Array;
  readonly entry: LogEntry;
  /** DER of RFC 3161 responses. */
  readonly timestamps: readonly Uint8Array[];
  readonly signature: Uint8Array;
  /** The bytes that were signed. */
  readonly signed: Uint8Array;
}

export interface ReleaseBundle extends SignedMaterial {
  /** The DSSE envelope's payload: the statement. */
  readonly payload: Uint8Array;
}

/** A statement has at most 256 KiB; the bundle is that in base64, certificate and proofs. */
const MAX_BUNDLE_CHARACTERS = 512 * 1024;
const MAX_PROOF_HASHES = 64;
const MAX_TIMESTAMPS = 4;
const MEDIA_TYPES = [
  'application/vnd.dev.sigstore.bundle.v0.3+json',
  'application/vnd.dev.sigstore.bundle+json;version=0.3',
];
const PAYLOAD_TYPE = 'application/vnd.in-toto+json';
export const DSSE_ENTRY = 'dsse/0.0.1';
const HASHED_ENTRY = 'hashedrekord/0.0.2';

/** @throws {CheckFailure} release_too_large, release_malformed, release_unsupported */
export function readBundle(given: string): ReleaseBundle {
  refuseLarge(given, MAX_BUNDLE_CHARACTERS, 'the bundle');
  return withCode('release_malformed', 'the bundle', () => {
    const value = parsed(given);
    const { mediaType } = { ...(value as { mediaType?: unknown }) };
    if (typeof mediaType === 'string' && !MEDIA_TYPES.includes(mediaType))
      throw unsupported('the bundle is not of version 0.3');
    const bundle = members(value, 'it', ['mediaType', 'verificationMaterial'], ['dsseEnvelope', 'messageSignature']);
    text(bundle.mediaType, 'mediaType');
    const material = readMaterial(bundle.verificationMaterial);
    if (bundle.dsseEnvelope === undefined) throw unsupported('the bundle signs a message and no statement');
    const { payload, payloadType, signatures } = members(bundle.dsseEnvelope, 'dsseEnvelope', [
      'payload',
      'payloadType',
      'signatures',
    ]);
    if (bundle.messageSignature !== undefined) throw unsupported('the bundle signs a message too');
    if (text(payloadType, 'payloadType') !== PAYLOAD_TYPE)
      throw unsupported('the bundle does not hold an in-toto statement');
    const signature = only(signatures, 'signature');
    const { sig, keyid = '' } = members(signature, 'signatures[0]', ['sig'], ['keyid']);
    text(keyid, 'keyid', /^$/);
    const statement = base64(payload, 'payload');
    return {
      ...material,
      signature: base64(sig, 'sig'),
      signed: preAuthentication(PAYLOAD_TYPE, statement),
      payload: statement,
    };
  });
}

/** The member verificationMaterial. @throws {FormError} @throws {CheckFailure} */
export function readMaterial(value: unknown): Omit<SignedMaterial, 'signature' | 'signed'> {
  const other = ['publicKey', 'x509CertificateChain'].find((name) => Object.hasOwn(Object(value), name));
  if (other !== undefined) throw unsupported(`the bundle has a ${other} in place of one certificate`);
  const material = members(
    value,
    'verificationMaterial',
    ['certificate', 'tlogEntries'],
    ['timestampVerificationData'],
  );
  const { rawBytes } = members(material.certificate, 'certificate', ['rawBytes']);
  const { rfc3161Timestamps = [] } = members(
    material.timestampVerificationData ?? {},
    'timestampVerificationData',
    [],
    ['rfc3161Timestamps'],
  );
  return {
    certificate: base64(rawBytes, 'rawBytes'),
    entry: readEntry(only(material.tlogEntries, 'log entry')),
    timestamps: list(rfc3161Timestamps, 'rfc3161Timestamps', MAX_TIMESTAMPS).map((one) =>
      base64(members(one, 'rfc3161Timestamps', ['signedTimestamp']).signedTimestamp, 'signedTimestamp'),
    ),
  };
}

function readEntry(value: unknown): LogEntry {
  const entry = members(
    value,
    'tlogEntries[0]',
    ['logIndex', 'logId', 'kindVersion', 'inclusionProof', 'canonicalizedBody'],
    ['integratedTime', 'inclusionPromise'],
  );
  const { kind, version } = members(entry.kindVersion, 'kindVersion', ['kind', 'version']);
  const name = `${text(kind, 'kind')}/${text(version, 'version')}`;
  if (name !== DSSE_ENTRY && name !== HASHED_ENTRY)
    throw unsupported(`the log entry is neither ${DSSE_ENTRY} nor ${HASHED_ENTRY}`);
  const proof = members(
    entry.inclusionProof,
    'inclusionProof',
    ['rootHash', 'treeSize', 'checkpoint'],
    // Protobuf's JSON leaves out zero and an empty list.
    ['logIndex', 'hashes'],
  );
  const promise = entry.inclusionPromise;
  return {
    logId: base64(members(entry.logId, 'logId', ['keyId']).keyId, 'keyId'),
    kind: name,
    logIndex: whole(entry.logIndex, 'logIndex'),
    integratedTime: entry.integratedTime === undefined ? null : whole(entry.integratedTime, 'integratedTime'),
    promise:
      promise === undefined
        ? null
        : base64(
            members(promise, 'inclusionPromise', ['signedEntryTimestamp']).signedEntryTimestamp,
            'signedEntryTimestamp',
          ),
    proof: {
      index: whole(proof.logIndex ?? '0', 'inclusionProof.logIndex'),
      treeSize: whole(proof.treeSize, 'treeSize'),
      rootHash: base64(proof.rootHash, 'rootHash'),
      hashes: list(proof.hashes ?? [], 'hashes', MAX_PROOF_HASHES).map((hash) => base64(hash, 'hashes')),
      checkpoint: text(members(proof.checkpoint, 'checkpoint', ['envelope']).envelope, 'checkpoint'),
    },
    body: base64(entry.canonicalizedBody, 'canonicalizedBody'),
  };
}

function only(value: unknown, what: string): unknown {
  if (!Array.isArray(value) || value.length !== 1) throw unsupported(`the bundle has not one ${what}`);
  return value[0];
}

const unsupported = (message: string) => new CheckFailure('release_unsupported', message);
