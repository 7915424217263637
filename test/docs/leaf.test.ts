// The shell of docs/attestation.md §8, run as a reader would, on our vectors.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import type { Vector } from '../../scripts/vectors/vector.ts';

const CASES = fileURLToPath(new URL('../../vectors/cases/', import.meta.url));
const page = readFileSync(new URL('../../docs/attestation.md', import.meta.url), 'utf8');
const [, script = ''] = /```bash\n(.*?)```/s.exec(page) ?? [];

const folder = mkdtempSync(join(tmpdir(), 'leaf-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
writeFileSync(join(folder, 'leaf.sh'), script);

const missing = ['bash', 'jq', 'sha256sum'].find((tool) => spawnSync(tool, ['--version']).status !== 0);
if (missing !== undefined)
  console.warn(`\n!!! The shell of docs/attestation.md is SKIPPED: there is no ${missing} !!!\n`);

const vectors = readdirSync(CASES)
  .filter((name) => name.startsWith('raw_hash.') && name.includes('batch'))
  .map((name): [string, Vector] => [name, JSON.parse(readFileSync(join(CASES, name), 'utf8'))]);

function run(attestation: unknown) {
  const file = join(folder, 'leaf.json');
  writeFileSync(file, JSON.stringify(attestation));
  const { status, stdout, stderr } = spawnSync('bash', [join(folder, 'leaf.sh'), file], { encoding: 'utf8' });
  return { status, stdout, stderr };
}

describe.skipIf(missing !== undefined)('a leaf checked by hand', () => {
  it('takes some twenty lines', () => {
    const lines = script.split('\n').filter((line) => line !== '' && !/^\s*#/.test(line));
    expect(lines.length).toBeGreaterThan(10);
    expect(lines.length).toBeLessThanOrEqual(20);
  });

  const right = vectors.filter(([name]) => /pass\.batch-of/.test(name));
  it.each(right)('leads to what the device signed: %s', (_name, { attestation }) => {
    const { nonce } = attestation as { nonce: string };
    const stdout = `from raw: ${nonce} in the attestation: ${nonce} in the GPU's report: ${nonce}\n`;
    expect(run(attestation)).toEqual({ status: 0, stdout, stderr: '' });
  });

  const forged = vectors.filter(([name, { expect: stated }]) => {
    return stated.code === 'batch_proof_invalid' || /path-too-|path-of-13/.test(name);
  });
  it.each(forged)('leads elsewhere: %s', (_name, { attestation }) => {
    expect(run(attestation)).toMatchObject({ status: 1, stderr: '' });
  });

  it('was tried on sizes from 1 to 4096 and on every forgery of a proof', () => {
    expect([right.length, forged.length]).toEqual([7, 15]);
  });
});
