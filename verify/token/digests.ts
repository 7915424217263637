// Rechecks the digests by which a detached EAT names its submodules (RFC 9711 §4.2.18, as NVIDIA's verifiers make them).

import { isObject, topLevelMembers, withoutMember } from '../../proto/json.ts';
import { digest, toHex, utf8 } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';
import { once } from '../common/lru.ts';
import { isArray, type Json, type Jws } from './jws.ts';
import type { Bundle, ParsedToken } from './token.ts';

/** The first is nvattest's and the Python SDK's, the second NRAS's. */
const SHA256_NAMES: readonly Json[] = ['SHA256', 'SHA-256'];
/** Claims that the Python SDK adds to a submodule after it has computed the digest. */
const ADDED_LATER = new Set(['nbf', 'exp', 'iat', 'jti']);

interface RecheckedDigests {
  readonly rechecked: number;
  readonly detail: string;
}

/** @throws {CheckFailure} token_digest_mismatch: a digest differs, or a submodule is in one list and not in the other. */
export const checkTokenDigests = once(recheckAll);

async function recheckAll(parsed: ParsedToken): Promise<RecheckedDigests> {
  if (parsed.kind === 'jwt') {
    const named = submodules(parsed.bundles[0])?.size ?? 0;
    const detail =
      named === 0 ? 'a bare JWT has no submodules' : `a bare JWT, without the ${named} submodules it names`;
    return { rechecked: 0, detail };
  }
  let rechecked = 0;
  for (const bundle of parsed.bundles) rechecked += await recheck(bundle);
  const count = rechecked === 1 ? '1 submodule has' : `${rechecked} submodules have`;
  return { rechecked, detail: `${count} the digest that the overall JWT names` };
}

async function recheck(bundle: Bundle): Promise<number> {
  const named = submodules(bundle);
  if (named === null) throw mismatch('the overall JWT names no submodules');
  for (const name of named.keys()) if (!bundle.submodules.has(name)) throw mismatch('a submodule is named and missing');
  for (const [name, jws] of bundle.submodules) {
    const expected = named.get(name);
    if (expected === undefined) throw mismatch(`${name} is not named by the overall JWT`);
    if ((await submoduleDigest(jws)) !== expected) throw mismatch(`the digest of ${name} is another`);
  }
  return bundle.submodules.size;
}

/** The digests by name, in lowercase hexadecimal. null: there is no such claim. */
function submodules(bundle: Bundle | undefined): Map<string, string> | null {
  const claim = bundle?.overall.claims.submods;
  if (claim === undefined) return null;
  if (!isObject(claim)) throw mismatch('submods is not an object');
  return new Map(Object.entries(claim).map(([name, value]) => [name, digestOf(value)]));
}

/** `["DIGEST", ["SHA256", hex]]` */
function digestOf(value: Json): string {
  const [label, pair] = isArray(value) && value.length === 2 ? value : [];
  const [algorithm, hex] = isArray(pair) && pair.length === 2 ? pair : [];
  if (label !== 'DIGEST' || !SHA256_NAMES.includes(algorithm ?? null))
    throw mismatch('a submodule has no SHA-256 digest');
  if (typeof hex !== 'string' || !/^[0-9a-fA-F]{64}$/.test(hex)) throw mismatch('a digest is not hexadecimal');
  return hex.toLowerCase();
}

/**
 * Lowercase hexadecimal SHA-256 of a submodule: of the whole JWT from NRAS or nvattest; of the claims, as
 * {@link nvtrustDigestText} writes them, from the Python SDK, which alone signs with HS256.
 */
async function submoduleDigest(jws: Jws): Promise<string> {
  const text = jws.algorithm === 'HS256' ? nvtrustDigestText(jws.payload) : jws.text;
  return toHex(await digest('SHA-256', utf8(text)));
}

/**
 * The text that NVIDIA's Python verifier hashes: the claims without times and id, which it adds later, as Python's `json.dumps`
 * writes them, with spaces and in ASCII. It is made from the payload's text without decoding it, so that every value keeps
 * its form.
 */
export function nvtrustDigestText(payload: string): string {
  let text = payload;
  for (const name of ADDED_LATER) {
    const members = topLevelMembers(text);
    const index = members.findIndex(({ key }) => key === name);
    if (index >= 0) text = withoutMember(text, members, index);
  }
  return spaced(text);
}

function spaced(text: string): string {
  let out = '';
  let inString = false;
  for (let i = 0; i < text.length; i++) {
    const character = text[i] as string;
    if (inString && character === '\\') out += character + (text[++i] ?? '');
    else if (character === '"') {
      inString = !inString;
      out += character;
    } else if (inString) out += character > '~' ? escaped(character) : character;
    else if (character === ',' || character === ':') out += `${character} `;
    else if (!/\s/.test(character)) out += character;
  }
  return out;
}

const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;

function mismatch(message: string): CheckFailure {
  return new CheckFailure('token_digest_mismatch', message);
}
