// The kept root: the same after every start, never half-made, and refused in words when it was damaged.
import { X509Certificate } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { KEY_FILE, loadOrMakeRoot, ROOT_FILE } from '../../../demo/twin/pki.ts';
import { RIM_ROOT } from '../../twin/rim-signer.ts';

let parent: string;
let dir: string;
beforeEach(() => {
  parent = mkdtempSync(join(tmpdir(), 'simulated-root-'));
  dir = join(parent, 'run', 'root');
});
afterEach(() => rmSync(parent, { recursive: true, force: true }));

const file = (name: string) => join(dir, name);

test('a second start finds the root of the first', async () => {
  const first = await loadOrMakeRoot(dir);
  const second = await loadOrMakeRoot(dir);
  expect(second.certificate.pem).toBe(first.certificate.pem);
  expect(second.certificate.subject).toEqual(first.certificate.subject);
  expect(second.certificate.serial).toEqual(first.certificate.serial);
  expect(second.key.equals(first.key)).toBe(true);
});

test('root.pem is the certificate alone; the key is for its owner only', async () => {
  const { certificate } = await loadOrMakeRoot(dir);
  expect(readFileSync(file(ROOT_FILE), 'utf8')).toBe(certificate.pem);
  expect(statSync(file(KEY_FILE)).mode & 0o777).toBe(0o600);
  expect(statSync(dir).mode & 0o777).toBe(0o700);
  expect(readdirSync(dir).sort()).toEqual([KEY_FILE, ROOT_FILE]);
});

test('many starts at once agree on one root', async () => {
  const roots = await Promise.all(Array.from({ length: 8 }, () => loadOrMakeRoot(dir)));
  expect(new Set(roots.map(({ certificate }) => certificate.pem)).size).toBe(1);
  const kept = new X509Certificate(readFileSync(file(ROOT_FILE)));
  for (const { key } of roots) expect(kept.checkPrivateKey(key)).toBe(true);
  expect(readdirSync(dir).sort()).toEqual([KEY_FILE, ROOT_FILE]);
});

test('a start that died before root.pem was written is made good by the next', async () => {
  const { certificate } = await loadOrMakeRoot(dir);
  rmSync(file(ROOT_FILE));
  await loadOrMakeRoot(dir);
  expect(readFileSync(file(ROOT_FILE), 'utf8')).toBe(certificate.pem);
});

test('a root.pem whose key is gone is not replaced behind the back of those who trust it', async () => {
  await loadOrMakeRoot(dir);
  rmSync(file(KEY_FILE));
  await expect(loadOrMakeRoot(dir)).rejects.toThrow(`${file(ROOT_FILE)} stands without its key`);
});

test.each([
  ['a damaged key', () => truncateSync(file(KEY_FILE), 100), KEY_FILE],
  ['an empty key', () => truncateSync(file(KEY_FILE), 0), KEY_FILE],
  ['a damaged certificate', () => truncateSync(file(ROOT_FILE), 100), ROOT_FILE],
])('%s is refused with the name of the file', async (_, damage, name) => {
  await loadOrMakeRoot(dir);
  damage();
  await expect(loadOrMakeRoot(dir)).rejects.toThrow(file(name));
});

test('a pair that does not belong together is refused', async () => {
  await loadOrMakeRoot(dir);
  const other = await loadOrMakeRoot(join(parent, 'other'));
  writeFileSync(file(ROOT_FILE), other.certificate.pem);
  await expect(loadOrMakeRoot(dir)).rejects.toThrow(`${file(ROOT_FILE)} is not the certificate of the key`);
  const key = readFileSync(file(KEY_FILE), 'utf8').replace(/-----BEGIN CERTIFICATE[\s\S]*/, other.certificate.pem);
  writeFileSync(file(KEY_FILE), key);
  await expect(loadOrMakeRoot(dir)).rejects.toThrow(`${file(KEY_FILE)} holds a certificate of another key`);
});

test('a root of another kind is refused', async () => {
  await loadOrMakeRoot(dir);
  await expect(loadOrMakeRoot(dir, RIM_ROOT)).rejects.toThrow('is not the root');
});

test('a folder that cannot be used is named', async () => {
  writeFileSync(join(parent, 'run'), '');
  await expect(loadOrMakeRoot(dir)).rejects.toThrow(`cannot keep the simulated root in ${dir}`);
});
