// The vectors of our own, vectors/, as they reach the page.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { inputOf, type Vector, type VectorOptions } from '../../scripts/vectors/vector.ts';
import type { Spec } from './appraise.ts';
import type { Expectation } from './specs.ts';

const folder = fileURLToPath(new URL('../../vectors/', import.meta.url));
const text = (file: string) => readFileSync(join(folder, file), 'utf8');
const optional = (file: string | undefined) => (file === undefined ? undefined : text(file));

export function ownSpecs(): Expectation[] {
  return readdirSync(join(folder, 'cases'))
    .filter((file) => file.endsWith('.json'))
    .map((file) => {
      const vector = JSON.parse(text(join('cases', file))) as Vector;
      const spec: Spec = {
        name: file.replace('.json', ''),
        kind: vector.evidence === undefined ? 'attestation' : 'evidence',
        input: inputOf(folder, vector),
        ...given(vector.options),
      };
      return { spec, expected: vector.expect.valid ? 'pass' : (vector.expect.code ?? 'policy_refused') };
    });
}

function given(options: VectorOptions): Pick<Spec, 'at' | 'rims' | 'ocsp' | 'expected' | 'options'> {
  const { without, expected: { transcript, ...expected } = {} } = options;
  const bytes = transcript === undefined ? {} : { transcript: Buffer.from(transcript).toString('base64') };
  return {
    at: options.at,
    rims: Object.entries(options.rim_files ?? {}).map(([id, file]) => [id, text(file)]),
    ocsp: (options.ocsp_files ?? []).map((file) => text(file).replace(/\s/g, '')),
    expected: { ...expected, ...bytes },
    options: {
      simulatedRoot: optional(options.simulated_root_file),
      roots: { rim: optional(options.rim_root_file) },
      nrasKeys: options.nras_keys,
      without: { referenceValues: without?.reference_values ?? false, revocation: without?.revocation ?? false },
      policy: {
        maxAgeSeconds: options.max_age_seconds,
        maxBatch: options.max_batch,
        requiredChecks: options.required_checks,
      },
      cpu: options.cpu,
      limits: { maxCharacters: options.max_characters },
    },
  };
}
