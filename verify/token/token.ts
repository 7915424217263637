// A token, read: what kind it is, what it says, and every nonce in it. Nothing of it is verified yet.
import { readDevice, requiredNonce, type TokenDevice, text } from './device.ts';
import { isArray, isObject, type Json, type JsonObject, malformed } from './json.ts';
import type { Jws } from './jws.ts';
import { type Bundle, readShape, type Shape } from './shape.ts';

export type TokenKind = 'nvtrust' | 'nvattest' | 'jwt' | 'nras' | 'countersign';

export interface ParsedToken {
  readonly kind: TokenKind;
  /** `iss` of the verifiers, several joined by a comma; '' when none says. A claim like any other until it is verified. */
  readonly issuer: string;
  /** null: at least one verifier gives no result and none says false. */
  readonly overallResult: boolean | null;
  /** `eat_nonce` of every part that must have one, and of any other that does: each must be the one expected. */
  readonly nonces: readonly string[];
  readonly devices: readonly TokenDevice[];
  /** The Python SDK's outer JWT, which carries no claims about a device. */
  readonly envelope: Jws | null;
  readonly bundles: readonly Bundle[];
}

export const COUNTERSIGN_ISSUER = /^countersign\b/i;
const OVERALL_RESULT = 'x-nvidia-overall-att-result';
/** What a JWT adds to the claims that nvattest prints. */
const JWT_CLAIMS = new Set(['iss', 'iat', 'nbf', 'exp', 'jti']);

/**
 * Reads a token of any known shape.
 * @throws {CheckFailure} token_malformed; also where a part that must carry `eat_nonce` has none.
 */
export function parseToken(token: string): ParsedToken {
  const shape = readShape(token);
  const { bundles, envelope, printed } = shape;
  const devices = bundles.flatMap(devicesOf);
  if (printed !== null) agrees(printed, devices);
  const issuers = bundles.map(({ overall }) => text(overall.claims, 'iss')).filter((issuer) => issuer !== null);
  const outer = envelope === null ? null : text(envelope.claims, 'eat_nonce');
  return {
    kind: kindOf(shape),
    issuer: [...new Set(issuers)].join(', '),
    overallResult: overallResult(bundles, printed),
    nonces: [...(outer === null ? [] : [outer]), ...bundles.flatMap(noncesOf)],
    devices,
    envelope,
    bundles,
  };
}

function kindOf({ form, bundles }: Shape): TokenKind {
  if (form === 'bare') return 'jwt';
  if (form === 'nested') return 'nvtrust';
  if (form === 'nvattest') return 'nvattest';
  const overall = bundles[0]?.overall;
  if (overall?.algorithm === 'none') return 'nvattest';
  if (overall?.algorithm === 'HS256') return 'nvtrust';
  return COUNTERSIGN_ISSUER.test(text(overall?.claims ?? {}, 'iss') ?? '') ? 'countersign' : 'nras';
}

/** A bare JWT may hold the claims of its one device itself. */
function devicesOf({ verifier, overall, submodules }: Bundle): TokenDevice[] {
  if (submodules.size > 0) return [...submodules].map(([name, jws]) => readDevice(name, verifier, jws.claims));
  const own = overall.claims.ueid ?? overall.claims.hwmodel ?? overall.claims.measres;
  return own === undefined ? [] : [readDevice('GPU-0', verifier, overall.claims)];
}

function noncesOf({ overall, submodules }: Bundle): string[] {
  const inside = [...submodules].map(([name, jws]) => requiredNonce(jws.claims, name));
  return [requiredNonce(overall.claims, 'the overall JWT'), ...inside];
}

function overallResult(bundles: readonly Bundle[], printed: JsonObject | null): boolean | null {
  const results = bundles.map(({ overall }) => overall.claims[OVERALL_RESULT] ?? null);
  const code = printed?.result_code ?? 0;
  if (code !== 0 || results.some((result) => result !== null && result !== true)) return false;
  return results.includes(null) ? null : true;
}

/** nvattest prints the claims a second time, outside of any JWT; a copy that says something else is no copy. */
function agrees({ claims }: JsonObject, devices: readonly TokenDevice[]): void {
  if (claims === undefined) return;
  if (!isArray(claims)) throw malformed('the printed claims are not a list');
  const printed = claims.map(sortedText).sort();
  const carried = devices.map((device) => sortedText(withoutJwtClaims(device.claims))).sort();
  if (printed.length !== carried.length || printed.some((claim, i) => claim !== carried[i]))
    throw malformed('the printed claims are not those of the detached EAT');
}

function withoutJwtClaims(claims: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(claims).filter(([name]) => !JWT_CLAIMS.has(name)));
}

function sortedText(value: Json): string {
  if (isArray(value)) return `[${value.map(sortedText).join(',')}]`;
  if (!isObject(value)) return JSON.stringify(value);
  const members = Object.keys(value).sort();
  return `{${members.map((name) => `${JSON.stringify(name)}:${sortedText(value[name] ?? null)}`).join(',')}}`;
}
