// Takes a JSON Web Token apart (RFC 7515 §7.1, RFC 7519). What it returns is not yet verified: see signature.ts.
import { EncodingError, fromBase64Url, fromUtf8 } from '../bytes.ts';
import { isObject, type JsonObject, malformed, parseJson } from './json.ts';

export interface Jws {
  /** The compact serialization, as it came. */
  readonly text: string;
  readonly algorithm: string;
  readonly kid: string | null;
  /** The payload's JSON text, as it was encoded. */
  readonly payload: string;
  readonly claims: JsonObject;
  /** What the signature is over. */
  readonly signingInput: string;
  readonly signature: Uint8Array;
}

/** @throws {CheckFailure} token_malformed. */
export function parseJws(text: string): Jws {
  const [header, payload, signature, ...more] = text.split('.', 4);
  if (header === undefined || payload === undefined || signature === undefined || more.length > 0)
    throw malformed('a part is not a compact JWT');
  const { alg, kid, crit } = objectOf(decoded(header), 'header');
  if (typeof alg !== 'string') throw malformed('a JWT names no algorithm');
  if (kid !== undefined && typeof kid !== 'string') throw malformed('a JWT has a key id that is not a string');
  // RFC 7515 §4.1.11: an extension that is not understood makes the whole invalid, and none is.
  if (crit !== undefined) throw malformed('a JWT has critical header parameters');
  const payloadText = decoded(payload);
  return {
    text,
    algorithm: alg,
    kid: kid ?? null,
    payload: payloadText,
    claims: objectOf(payloadText, 'payload'),
    signingInput: `${header}.${payload}`,
    signature: bytesOf(signature),
  };
}

function decoded(part: string): string {
  try {
    return fromUtf8(bytesOf(part));
  } catch (cause) {
    if (cause instanceof EncodingError) throw malformed('a part of a JWT is not UTF-8', { cause });
    throw cause;
  }
}

function bytesOf(part: string): Uint8Array {
  try {
    return fromBase64Url(part);
  } catch (cause) {
    if (cause instanceof EncodingError) throw malformed('a part of a JWT is not base64url', { cause });
    throw cause;
  }
}

function objectOf(text: string, label: string): JsonObject {
  const value = parseJson(text);
  if (!isObject(value)) throw malformed(`the ${label} of a JWT is not an object`);
  return value;
}
