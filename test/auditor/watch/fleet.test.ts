// A fleet of six simulated nodes, of which one each forges, hangs, has a new device, other software than is known, and a wrong canary.
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Kept } from '../../../auditor/watch/board.ts';
import { commandLine } from '../../support/cli.ts';
import { LAUNCH_SHA256, WEIGHTS } from '../../support/launch-file.ts';
import { startProcess } from '../../support/process.ts';
import { checkChain } from './chain.ts';
import { type Fleet, hangs, nodesFile, once, sixNodes, startFleet, through } from './stage.ts';

let fleet: Fleet;
let file: string;
let out: string;
let statuses: number[];
beforeAll(async () => {
  fleet = await startFleet();
  const { nodes, change } = await sixNodes(fleet);
  file = nodesFile(fleet.folder.path, nodes, { misses: 2 });
  out = join(fleet.folder.path, 'out');
  statuses = [await once(file, out, fleet.root)];
  change();
  statuses.push(await once(file, out, fleet.root));
}, 60_000);
afterAll(() => fleet.close());

const read = (name: string) => readFileSync(join(out, name), 'utf8');
const entries = (): Kept[] =>
  readdirSync(join(out, 'history')).flatMap((name) =>
    read(`history/${name}`)
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line)),
  );
const ofNode = (name: string) => entries().filter(({ node }) => node === name);
const nodes = () => JSON.parse(read('status.json')).nodes as (Kept & { sentence: string })[];
const [cli] = [commandLine()];

describe('a fleet of six', () => {
  it('fails as a whole, and each node for its own reason in a sentence', () => {
    expect(statuses).toEqual([1, 1]);
    const told = Object.fromEntries(nodes().map(({ node, state, code, sentence }) => [node, [state, code, sentence]]));
    expect(told).toEqual({
      sealing: [
        'good',
        null,
        expect.stringMatching(/asked by a confidential VM with software that the watch knows\.$/),
      ],
      forging: ['failed', 'response_mismatch', 'Another answer was signed than the one that came.'],
      hanging: ['failed', 'timeout', 'No proof in 2 rounds in a row. The node did not answer in time.'],
      moved: ['good', null, expect.stringMatching(/^A device signed that was never seen before \([0-9a-f]{12}…\)\./)],
      other: ['failed', 'measurement_mismatch', 'The machine runs something else than what is listed.'],
      babbling: ['failed', 'canary_wrong', expect.stringContaining('its canary is wrong')],
    });
  });

  it('counts a miss as away until there are too many', () => {
    expect(ofNode('hanging').map(({ state, misses }) => [state, misses])).toEqual([
      ['away', 1],
      ['failed', 2],
    ]);
  });

  it('asked the node that offers it with a sealed prompt, and after a fresh challenge', () => {
    const [first, second] = ofNode('sealing');
    expect([first?.sealed, second?.sealed, ofNode('moved')[0]?.sealed]).toEqual([true, true, false]);
    const kinds = first?.proofs.map((path) => path.split('/')[0]);
    expect(kinds).toEqual(['sessions', 'answers', 'bundles']);
    const challenges = [first, second].map((entry) => {
      const { statement } = JSON.parse(read(entry?.proofs[0] ?? ''));
      return JSON.parse(statement).challenge;
    });
    expect(new Set(challenges).size).toBe(2);
    expect(first?.ends).toEqual({ certificates: expect.stringMatching(/^2034/), collateral: expect.any(String) });
    expect([first?.level, first?.launch, first?.weights]).toEqual(['measured', LAUNCH_SHA256, WEIGHTS]);
  });

  it('has a history that a program confirms that knows only its page', () => {
    const { entries: count, proofs } = checkChain(out);
    expect([count, proofs >= 20]).toEqual([12, true]);
    expect(JSON.parse(read('status.json')).head).toEqual({ entry: 12, sha256: checkChain(out).last });
  });

  it('offers proofs that the command line verifies, the forged one excepted', () => {
    const root = ['--allow-simulated', join(fleet.folder.path, 'root.pem')];
    const bundles = ['--bundle', join(out, 'bundles')];
    const ways = (name: string) =>
      ofNode(name)
        .at(-1)
        ?.proofs.find((path) => path.startsWith('answers/')) ?? '';
    expect(cli('verify', join(out, ways('sealing')), ...bundles, ...root)).toMatchObject({ status: 0 });
    expect(cli('verify', join(out, ways('forging')), ...bundles, ...root).stdout).toContain('response_mismatch');
    const session = ofNode('sealing')[0]?.proofs[0] ?? '';
    expect(cli('session', join(out, session), ...root)).toMatchObject({ status: 0 });
  });

  it('writes a page without script, a feed, a badge and metrics', () => {
    expect(read('index.html')).toContain('2 of 6 nodes proved themselves');
    expect(read('index.html')).not.toMatch(/<script|http:\/\/|https:\/\//);
    for (const { node } of nodes()) expect(read('index.html')).toContain(`<h3>${node}</h3>`);
    expect(read('feed.xml').match(/<entry>/g)).toHaveLength(8);
    expect(read('badge.svg')).toContain('2 of 6 proven');
    expect(read('metrics.prom')).toContain('countersign_watch_node_state{node="forging",state="failed"} 1\n');
    expect(read('metrics.prom')).toContain('countersign_watch_new_devices{node="moved"} 1\n');
  });

  it('says what changed since an entry or a time, and asks nobody', () => {
    const { status, stdout } = cli('watch', '--out', out, '--since', '6');
    expect(status).toBe(0);
    expect(stdout).toMatch(/hanging: Failed, away before\. No proof in 2 rounds in a row/);
    expect(stdout).toMatch(/moved: Proven\. A device signed that was never seen before/);
    expect(stdout).not.toContain('forging: ');
    expect(stdout).toContain(
      `entries 1 to 12, each after the one before; the SHA-256 of the last: ${checkChain(out).last}`,
    );
    expect(cli('watch', '--out', out, '--since', '2100-01-01').stdout).toContain('nothing changed\nnow: ');
    const json = JSON.parse(cli('watch', '--out', out, '--since', '6', '--json').stdout);
    expect(json.changes.map(({ node }: Kept) => node).sort()).toEqual(['hanging', 'moved']);
    expect(cli('watch', '--out', out, '--since', 'yesterday')).toMatchObject({ status: 2 });
    expect(cli('watch', '--out', join(out, 'none'), '--since', '1').stderr).toContain('no such file or folder');
  });

  it('refuses an edited history with a sentence and status 2, and goes on when it is whole again', async () => {
    const [name = ''] = readdirSync(join(out, 'history'));
    const path = join(out, 'history', name);
    const whole = readFileSync(path, 'utf8');
    writeFileSync(path, whole.replace('"node":"forging","state":"failed"', '"node":"forging","state":"good"'));
    const args = ['watch', file, '--out', out, '--once', '--allow-simulated', join(fleet.folder.path, 'root.pem')];
    const { status, stderr } = cli(...args);
    expect([status, stderr]).toEqual([2, expect.stringMatching(/the history was changed, or is of another watch/)]);
    expect(cli('watch', '--out', out, '--since', '1')).toMatchObject({ status: 2 });
    writeFileSync(path, whole);
    expect(await once(file, out, fleet.root)).toBe(1);
    expect(checkChain(out).entries).toBe(18);
  });
});

describe('the command', () => {
  it('ends with 0 where all are proven, as a process, and with 3 where one is away', async () => {
    const good = nodesFile(fleet.folder.path, [{ url: `${fleet.plain.gateway.url}/v1/`, level: 'none' }]);
    const folder = join(fleet.folder.path, 'alone');
    const args = ['--out', folder, '--once', '--allow-simulated', join(fleet.folder.path, 'root.pem')];
    const ran = startProcess('bin/countersign.js', ['watch', good, ...args]);
    expect([(await ran.exited).code, ran.output()]).toEqual([0, expect.stringContaining('node-1: Signed.')]);
    expect(cli('watch', '--out', folder, '--since', '0').stdout).toContain('\nnow: node-1 signed\n');
    const away = await fleet.front((_request, _body, response) => void response.writeHead(503).end());
    const both = nodesFile(fleet.folder.path, [{ url: fleet.plain.gateway.url }, { url: away.url }]);
    expect(await once(both, folder, fleet.root, { timeout_ms: 20_000 })).toBe(3);
    away.behaviour = through(() => fleet.plain.gateway.url);
    expect(await once(both, folder, fleet.root)).toBe(0);
  });

  it('stays within the disk that it may take: old proofs go, and the page says so', async () => {
    const nodesOf = nodesFile(fleet.folder.path, [{ url: fleet.plain.gateway.url }]);
    const folder = join(fleet.folder.path, 'little');
    const max_bytes = 50_000;
    for (let i = 0; i < 4; i++) expect(await once(nodesOf, folder, fleet.root, { max_bytes })).toBe(0);
    const kept = readdirSync(folder, { recursive: true }).filter((path) => /^(answers|bundles)\//.test(String(path)));
    const size = kept.reduce((sum, path) => sum + statSync(join(folder, String(path))).size, 0);
    expect([size > 10_000, size <= max_bytes, kept.length < 8]).toEqual([true, true, true]);
    expect(readFileSync(join(folder, 'index.html'), 'utf8')).toContain('bundle (no longer kept)');
    expect(checkChain(folder)).toMatchObject({ entries: 4, proofs: kept.length });
  });

  it('refuses a second watch on a folder, and ends the first on a signal', async () => {
    const hanging = await fleet.front(hangs);
    const nodesOf = nodesFile(fleet.folder.path, [{ url: hanging.url }]);
    const folder = join(fleet.folder.path, 'two');
    const first = startProcess('bin/countersign.js', ['watch', nodesOf, '--out', folder]);
    await expect.poll(() => hanging.seen.length, { timeout: 15_000 }).toBeGreaterThan(0);
    const second = startProcess('bin/countersign.js', ['watch', nodesOf, '--out', folder, '--once']);
    expect([(await second.exited).code, second.output()]).toEqual([2, expect.stringContaining('another watch writes')]);
    first.kill('SIGTERM');
    expect((await first.exited).code).toBe(0);
    expect(await once(nodesOf, folder, fleet.root, { timeout_ms: 300 })).toBe(3);
  });

  it.each([
    [[], 'watch needs --out DIR'],
    [['--out', 'x'], 'watch needs one file NODES'],
    [['n', 'm', '--out', 'x'], 'watch needs one file NODES'],
    [['n', '--out', 'x', '--every', '1s'], '--every 1s: not a time from 10s to 24h'],
    [['n', '--out', 'x', '--every', '5'], '--every 5: not a time'],
    [['n', '--out', 'x', '--max-disk', '1'], '--max-disk 1: not a number of MiB from 8'],
    [['/none.json', '--out', 'x'], '/none.json: no such file'],
  ])('refuses %j', (args, sentence) => {
    expect(cli('watch', ...args)).toMatchObject({ status: 2, stderr: expect.stringContaining(sentence) });
  });
});
