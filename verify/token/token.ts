// Parses a token: its kind, its claims and every nonce in it. Nothing of it is verified yet.
import { isObject } from '../../proto/json.ts';
import { isArray, type Json, type JsonObject, type Jws, malformed, parseJws, parseTokenJson } from './jws.ts';

export type TokenKind = 'nvtrust' | 'nvattest' | 'jwt' | 'nras' | 'countersign';

export interface ParsedToken {
  readonly kind: TokenKind;
  /** `iss` of the verifiers, joined by commas; '' where none has it. Unverified, like every other claim. */
  readonly issuer: string;
  /** null: at least one verifier gives no result and none gives false. */
  readonly overallResult: boolean | null;
  /** `eat_nonce` of every JWT that must have one, and of the envelope if it has one: each must be the expected nonce. */
  readonly nonces: readonly string[];
  readonly devices: readonly TokenDevice[];
  /** The Python SDK's outer JWT, which carries no claims about a device. */
  readonly envelope: Jws | null;
  readonly bundles: readonly Bundle[];
}

export const COUNTERSIGN_ISSUER = /^countersign\b/i;
const OVERALL_RESULT = 'x-nvidia-overall-att-result';
/** Claims that a JWT has beside those that nvattest prints. */
const JWT_CLAIMS = new Set(['iss', 'iat', 'nbf', 'exp', 'jti']);

/**
 * Reads a token of any known shape.
 * @throws {CheckFailure} token_malformed; also where a part that must carry `eat_nonce` has none.
 */
export function parseToken(token: string): ParsedToken {
  const shape = readShape(token);
  const { bundles, envelope, printed } = shape;
  const devices = bundles.flatMap(devicesOf);
  if (printed !== null) checkPrintedClaims(printed, devices);
  const issuers = bundles.map(({ overall }) => text(overall.claims, 'iss')).filter((issuer) => issuer !== null);
  const outer = envelope === null ? null : text(envelope.claims, 'eat_nonce');
  return {
    kind: tokenKind(shape),
    issuer: [...new Set(issuers)].join(', '),
    overallResult: overallResult(bundles, printed),
    nonces: [...(outer === null ? [] : [outer]), ...bundles.flatMap(noncesOf)],
    devices,
    envelope,
    bundles,
  };
}

function tokenKind({ form, bundles }: Shape): TokenKind {
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

/** nvattest prints the claims a second time, outside of any JWT; a copy that differs is refused. */
function checkPrintedClaims({ claims }: JsonObject, devices: readonly TokenDevice[]): void {
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

// The shapes of tokens, recognized by form alone: no claim decides how a token is parsed.
//
//   JWT                                                         a bare JWT
//   [["JWT", JWT], {"GPU-0": JWT, …}]                           a detached EAT bundle (RFC 9711 §5.2, as NVIDIA writes it)
//   [["JWT", JWT], {"LOCAL_GPU_CLAIMS": detached EAT, …}]       NVIDIA's Python SDK: one bundle for each verifier
//   {"detached_eat": detached EAT, "claims": […], …}            NVIDIA's nvattest command line

/** A JWT that names submodules by digest, and the submodules beside it. */
export interface Bundle {
  /** The Python SDK's name for the verifier that made it: `LOCAL_GPU_CLAIMS`. null for a bundle by itself. */
  readonly verifier: string | null;
  readonly overall: Jws;
  /** By name, `GPU-0`; empty for a bare JWT. */
  readonly submodules: ReadonlyMap<string, Jws>;
}

interface Shape {
  readonly form: 'bare' | 'detached' | 'nested' | 'nvattest';
  /** The Python SDK's outer JWT, which states only who made it and when. */
  readonly envelope: Jws | null;
  readonly bundles: readonly Bundle[];
  /** The object that nvattest prints around its detached EAT. */
  readonly printed: JsonObject | null;
}

const MAX_BUNDLES = 8;
const MAX_SUBMODULES = 64;
const MAX_NAME_CHARACTERS = 64;

/** @throws {CheckFailure} token_malformed. */
function readShape(token: string): Shape {
  const text = token.trim();
  if (!/^[[{"]/.test(text)) return bare(text);
  const value = parseTokenJson(text);
  if (typeof value === 'string') return bare(value);
  if (isObject(value)) {
    const bundle = detached(value.detached_eat, null);
    return { form: 'nvattest', envelope: null, bundles: [bundle], printed: value };
  }
  const { jwt, parts } = pair(value);
  const nested = parts.filter(([, part]) => isArray(part));
  if (nested.length === 0) return { form: 'detached', envelope: null, bundles: [detached(value, null)], printed: null };
  if (nested.length !== parts.length) throw malformed('verifiers and submodules stand side by side');
  if (nested.length > MAX_BUNDLES) throw malformed(`more than ${MAX_BUNDLES} verifiers`);
  const bundles = nested.map(([verifier, part]) => detached(part, verifier));
  return { form: 'nested', envelope: parseJws(jwt), bundles, printed: null };
}

function bare(jwt: string): Shape {
  const bundle = { verifier: null, overall: parseJws(jwt), submodules: new Map<string, Jws>() };
  return { form: 'bare', envelope: null, bundles: [bundle], printed: null };
}

function detached(value: Json | undefined, verifier: string | null): Bundle {
  const { jwt, parts } = pair(value);
  if (parts.length > MAX_SUBMODULES) throw malformed(`more than ${MAX_SUBMODULES} submodules`);
  const submodules = parts.map(([name, part]): [string, Jws] => {
    if (typeof part !== 'string') throw malformed('a submodule is not a JWT');
    return [name, parseJws(part)];
  });
  return { verifier, overall: parseJws(jwt), submodules: new Map(submodules) };
}

/** `[["JWT", jwt], {name: part, …}]` with at least one part. */
function pair(value: Json | undefined): { readonly jwt: string; readonly parts: readonly [string, Json][] } {
  if (!isArray(value) || value.length !== 2) throw malformed('not a detached EAT');
  const [overall, parts] = value;
  if (!isArray(overall) || overall.length !== 2 || overall[0] !== 'JWT' || typeof overall[1] !== 'string')
    throw malformed('a detached EAT does not begin with its JWT');
  if (!isObject(parts)) throw malformed('a detached EAT has no submodules');
  const named = Object.entries(parts);
  if (named.length === 0) throw malformed('a detached EAT has no submodules');
  if (named.some(([name]) => !/^[A-Za-z0-9_-]+$/.test(name) || name.length > MAX_NAME_CHARACTERS))
    throw malformed('a submodule has a name that is not one');
  return { jwt: overall[1], parts: named };
}

// A token's claims about one device (EAT claims, RFC 9711 §4, and NVIDIA's own), to be compared with the device's report.

export interface TokenDevice {
  /** The submodule's name: `GPU-0`, `SWITCH-0`. */
  readonly name: string;
  /** The Python SDK's name for the verifier, or null. */
  readonly verifier: string | null;
  readonly nonce: string;
  /** null: the token has no such claim. The same for all below. */
  readonly driver: string | null;
  /** Of the VBIOS, or of a switch's BIOS. */
  readonly vbios: string | null;
  /** The leaf certificate's serial number, in decimal. */
  readonly ueid: string | null;
  readonly hwmodel: string | null;
  /** `success` when every measurement matched, and every value of the opaque data too. */
  readonly measres: string | null;
  readonly secureBoot: boolean | null;
  /** `dbgstat`: `disabled` on a device that may be trusted. */
  readonly debug: string | null;
  /** Claims 4.0: values of the opaque data that reference values name, such as security version numbers, by that name. */
  readonly attesterClaims: ReadonlyMap<string, number> | null;
  readonly claims: JsonObject;
}

const MAX_CLAIM_CHARACTERS = 1024;

/** @throws {CheckFailure} token_malformed where a claim has another type than it must. */
function readDevice(name: string, verifier: string | null, claims: JsonObject): TokenDevice {
  return {
    name,
    verifier,
    nonce: requiredNonce(claims, name),
    driver: text(claims, 'x-nvidia-gpu-driver-version'),
    vbios: text(claims, 'x-nvidia-gpu-vbios-version') ?? text(claims, 'x-nvidia-switch-bios-version'),
    ueid: text(claims, 'ueid'),
    hwmodel: text(claims, 'hwmodel'),
    measres: opaqueDataDiffers(claims) ? 'fail' : text(claims, 'measres'),
    secureBoot: flag(claims, 'secboot'),
    debug: text(claims, 'dbgstat'),
    attesterClaims: attesterClaims(claims),
    claims,
  };
}

/** Claims 4.0: the records of the opaque data that are below their reference values; null or an empty list where there is none. */
function opaqueDataDiffers(claims: JsonObject): boolean {
  const records = claims['x-nvidia-mismatch-opaque-data-records'] ?? [];
  if (!isArray(records)) throw malformed('x-nvidia-mismatch-opaque-data-records is not a list');
  return records.length > 0;
}

function attesterClaims(claims: JsonObject): ReadonlyMap<string, number> | null {
  const values = claims['x-nvidia-attester-claims'] ?? null;
  if (values === null) return null;
  if (!isObject(values)) throw malformed('x-nvidia-attester-claims is not an object');
  return new Map(
    Object.entries(values).map(([name, value]) => {
      if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0)
        throw malformed('x-nvidia-attester-claims has a value that is no number of 0 or more');
      return [name, value];
    }),
  );
}

/** A JWT that lacks its required `eat_nonce` is malformed. */
function requiredNonce(claims: JsonObject, label: string): string {
  const nonce = text(claims, 'eat_nonce');
  if (nonce === null || nonce === '') throw malformed(`${label} carries no eat_nonce`);
  return nonce;
}

export function text(claims: JsonObject, claim: string): string | null {
  const value = claims[claim] ?? null;
  if (value !== null && (typeof value !== 'string' || value.length > MAX_CLAIM_CHARACTERS))
    throw malformed(`${claim} is not a short string`);
  return value;
}

function flag(claims: JsonObject, claim: string): boolean | null {
  const value = claims[claim] ?? null;
  if (value !== null && typeof value !== 'boolean') throw malformed(`${claim} is not a boolean`);
  return value;
}
