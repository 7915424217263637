// What the history will say of a node, and in which words.
import { describe, expect, it } from 'vitest';
import { createBoard, judge, type Kept } from '../../../auditor/watch/board.ts';
import { createReferenceSearch } from '../../../auditor/watch/endorsements.ts';
import type { Node } from '../../../auditor/watch/nodes.ts';
import type { Probed } from '../../../auditor/watch/probe.ts';
import { siteOf } from '../../../auditor/watch/site.ts';
import { headlineOf, sentenceOf } from '../../../auditor/watch/words.ts';
import { createSimulatedAttester } from '../../../demo/twin/gpu.ts';
import type { Verified } from '../../../verify/index.ts';
import { temporaryFolder } from '../../support/harness.ts';
import { document, newSigner, signed } from '../../verify/gpu/rim-maker.ts';

const AT = new Date('2026-11-26T12:00:00Z');
const NODE: Node = {
  name: 'a',
  url: 'http://a',
  apiKey: null,
  model: 'm',
  level: 'gpu',
  reference: null,
  release: null,
  weights: null,
  devices: null,
};
const [OLD, NEW] = ['aa'.repeat(32), 'bb'.repeat(32)];
const PROBED: Probed = {
  ...{ outcome: 'proven', code: null, reason: null, level: 'gpu', sealed: false, devices: [OLD], drivers: ['580.1'] },
  ...{
    launch: null,
    release: null,
    weights: null,
    ends: null,
    drivers_unknown: [],
    canary: 'good',
    latency_ms: 900,
    received: [],
  },
};
const AWAY: Probed = { ...PROBED, outcome: 'away', code: 'timeout', reason: 'No answer.', level: null, devices: null };

/** Judges one after the other. @returns the last entry and the number of changes */
function judged(probes: readonly Partial<Probed>[], node: Node = NODE, misses = 3): { last: Kept; changes: number } {
  const board = createBoard();
  for (const [i, one] of probes.entries()) {
    const entry = judge(node, { ...PROBED, ...one }, board.standings.get('a') ?? null, misses, AT);
    board.take({ entry: i + 1, prev: '', time: AT.toISOString(), watch: 'w', ...entry, proofs: [] } as Kept);
  }
  return { last: board.standings.get('a')?.last as Kept, changes: board.changes.length };
}

describe('a node', () => {
  it('that missed counts as failed after so many rounds, and begins anew with a proof', () => {
    const states = [1, 2, 3, 4].map((count) => judged(Array(count).fill(AWAY)).last.state);
    expect(states).toEqual(['away', 'away', 'failed', 'failed']);
    expect(judged([AWAY, AWAY, {}, AWAY]).last).toMatchObject({ state: 'away', misses: 1 });
    expect(judged([AWAY], NODE, 1).last).toMatchObject({
      state: 'failed',
      reason: 'No proof in 1 rounds in a row. No answer.',
    });
  });

  it('that nobody could check is not failed until it was so too often', () => {
    const unchecked: Partial<Probed> = { ...AWAY, outcome: 'unchecked', code: 'rim_unavailable' };
    expect(judged([unchecked]).last.state).toBe('unchecked');
    expect(judged([AWAY, unchecked, AWAY]).last.state).toBe('failed');
  });

  it('is warned of while a device signs that was not in its first proof, and until nodes.json lists it', () => {
    const { last, changes } = judged([{}, { devices: [OLD, NEW] }, { devices: [NEW] }]);
    expect([last.state, last.new_devices, changes]).toEqual(['good', [NEW], 2]);
    expect(sentenceOf(last)).toMatch(
      /^A device signed that was never seen before \(bbbbbbbbbbbb…\)\. A genuine NVIDIA GPU/,
    );
    expect(judged([AWAY, {}, {}]).last.new_devices).toEqual([]);
    expect(judged([{}, { devices: [NEW] }], { ...NODE, devices: [OLD, NEW] }).last.warnings).toEqual([]);
    expect(judged([{ devices: [NEW] }], { ...NODE, devices: [OLD] }).last.code).toBe('device_not_accepted');
  });

  it('is warned of before its endorsements end, and before a driver that has no reference values', () => {
    const ends = { certificates: '2026-12-09T00:00:00Z', collateral: '2026-11-28T00:00:00Z' };
    const { last } = judged([{ ends, drivers_unknown: ['590.1', '580.1'] }]);
    expect(last.warnings).toEqual([
      'A certificate ends on 2026-12-09.',
      "The processor's collateral ends on 2026-11-28.",
      'NVIDIA has no reference values for driver 590.1 yet: with it, nothing would be proven.',
    ]);
    const release = { tag: 'v1', current: 'v2' };
    expect(judged([{ release }]).last.warnings).toEqual(['It runs release v1, and v2 is current.']);
    expect(judged([{ release: { tag: 'v2', current: 'v2' } }, { release: null }]).last.warnings).toEqual([]);
    const later = { certificates: '2026-12-11T00:00:00Z', collateral: '2026-11-30T00:00:00Z' };
    expect(judged([{ ends: later }]).last.warnings).toEqual([]);
  });

  it('of a lower level, or with a wrong canary, is failed', () => {
    expect(judged([{ level: 'none' }]).last.reason).toBe('Its proof is of level none, and gpu is demanded.');
    expect(judged([{ canary: 'wrong' }]).last.code).toBe('canary_wrong');
    expect(judged([{ canary: 'wrong' }, { canary: 'unknown' }]).last.state).toBe('good');
  });
});

describe('the page', () => {
  const entries = (...levels: (Kept['level'] | 'away')[]) =>
    levels.map((level) => judged([level === 'away' ? AWAY : { level }], { ...NODE, level: 'none' }).last);

  it('counts what is proven, and does not call a signature of level none so', () => {
    expect(headlineOf(entries('gpu', 'measured')).long).toBe('All 2 nodes proved themselves');
    expect(headlineOf(entries('gpu')).long).toBe('The node proved itself');
    expect(headlineOf(entries('gpu', 'away'))).toMatchObject({
      short: '1 of 2 proven',
      long: '1 of 2 nodes proved itself',
    });
    expect(headlineOf(entries('none', 'gpu'))).toMatchObject({
      long: 'All 2 nodes signed their answers',
      but: expect.any(String),
    });
  });

  it('escapes what a name or a fleet has', () => {
    const board = createBoard();
    const watch = `<b>"&'`;
    const entry = judge(NODE, PROBED, null, 3, AT);
    board.take({ entry: 1, prev: '', time: AT.toISOString(), watch, ...entry, proofs: [] } as Kept);
    const head = { entry: 1, sha256: 'ab' };
    const due = new Date('2026-11-26T12:06:00Z');
    const site = siteOf({
      watch,
      names: ['a', 'not asked yet'],
      board,
      head,
      oldest: 1,
      files: [],
      at: AT,
      due,
      has: () => true,
    });
    expect(site['index.html']).toContain('&lt;b&gt;&quot;&amp;&#39;');
    expect(site['index.html']).toContain('The next check ends by <time datetime="2026-11-26T12:06:00.000Z">');
    expect(site['feed.xml']).toContain('<title>&lt;b&gt;&quot;&amp;&#39;</title>');
    expect(`${site['index.html']}${site['feed.xml']}`).not.toContain('<b>"');
  });
});

describe('the search for reference values of a driver to come', () => {
  it('asks the service once for each, takes only what is signed under its root, and nothing for a simulated GPU', async () => {
    const folder = temporaryFolder();
    const attester = await createSimulatedAttester({ rootDir: folder.path });
    const { evidence } = await attester.attest('ab'.repeat(32) as never, AbortSignal.timeout(5_000));
    folder.remove();
    const device = { kind: 'gpu', arch: 'HOPPER', chip: 'GH100' };
    const proof = (simulated: boolean) =>
      ({ claims: { simulated, devices: [device] }, attestation: { evidence } }) as never as Verified;
    const [own, other] = [newSigner(), newSigner()];
    const asked: string[] = [];
    const documents: Readonly<Record<string, string>> = {
      'NV_GPU_DRIVER_GH100_590.1': signed(document({ version: '590.1' }), own),
      'NV_GPU_DRIVER_GH100_591.1': signed(document({ version: '591.1' }), other),
    };
    const collateral = {
      rim: async ({ id }: { id: string }) => {
        asked.push(id);
        return documents[id] ?? null;
      },
      ocsp: async () => null,
    };
    const roots = { rim: pem(own.roots[0]?.der ?? new Uint8Array()) };
    const find = createReferenceSearch({ collateral, roots }, ['590.1', '591.1', '592.1']);
    expect(await find(proof(true))).toBe(null);
    expect(asked).toEqual([]);
    expect(await find(proof(false))).toEqual(['591.1', '592.1']);
    expect(await find(proof(false))).toEqual(['591.1', '592.1']);
    expect(asked).toHaveLength(3);
  });
});

const pem = (der: Uint8Array): string =>
  `-----BEGIN CERTIFICATE-----\n${Buffer.from(der).toString('base64')}\n-----END CERTIFICATE-----\n`;
