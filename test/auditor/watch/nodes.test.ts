// nodes.json is read strictly, and names what is wrong.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { readNodes } from '../../../auditor/watch/nodes.ts';
import { type Folder, temporaryFolder } from '../../support/harness.ts';
import { OTHER_SOFTWARE } from './stage.ts';

let folder: Folder;
beforeAll(() => {
  folder = temporaryFolder();
  mkdirSync(join(folder.path, 'keys'));
  writeFileSync(join(folder.path, 'keys/a'), 'sk-a\n');
  writeFileSync(join(folder.path, 'keys/two'), 'sk-secret-1\nsk-secret-2\n');
  writeFileSync(join(folder.path, 'weights.json'), JSON.stringify({ verity_root: 'cd'.repeat(32) }));
  writeFileSync(join(folder.path, 'reference.json'), JSON.stringify(OTHER_SOFTWARE));
});
afterAll(() => folder.remove());

function read(value: unknown) {
  const file = join(folder.path, 'nodes.json');
  writeFileSync(file, typeof value === 'string' ? value : JSON.stringify(value));
  return readNodes(file);
}

const NODE = { name: 'a', url: 'https://a.example/v1/', model: 'm' };
const of = (more: object) => ({ watch: 'w', nodes: [{ ...NODE, ...more }] });

it('has defaults, and reads files from its own folder', () => {
  const { nodes, ...all } = read(of({ api_key_file: 'keys/a' }));
  expect(all).toEqual({ watch: 'w', misses: 3, webhook: null, trusted_root: null, next_drivers: [] });
  const base = { name: 'a', url: 'https://a.example', apiKey: 'sk-a', model: 'm', devices: null };
  expect(nodes).toEqual([{ ...base, level: 'gpu', reference: null, release: null, weights: null }]);
  const known = { reference: 'reference.json' };
  const [root] = ['cd'.repeat(32)];
  expect(read(of({ ...known, weights: root })).nodes[0]?.weights).toBe(root);
  expect(read(of({ ...known, weights: 'weights.json' })).nodes[0]?.weights).toBe(root);
  const release = { repository: 'owner/repo', tag: 'v1' };
  expect(read(of({ release: 'owner/repo@v1' })).nodes[0]).toMatchObject({ level: 'measured', release });
  expect(read(of({ release: 'owner/repo', level: 'gpu' })).nodes[0]?.release?.tag).toBe(null);
  expect(read(of({ reference: 'reference.json' })).nodes[0]).toMatchObject({ level: 'measured', apiKey: null });
});

it.each([
  ['{', 'not JSON'],
  ['[]', 'it is not an object'],
  [{ watch: 'w', nodes: [] }, 'nodes is not a list of 1 to 1000'],
  [{ watch: 'w', nodes: [7] }, 'nodes[0] is not an object'],
  [{ watch: 'w', nodes: [NODE, NODE] }, 'two nodes have the name a'],
  [{ nodes: [NODE] }, 'watch is needed'],
  [{ ...of({}), node: 1 }, 'it has a member "node", and may have watch, nodes'],
  [{ ...of({}), misses: 0 }, 'misses is not a number from 1 to 100'],
  [{ ...of({}), webhook: 'ftp://x' }, 'webhook does not have the form'],
  [{ ...of({}), next_drivers: ['new'] }, 'next_drivers is not a list of texts of the form'],
  [of({ name: '../a' }), 'nodes[0].name does not have the form'],
  [of({ url: undefined }), 'nodes[0].url is needed'],
  [of({ url: 'https://user:pw@a.example' }), 'nodes[0].url is not the http(s) URL of a service'],
  [of({ url: 'https://a.example/?x' }), 'nodes[0].url is not the http(s) URL'],
  [of({ url: 'http://[' }), 'nodes[0].url is not the http(s) URL'],
  [of({ level: 'most' }), 'nodes[0].level is not one of none, gpu, gpu+cpu, measured'],
  [of({ level: 'measured' }), 'nodes[0].level measured needs a reference or a release'],
  [of({ weights: 'cd'.repeat(32) }), 'nodes[0].weights needs the level measured'],
  [of({ reference: 'reference.json', weights: 'keys/a' }), 'nodes[0].weights: '],
  [of({ release: 'owner' }), 'nodes[0].release does not have the form'],
  [of({ release: 'o/r', reference: 'reference.json' }), 'nodes[0] has release and reference'],
  [of({ devices: ['AB'] }), 'nodes[0].devices is not a list of texts of the form'],
  [of({ reference: 'keys/a' }), 'nodes[0].reference: '],
  [of({ api_key_file: 'keys/none' }), 'keys/none: no such file'],
  [of({ apikey: 'sk' }), 'nodes[0] has a member "apikey", and may have name, url'],
])('refuses %j', (value, sentence) => {
  expect(() => read(value)).toThrow(sentence);
  expect(read(of({})).nodes).toHaveLength(1);
});

it('takes what the documentation shows', () => {
  const page = readFileSync(new URL('../../../docs/watch.md', import.meta.url), 'utf8');
  const [, shown = ''] = /```json\n([^`]+)```/.exec(page) ?? [];
  writeFileSync(join(folder.path, 'keys/gpu-1'), 'sk-1\n');
  expect(read(shown).nodes).toMatchObject([{ name: 'gpu-1', level: 'measured', apiKey: 'sk-1' }]);
});

it('never names a key', () => {
  expect(() => read(of({ api_key_file: 'keys/two' }))).toThrow(/^(?!.*secret).*does not hold one key/s);
});
