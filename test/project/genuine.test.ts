// `npm run make genuine`: the list of the genuine evidence, and what is taken from a folder.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { addressOf, bringAll, derive, sha256 } from '../../scripts/genuine.ts';
import { temporaryFolder } from '../support/harness.ts';
import { type GenuineVector, genuineVectors, vectorPath, vectorsPresent } from '../support/vectors.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
const text = (words: string) => new TextEncoder().encode(words);
const made = (bytes: Uint8Array) => Buffer.from(bytes).toString();

describe('genuine.json', () => {
  const vectors = genuineVectors();

  it('names for each file its hash, licence and source, and how it is made of that', () => {
    expect(new Set(vectors.map(({ path }) => path)).size).toBe(vectors.length);
    for (const { path, sha256: hash, licence, source, by_hand } of vectors) {
      expect([path, hash, licence]).toEqual([
        expect.stringMatching(/^(nvidia|cpu|sigstore)\/[\w./-]+$/),
        expect.stringMatching(/^[0-9a-f]{64}$/),
        expect.stringMatching(/^(Apache-2\.0|MIT)$/),
      ]);
      for (const one of source) expect(one).toMatch(/^[\w.-]+\/[\w.-]+@[0-9a-f]{7,40}(:\S+)?$/);
      // What a program brings has one address.
      if (by_hand === undefined) expect([path, source.map(addressOf).length]).toEqual([path, 1]);
    }
  });

  it.skipIf(!vectorsPresent)('has the hashes of the files that the tests read', () => {
    for (const { path, sha256: hash } of vectors)
      expect([path, sha256(readFileSync(vectorPath(path)))]).toEqual([path, hash]);
  });
});

describe('npm run make genuine', () => {
  const listed = (path: string, words: string): GenuineVector => ({
    path,
    sha256: sha256(text(words)),
    licence: 'MIT',
    source: [],
    by_hand: 'for this test',
  });

  it('takes from a folder what has the right hash, and says what has not', async () => {
    const [from, into] = [join(folder.path, 'from'), join(folder.path, 'into')];
    mkdirSync(from);
    writeFileSync(join(from, 'changed.bin'), 'other');
    writeFileSync(join(from, 'good.bin'), 'good');
    const vectors = [listed('changed.bin', 'first'), listed('gone.bin', 'gone'), listed('good.bin', 'good')];
    const { byHand, failures } = await bringAll(vectors, from, into);
    expect(byHand).toEqual([]);
    expect(failures).toEqual([
      'changed.bin: its SHA-256 is not the one of genuine.json',
      expect.stringContaining('gone.bin: ENOENT'),
    ]);
    expect(readFileSync(join(into, 'good.bin'), 'utf8')).toBe('good');
    // What is there already is not asked for again.
    expect(await bringAll(vectors.slice(2), '/nowhere', into)).toEqual({ byHand: [], failures: [] });
    expect(await bringAll(vectors, null, into)).toEqual({ byHand: ['changed.bin', 'gone.bin'], failures: [] });
  });

  it('makes a file of its source', () => {
    expect(made(derive(text('6869\n'), ['hex']))).toBe('hi');
    expect(made(derive(text('aGk='), ['base64']))).toBe('hi');
    expect(made(derive(text('{"a":"aGk"}'), ['member a', 'base64url']))).toBe('hi');
    expect(made(derive(text('hi there'), ['first 2']))).toBe('hi');
    expect(made(derive(text('[{"b":1,"a":2,"c":3}]'), ['entries a b']))).toBe(
      '[\n  {\n    "a": 2,\n    "b": 1\n  }\n]\n',
    );
    expect(() => derive(text(''), ['guess'])).toThrow('no step guess');
  });

  it('asks GitHub for the commit that is named', () => {
    expect(addressOf('a/b@0123abc:x/y.pem')).toBe('https://raw.githubusercontent.com/a/b/0123abc/x/y.pem');
    expect(() => addressOf('a/b@0123abc')).toThrow('not repository@commit:path');
  });
});
