// Parses a JSON Web Token (RFC 7515 §7.1, RFC 7519). What it returns is not yet verified: see signature.ts.
import { isObject } from '../../proto/json.ts';
import { EncodingError, fromBase64Url, fromUtf8 } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';

// Parses the JSON of tokens (RFC 8259) with limits: a name occurs once in its object, and objects have no prototype.

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
  return new Parser(text).document();
}

const SPACE = /[ \t\n\r]*/y;
const SCALAR = /true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;

class Parser {
  readonly #text: string;
  #at = 0;
  #values = 0;

  constructor(text: string) {
    this.#text = text;
  }

  document(): Json {
    const value = this.#value(0);
    if (this.#next() !== '') throw malformed('text follows the JSON value');
    return value;
  }

  /** The character after white space, not yet consumed; '' at the end. */
  #next(): string {
    this.#match(SPACE);
    return this.#text[this.#at] ?? '';
  }

  #match(pattern: RegExp): string | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0] ?? null;
    this.#at += found?.length ?? 0;
    return found;
  }

  #value(depth: number): Json {
    if (depth > MAX_DEPTH) throw malformed(`deeper than ${MAX_DEPTH} levels`);
    if (++this.#values > MAX_VALUES) throw malformed(`more than ${MAX_VALUES} values`);
    const first = this.#next();
    if (first === '{') return this.#object(depth);
    if (first === '[') return this.#array(depth);
    if (first === '"') return this.#string();
    return JSON.parse(this.#match(SCALAR) ?? fail('not JSON')) as Json;
  }

  #object(depth: number): JsonObject {
    const members = Object.create(null) as Record<string, Json>;
    this.#at++;
    if (this.#closes('}')) return members;
    do {
      if (this.#next() !== '"') throw malformed('a member has no name');
      const name = this.#string();
      if (name in members) throw malformed('a name stands twice in an object');
      if (this.#next() !== ':') throw malformed('a member has no value');
      this.#at++;
      members[name] = this.#value(depth + 1);
    } while (this.#continues('}'));
    return members;
  }

  #array(depth: number): Json[] {
    const items: Json[] = [];
    this.#at++;
    if (this.#closes(']')) return items;
    do items.push(this.#value(depth + 1));
    while (this.#continues(']'));
    return items;
  }

  #closes(bracket: string): boolean {
    if (this.#next() !== bracket) return false;
    this.#at++;
    return true;
  }

  #continues(bracket: string): boolean {
    if (this.#closes(bracket)) return false;
    if (this.#text[this.#at] !== ',') throw malformed('a comma is missing');
    this.#at++;
    return true;
  }

  #string(): string {
    const start = this.#at;
    let end = start + 1;
    for (; this.#text[end] !== '"'; end++) {
      if (end >= this.#text.length) throw malformed('a string does not end');
      if (this.#text[end] === '\\') end++;
    }
    this.#at = end + 1;
    try {
      return JSON.parse(this.#text.slice(start, this.#at)) as string;
    } catch (cause) {
      throw malformed('a string is not JSON', { cause });
    }
  }
}

function fail(message: string): never {
  throw malformed(message);
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
