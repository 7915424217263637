import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { FEATURES, readManifest } from '../../scripts/conformance/manifest.ts';
import { manifestOf } from '../../scripts/vectors/manifest.ts';
import type { Vector } from '../../scripts/vectors/vector.ts';
import { temporaryFolder } from '../support/harness.ts';

const VECTORS = fileURLToPath(new URL('../../vectors/', import.meta.url));

describe('the manifest', () => {
  const manifest = readManifest(VECTORS);

  it('is what the cases make it', () => {
    const vectors = manifest.cases.map(({ file }): [string, Vector] => [
      file.replace(/^cases\/|\.json$/g, ''),
      JSON.parse(readFileSync(join(VECTORS, file), 'utf8')),
    ]);
    expect(manifestOf(VECTORS, vectors)).toEqual(manifest);
  });

  it('says incomplete of exactly the cases in which something could not be had', () => {
    const incomplete = manifest.cases.filter(({ expected }) => expected.verdict === 'incomplete');
    expect(incomplete.map(({ expected }) => 'code' in expected && expected.code).sort()).toEqual([
      'bundle_unavailable',
      'bundle_unavailable',
      'revocation_unavailable',
      'revocation_unavailable',
      'rim_unavailable',
      'token_key_unavailable',
    ]);
  });

  it('uses every feature, and says for each case what it needs', () => {
    expect(new Set(manifest.cases.flatMap(({ features }) => features))).toEqual(new Set(FEATURES));
    const featuresOf = (name: string) => manifest.cases.find(({ file }) => file === `cases/${name}.json`)?.features;
    expect(featuresOf('raw_hash.pass.batch-of-7')).toEqual(['batch', 'rim', 'ocsp']);
    expect(featuresOf('bundle.pass.response-text')).toEqual(['text', 'batch', 'compact', 'rim', 'ocsp']);
    expect(featuresOf('raw_members.pass.stream')).toEqual(['stream', 'rim', 'ocsp']);
    expect(featuresOf('report_nonce.pass.bare-evidence')).toEqual(['evidence', 'rim']);
    expect(featuresOf('form.fail.batch-member-twice')).toEqual(['text', 'batch', 'rim', 'ocsp']);
  });

  it.each(['cases/form.pass.attestation.json', 'parts/rim-root.pem'])('is refused when %s is another file', (file) => {
    const folder = temporaryFolder();
    try {
      cpSync(VECTORS, folder.path, { recursive: true });
      expect(readManifest(folder.path)).toEqual(manifest);
      writeFileSync(join(folder.path, file), `${readFileSync(join(folder.path, file), 'utf8')} `);
      expect(() => readManifest(folder.path)).toThrow(`${file} is not the file that manifest.json names`);
    } finally {
      folder.remove();
    }
  });
});
