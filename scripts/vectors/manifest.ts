// Makes vectors/manifest.json from the cases.
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import {
  type Expected,
  FEATURES,
  type Feature,
  FORMAT,
  hashOf,
  type Manifest,
  type ManifestCase,
  UNAVAILABLE,
} from '../conformance/manifest.ts';
import { inputOf, type Vector } from './vector.ts';

/** The manifest of the folder's cases, in the order of `vectors`. */
export function manifestOf(folder: string, vectors: readonly (readonly [name: string, Vector])[]): Manifest {
  const cases = vectors.map(([name, vector]): ManifestCase => {
    const file = `cases/${name}.json`;
    const { description, check } = vector;
    return {
      file,
      sha256: hashOf(folder, file),
      description,
      check,
      features: featuresOf(folder, vector),
      expected: expectedOf(vector),
    };
  });
  const parts = readdirSync(join(folder, 'parts')).map((name) => `parts/${name}`);
  return { format: FORMAT, cases, parts: Object.fromEntries(parts.sort().map((part) => [part, hashOf(folder, part)])) };
}

function expectedOf({ expect }: Vector): Expected {
  const { valid, level, code } = expect;
  if (valid) return { verdict: 'valid', level };
  if (code === undefined) throw new TypeError('a vector that fails without a code');
  return { verdict: UNAVAILABLE.has(code) ? 'incomplete' : 'invalid', code };
}

function featuresOf(folder: string, vector: Vector): Feature[] {
  const { options } = vector;
  const { without, expected } = options;
  const text = JSON.stringify(inputOf(folder, vector));
  // Within raw and within a text the quotes are escaped.
  const ownMember = (name: string) => text.includes(vector.text === undefined ? `"${name}":` : `\\"${name}\\":`);
  const has: Readonly<Record<Feature, boolean>> = {
    evidence: vector.evidence !== undefined,
    text: vector.text !== undefined,
    batch: ownMember('batch'),
    compact: ownMember('bundle'),
    stream: /\\"stream\\":\{/.test(text) || expected?.transcript !== undefined,
    exchange: expected !== undefined,
    nras: options.nras_keys !== undefined,
    rim: without?.reference_values !== true,
    ocsp: without?.revocation !== true,
    processor: options.cpu !== undefined,
    policy: ['max_age_seconds', 'max_batch', 'required_checks', 'max_characters'].some((name) => name in options),
  };
  return FEATURES.filter((feature) => has[feature]);
}
