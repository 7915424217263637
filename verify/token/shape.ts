// The shapes that tokens come in, told apart by form alone: nothing that a token says of itself decides how it is read.
//
//   JWT                                                         a bare JWT
//   [["JWT", JWT], {"GPU-0": JWT, …}]                           a detached EAT bundle (RFC 9711 §5.2, as NVIDIA writes it)
//   [["JWT", JWT], {"LOCAL_GPU_CLAIMS": detached EAT, …}]       NVIDIA's Python SDK: one bundle for each verifier
//   {"detached_eat": detached EAT, "claims": […], …}            NVIDIA's nvattest command line
import { isArray, isObject, type Json, type JsonObject, malformed, parseJson } from './json.ts';
import { type Jws, parseJws } from './jws.ts';

/** A JWT that names submodules by digest, and the submodules beside it. */
export interface Bundle {
  /** The Python SDK's name for the verifier that made it: `LOCAL_GPU_CLAIMS`. null where it stands alone. */
  readonly verifier: string | null;
  readonly overall: Jws;
  /** By name, `GPU-0`; empty for a bare JWT. */
  readonly submodules: ReadonlyMap<string, Jws>;
}

export interface Shape {
  readonly form: 'bare' | 'detached' | 'nested' | 'nvattest';
  /** The Python SDK's outer JWT, which says nothing but who made it and when. */
  readonly envelope: Jws | null;
  readonly bundles: readonly Bundle[];
  /** What nvattest prints beside its detached EAT. */
  readonly printed: JsonObject | null;
}

const MAX_BUNDLES = 8;
const MAX_SUBMODULES = 64;
const MAX_NAME_CHARACTERS = 64;

/** @throws {CheckFailure} token_malformed. */
export function readShape(token: string): Shape {
  const text = token.trim();
  if (!/^[[{"]/.test(text)) return bare(text);
  const value = parseJson(text);
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
