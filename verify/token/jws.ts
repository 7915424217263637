// Parses a JSON Web Token (RFC 7515 §7.1, RFC 7519). What it returns is not yet verified: see signature.ts.
import { isObject, JsonTextError, parseStrict } from '../../proto/json.ts';
import { EncodingError, fromBase64Url, fromUtf8 } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';

// Parses the JSON of tokens with limits.

export type Json = null | boolean | number | string | readonly Json[] | JsonObject;
export interface JsonObject {
  readonly [name: string]: Json;
}

/** NVIDIA's tokens take a few KiB for each device and nest six levels deep. */
const MAX_TOKEN_CHARACTERS = 1024 * 1024;
const MAX_DEPTH = 16;
const MAX_VALUES = 65_536;

/** The token is malformed. `message` quotes nothing of it. */
export function malformed(message: string, options?: ErrorOptions): CheckFailure {
  return new CheckFailure('token_malformed', message, options);
}

export function isArray(value: Json | undefined): value is readonly Json[] {
  return Array.isArray(value);
}

/** @throws {CheckFailure} token_malformed. */
export function parseTokenJson(text: string): Json {
  if (text.length > MAX_TOKEN_CHARACTERS) throw malformed(`longer than ${MAX_TOKEN_CHARACTERS} characters`);
  let value: Json;
  try {
    value = parseStrict(text) as Json;
  } catch (cause) {
    throw malformed(cause instanceof JsonTextError ? 'a name stands twice in an object' : 'not JSON', { cause });
  }
  let level: readonly Json[] = [value];
  let values = 0;
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > MAX_DEPTH) throw malformed(`deeper than ${MAX_DEPTH} levels`);
    values += level.length;
    if (values > MAX_VALUES) throw malformed(`more than ${MAX_VALUES} values`);
    level = level.flatMap((one) => (isArray(one) ? one : isObject(one) ? Object.values(one) : []));
  }
  return value;
}

export interface Jws {
  /** The compact serialization, as received. */
  readonly text: string;
  readonly algorithm: string;
  readonly kid: string | null;
  /** The payload's JSON text, as it was encoded. */
  readonly payload: string;
  readonly claims: JsonObject;
  /** The text that is signed: header and payload, still encoded. */
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
  // RFC 7515 §4.1.11: a critical extension that is not understood makes the JWS invalid, and none is understood here.
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
  const value = parseTokenJson(text);
  if (!isObject(value)) throw malformed(`the ${label} of a JWT is not an object`);
  return value;
}
