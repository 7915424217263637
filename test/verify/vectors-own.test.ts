// Our own vectors: every file of vectors/ has the verdict that it states, and fails, if it fails, by that one check.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { inputOf, type Vector, verifyOptions } from '../../scripts/vectors/vector.ts';
import {
  appraiseAttestation,
  appraiseEvidence,
  CHECKS,
  VerificationError,
  verifyAttestation,
  verifyEvidence,
} from '../../verify/index.ts';

const folder = fileURLToPath(new URL('../../vectors/', import.meta.url));
const files = readdirSync(join(folder, 'cases')).filter((name) => name.endsWith('.json'));
const vectors = files.map((file): [string, Vector] => [
  file.replace('.json', ''),
  JSON.parse(readFileSync(join(folder, 'cases', file), 'utf8')) as Vector,
]);

function appraise(vector: Vector) {
  const options = verifyOptions(folder, vector.options);
  const input = inputOf(folder, vector);
  return vector.evidence === undefined ? appraiseAttestation(input, options) : appraiseEvidence(input, options);
}

describe('vectors of our own', () => {
  test.each(vectors)('%s', async (_name, vector) => {
    const { checks, valid, level } = await appraise(vector);
    const failed = checks.filter(({ status }) => status === 'fail').map(({ name, code }) => [name, code]);
    const { expect: stated } = vector;
    expect(failed).toEqual(stated.valid ? [] : [[stated.failed_check, stated.code]]);
    expect([valid, level]).toEqual([stated.valid, stated.level]);
    for (const { name, status, detail } of checks) {
      if (status === 'skip') expect(detail, name).not.toBe('');
      if (status === 'skip' && stated.valid) expect(stated.skipped).toContain(name);
    }
    if (stated.valid && !stated.skipped?.includes(vector.check))
      expect(checks.filter(({ name }) => name === vector.check).map(({ status }) => status)).toContain('pass');
  });

  test.each(vectors)('%s throws or returns as it appraises', async (_name, vector) => {
    const options = verifyOptions(folder, vector.options);
    const input = inputOf(folder, vector);
    const verify = vector.evidence === undefined ? verifyAttestation : verifyEvidence;
    const result = await verify(input, options).catch((error: unknown) => error);
    if (vector.expect.valid) expect(result).toMatchObject({ valid: true });
    else expect(result).toBeInstanceOf(VerificationError);
    if (!vector.expect.valid) expect((result as VerificationError).code).toBe(vector.expect.code);
  });

  test('every check has a vector that passes and one that fails', () => {
    for (const check of [...CHECKS, 'bundle']) {
      const about = vectors.filter(([, vector]) => vector.check === check);
      expect(
        about.some(([, { expect: stated }]) => stated.valid),
        `${check} passes`,
      ).toBe(true);
      expect(
        about.some(([, { expect: stated }]) => stated.failed_check === check),
        `${check} fails`,
      ).toBe(true);
    }
  });

  test('each is named by its check and its verdict', () => {
    for (const [name, { check, expect: stated }] of vectors)
      expect(name.startsWith(`${check}.${stated.valid ? 'pass' : 'fail'}.`)).toBe(true);
  });
});
