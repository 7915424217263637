// The trusted root: which certificate authorities, logs and time authorities count, each with its key and its period (protobuf's JSON form).
import { isObject } from '../../proto/json.ts';
import { buffered, equal } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';
import { once } from '../common/lru.ts';
import { type Certificate, parseCertificate } from '../x509/certificate.ts';
import { DerError } from '../x509/der.ts';
import { ecdsaVerify } from '../x509/public-key.ts';
import { base64, FormError, type Json, list, parsed, text } from './form.ts';

interface Period {
  readonly start: Date;
  /** Null: it has not ended. */
  readonly end: Date | null;
}

/** A key that signs for a log. */
export interface LogKey {
  readonly id: Uint8Array;
  readonly spki: Uint8Array;
  readonly algorithm: 'P-256' | 'Ed25519';
  readonly period: Period;
}

export interface Authority {
  /** From the one that signs up to its root. Of certificates: the authority first; of time: the signer first. */
  readonly chain: readonly Certificate[];
  readonly period: Period;
}

export interface TrustedRoot {
  readonly logs: readonly LogKey[];
  readonly certificateLogs: readonly LogKey[];
  readonly authorities: readonly Authority[];
  readonly timeAuthorities: readonly Authority[];
}

const MAX_ROOT_CHARACTERS = 256 * 1024;
const MAX_ENTRIES = 64;
const MEDIA_TYPE = /^application\/vnd\.dev\.sigstore\.trustedroot(\+json;version=0\.[12]|\.v0\.2\+json)$/;
const ALGORITHMS: Readonly<Record<string, LogKey['algorithm']>> = {
  PKIX_ECDSA_P256_SHA_256: 'P-256',
  PKIX_ED25519: 'Ed25519',
};

/** @param given JSON text of the caller's own. @throws {TypeError} naming what is wrong. */
export function readTrustedRoot(given: string): TrustedRoot {
  try {
    if (given.length > MAX_ROOT_CHARACTERS) throw new FormError(`more than ${MAX_ROOT_CHARACTERS} characters`);
    const root = record(parsed(given), 'it');
    text(root.mediaType, 'mediaType', MEDIA_TYPE);
    const all = <T>(name: string, read: (value: Json, where: string) => T | null): T[] =>
      list(root[name] ?? [], name, MAX_ENTRIES)
        .map((value, i) => read(record(value, `${name}[${i}]`), `${name}[${i}]`))
        .filter((one) => one !== null);
    return {
      logs: all('tlogs', readLog),
      certificateLogs: all('ctlogs', readLog),
      authorities: all('certificateAuthorities', readAuthority),
      timeAuthorities: all('timestampAuthorities', readAuthority),
    };
  } catch (cause) {
    if (cause instanceof FormError) throw new TypeError(`trustedRoot cannot be used: ${cause.message}`, { cause });
    throw cause;
  }
}

/** Null: a log whose key is of a kind that is not supported, so that nothing of it is. */
function readLog(value: Json, where: string): LogKey | null {
  const key = record(value.publicKey, `${where}.publicKey`);
  const algorithm = ALGORITHMS[text(key.keyDetails, `${where}.keyDetails`)];
  if (algorithm === undefined) return null;
  return {
    id: base64(record(value.logId, `${where}.logId`).keyId, `${where}.keyId`),
    spki: base64(key.rawBytes, `${where}.rawBytes`),
    algorithm,
    period: readPeriod(key.validFor, where),
  };
}

/** Null: a certificate in it cannot be read, such as one of a kind of key that is not supported. */
function readAuthority(value: Json, where: string): Authority | null {
  const { certificates } = record(value.certChain, `${where}.certChain`);
  const ders = list(certificates, `${where}.certificates`, 8).map((one) =>
    base64(record(one, where).rawBytes, `${where}.rawBytes`),
  );
  const period = readPeriod(value.validFor, where);
  try {
    return ders.length === 0 ? null : { chain: ders.map(parseCertificate), period };
  } catch (cause) {
    if (cause instanceof DerError) return null;
    throw cause;
  }
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$/;

function readPeriod(value: unknown, where: string): Period {
  const { start, end } = record(value, `${where}.validFor`);
  const at = (one: unknown) => new Date(text(one, `${where}.validFor`, TIME));
  return { start: at(start), end: end === undefined || end === null ? null : at(end) };
}

function record(value: unknown, where: string): Json {
  if (!isObject(value)) throw new FormError(`${where} is not an object`);
  return { ...value };
}

/** Both ends included. */
export const within = (at: Date, { start, end }: Period): boolean => at >= start && (end === null || at <= end);

const ed25519 = once((key: LogKey) =>
  crypto.subtle.importKey('spki', buffered(key.spki), { name: 'Ed25519' }, false, ['verify']),
);

/** @throws {CheckFailure} release_unsupported: this system has no Ed25519. */
export async function verifiesUnder(key: LogKey, signature: Uint8Array, data: Uint8Array): Promise<boolean> {
  if (key.algorithm === 'P-256') return ecdsaVerify({ spki: key.spki, curve: 'P-256' }, 'SHA-256', signature, data);
  let imported: Awaited<ReturnType<typeof ed25519>>;
  try {
    imported = await ed25519(key);
  } catch (cause) {
    throw new CheckFailure('release_unsupported', "this system's WebCrypto has no Ed25519, with which the log signs", {
      cause,
    });
  }
  return crypto.subtle.verify({ name: 'Ed25519' }, imported, buffered(signature), buffered(data));
}

/** The log's key by its id; by nothing that a bundle says of an address. */
export const keyOf = (logs: readonly LogKey[], id: Uint8Array): LogKey | undefined =>
  logs.find((log) => equal(log.id, id));
