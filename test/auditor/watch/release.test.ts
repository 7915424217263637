// Nodes of a signed release: proven by its list, failed with another tag, and said where the release is old or not to be had.
import { hash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Kept } from '../../../auditor/watch/board.ts';
import { releaseStatement, STATUS_SAID, statusStatement } from '../../../scripts/vectors/release-kit.ts';
import { makeBundle, makeKeys, makeReleaseWorld, rootOf, SAID } from '../../../scripts/vectors/release-world.ts';
import { LAUNCH, WEIGHTS } from '../../support/launch-file.ts';
import { AT } from '../../verify/maker.ts';
import { type Behaviour, type Fleet, type Front, nodesFile, once, startFleet, through } from './stage.ts';

const world = makeReleaseWorld(makeKeys());
const PATH = '/.well-known/countersign/release';
let fleet: Fleet;
let front: Front;
let served = '';
beforeAll(async () => {
  fleet = await startFleet();
  const node = through(() => fleet.sealing.gateway.url);
  const behaviour: Behaviour = (request, body, response) =>
    request.url === PATH
      ? void response.writeHead(200, { 'content-type': 'application/json' }).end(served)
      : node(request, body, response);
  front = await fleet.front(behaviour);
  writeFileSync(join(fleet.folder.path, 'trusted.json'), JSON.stringify(rootOf(world)));
}, 60_000);
afterAll(() => fleet.close());

function releaseOf(tag: string, current = tag): string {
  const reference = readFileSync(join(fleet.folder.path, 'known.json'), 'utf8');
  const payload = releaseStatement({
    tag,
    files: { 'reference.json': reference, 'launch.json': LAUNCH },
    predicate: { weights: [{ launch: 'launch.json', ...WEIGHTS }] },
  });
  const bundle = makeBundle(world, { payload, at: AT, said: { ...SAID, ref: `refs/tags/${tag}` } });
  const sha256 = hash('sha256', payload);
  const status = makeBundle(world, { payload: statusStatement({ current, sha256 }), at: AT, said: STATUS_SAID });
  return JSON.stringify({ bundle, status });
}

let rounds = 0;
async function seen(release: string) {
  const out = join(fleet.folder.path, `release-${rounds++}`);
  const file = nodesFile(fleet.folder.path, [{ url: front.url, release, level: 'measured' }], {
    trusted_root: 'trusted.json',
  });
  const code = await once(file, out, fleet.root);
  const [node] = JSON.parse(readFileSync(join(out, 'status.json'), 'utf8')).nodes as (Kept & { sentence: string })[];
  return { code, node };
}

it('a node of the release is proven by its list', async () => {
  served = releaseOf('v0.3.0');
  const { code, node } = await seen(`${SAID.repository}@v0.3.0`);
  expect([code, node?.state, node?.level, node?.reason]).toEqual([0, 'good', 'measured', null]);
  expect(node?.release).toEqual({ tag: 'v0.3.0', current: 'v0.3.0' });
});

it('a node of an older release is warned of, and fails where another tag is demanded', async () => {
  served = releaseOf('v0.2.0', 'v0.3.0');
  const old = await seen(`${SAID.repository}@v0.2.0`);
  expect([old.code, old.node?.warnings]).toEqual([0, ['It runs release v0.2.0, and v0.3.0 is current.']]);
  const { code, node } = await seen(`${SAID.repository}@v0.3.0`);
  expect([code, node?.state, node?.code, node?.sentence]).toEqual([
    1,
    'failed',
    'release_tag_mismatch',
    'The release is of another tag.',
  ]);
});

it('a status that is too old, a release of others and one that cannot be read fail, each with a sentence', async () => {
  served = releaseOf('v0.3.0');
  expect((await seen(SAID.repository)).node?.code).toBe('release_status_stale');
  expect((await seen('someone/else@v0.3.0')).node?.code).toBe('release_repository_mismatch');
  served = '{"bundle":';
  const { code, node } = await seen(`${SAID.repository}@v0.3.0`);
  expect([code, node?.code, node?.sentence]).toEqual([
    1,
    'release_malformed',
    expect.stringMatching(/^The release's bundle/),
  ]);
  served = releaseOf('v0.3.0');
  expect((await seen(`${SAID.repository}@v0.3.0`)).code).toBe(0);
});

it('a trusted root that cannot be used ends the watch', async () => {
  writeFileSync(join(fleet.folder.path, 'bad.json'), '{}');
  const nodes = [{ url: front.url, release: SAID.repository, level: 'measured' }];
  const file = nodesFile(fleet.folder.path, nodes, { trusted_root: 'bad.json' });
  await expect(once(file, join(fleet.folder.path, 'bad'), fleet.root)).rejects.toThrow('bad.json');
});
