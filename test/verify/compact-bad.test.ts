// Bundles that are not what a compact attestation needs, each with its code; and what is remembered of a bundle, which outlives no certificate
// and no policy.
import { describe, expect, it } from 'vitest';
import { makeLeaf } from '../../scripts/vectors/devices.ts';
import { deviceOf } from '../../scripts/vectors/world.ts';
import { appraiseAttestation, createBundles, type VerifyOptions, verifyMany } from '../../verify/index.ts';
import { type Compact, compactOf, serving, sha256 } from '../support/compact.ts';
import { AT, a, attest, attestInBatch, b, batchOf, EXCHANGE, issuers, simulatedRoot } from './maker.ts';
import { answerIn, deviceKey, makeSession, processorRoots } from './session-maker.ts';

const options = { simulatedRoot: simulatedRoot + processorRoots, at: AT };

/** The codes of what failed; empty: it is valid. */
async function codes(attestation: unknown, more: VerifyOptions = {}): Promise<string[]> {
  const { valid, checks } = await appraiseAttestation(attestation, { ...options, ...more });
  const failed = checks.flatMap(({ code }) => (code === undefined ? [] : [code]));
  expect(valid).toBe(failed.length === 0);
  return failed;
}

const good = async () => compactOf(await attestInBatch(4, 1));
const inSession = async (session: Awaited<ReturnType<typeof makeSession>>) => compactOf(await answerIn(session), false);
/** Names another bundle. */
const naming = ({ attestation }: Compact, bundle: string) => ({ ...attestation, bundle: sha256(bundle) });

describe('a compact attestation', () => {
  it('is incomplete where its bundle is away, and valid once it is there', async () => {
    const { attestation, bundle } = await good();
    let served: string | null = null;
    const bundles = createBundles({ load: async () => served });
    for (const without of [{}, { bundles: createBundles() }, { bundles }]) {
      expect(await codes(attestation, without)).toEqual(['bundle_unavailable']);
      expect(await appraiseAttestation(attestation, { ...options, ...without })).toMatchObject({ incomplete: true });
    }
    const failing = createBundles({ load: () => Promise.reject(new TypeError('offline')) });
    expect(await codes(attestation, { bundles: failing })).toEqual(['bundle_unavailable']);
    served = bundle;
    expect(await codes(attestation, { bundles })).toEqual([]);
    served = null;
    expect(await codes(attestation, { bundles })).toEqual([]);
  });

  it('takes no other bundle under its hash, and a forged one stays in no store', async () => {
    const { attestation, bundle } = await good();
    let served = (await good()).bundle;
    const bundles = createBundles({ load: async () => served });
    expect(await codes(attestation, { bundles })).toEqual(['bundle_mismatch']);
    expect(await bundles.add(`${bundle} `)).toBe(sha256(`${bundle} `));
    expect(await codes(attestation, { bundles })).toEqual(['bundle_mismatch']);
    served = bundle;
    expect(await codes(attestation, { bundles })).toEqual([]);
    served = 'gone';
    expect(await codes(attestation, { bundles })).toEqual([]);
  });

  it('takes no bundle of another answer, batch or GPU, also where it names it', async () => {
    const mine = await good();
    for (const other of [compactOf(await attestInBatch(4, 1, EXCHANGE, [b])), compactOf(await attest())]) {
      const found = await codes(naming(mine, other.bundle), { bundles: serving(other.bundle) });
      expect(found).toEqual(['token_nonce_mismatch', 'report_nonce_mismatch']);
      const renamed = { ...naming(mine, other.bundle), nonce: other.attestation.nonce };
      expect(await codes(renamed, { bundles: serving(other.bundle) })).toEqual(['batch_proof_invalid']);
    }
    expect(await codes(mine.attestation, { bundles: serving(mine.bundle) })).toEqual([]);
  });

  it('takes no other session: neither its statement nor its processor', async () => {
    const [mine, other] = await Promise.all([makeSession(), makeSession()]);
    const compact = await inSession(mine);
    const { bundle } = await inSession(other);
    expect(await codes(naming(compact, bundle), { bundles: serving(bundle) })).toContain('bundle_mismatch');
    const cpu = { ...(compact.attestation.cpu as object), statement_sha256: sha256(other.statement) };
    const renamed = { ...naming(compact, bundle), cpu };
    expect(await codes(renamed, { bundles: serving(bundle) })).toEqual(['answer_signature_invalid']);
    const mixed = JSON.stringify({ cpu: { ...other.cpu, statement: mine.statement } });
    expect(await codes(naming(compact, mixed), { bundles: serving(mixed) })).toContain('cpu_binding_mismatch');
    const elsewhere = await makeSession({ devices: [b] });
    const onB = await inSession(elsewhere);
    expect(await codes(onB.attestation, { bundles: serving(onB.bundle) })).toContain('cpu_devices_mismatch');
    expect(await codes(compact.attestation, { bundles: serving(compact.bundle) })).toEqual([]);
  });

  it('of a batch whose leaves name different bundles is valid with a bundle that signed its nonce only', async () => {
    const [one, two] = [await attestInBatch(2, 0), await attestInBatch(2, 1)];
    const [first, second] = [compactOf(one), compactOf(two)];
    const texts = new Map([first, second].map(({ bundle }) => [sha256(bundle), bundle]));
    const bundles = createBundles({ load: async (hash) => texts.get(hash) ?? null });
    expect(await codes(first.attestation, { bundles })).toEqual([]);
    expect(await codes(second.attestation, { bundles })).toEqual([]);
    const crossed = naming(second, first.bundle);
    expect(await codes(crossed, { bundles })).toEqual(['token_nonce_mismatch', 'report_nonce_mismatch']);
    const { nonce, batch } = batchOf(one.raw, 2, 0);
    expect(await codes({ ...first.attestation, nonce, batch }, { bundles })).not.toEqual([]);
  });
});

describe('what is remembered of a bundle', () => {
  it('does not outlive a certificate: of two answers the later is refused', async () => {
    const until = new Date(AT.getTime() + 3_600_000);
    const short = deviceOf(issuers, a.brom, makeLeaf(a.brom, { notAfter: until }));
    const { attestation, bundle } = compactOf(await attestInBatch(2, 0, EXCHANGE, [short]));
    const bundles = serving(bundle);
    expect(await codes(attestation, { bundles })).toEqual([]);
    const late = new Date(until.getTime() + 1_000);
    expect(await codes(attestation, { bundles, at: late })).toContain('certificate_expired');
    expect(await codes(attestation, { bundles })).toEqual([]);
  });

  it('does not outlive a session', async () => {
    const { attestation, bundle } = await inSession(await makeSession());
    const bundles = serving(bundle);
    expect(await codes(attestation, { bundles })).toEqual([]);
    const policy = { maxAgeSeconds: 3_600 };
    expect(await codes(attestation, { bundles, policy })).toEqual([]);
    const late = new Date(AT.getTime() + 2 * 3_600_000);
    expect(await codes(attestation, { bundles, policy, at: late })).toContain('too_old');
    const early = new Date(AT.getTime() - 2 * 86_400_000);
    expect(await codes(attestation, { bundles, at: early })).not.toEqual([]);
  });

  it('does not outlive a policy or a root, whichever was used first', async () => {
    const { attestation, bundle } = await good();
    const bundles = serving(bundle);
    const other = { policy: { devices: [deviceKey(b)] } };
    for (const [more, expected] of [
      [{}, []],
      [other, ['device_not_accepted']],
      [{ policy: { maxBatch: 1 } }, ['policy_refused']],
      [{ simulatedRoot: undefined }, ['simulated_root_refused']],
      [{ policy: { minLevel: 'gpu' } }, ['policy_refused']],
      [{ policy: { devices: [deviceKey(a)] } }, []],
      [{}, []],
    ] as const)
      expect(await codes(attestation, { ...more, bundles } as VerifyOptions)).toEqual(expected);
  });

  it('is dropped, the oldest first: 10,000 bundles of one service', async () => {
    const { attestation, bundle } = await good();
    let asked = 0;
    const bundles = createBundles({
      load: async () => {
        asked++;
        return bundle;
      },
    });
    const padding = 'x'.repeat(20_000);
    for (let i = 0; i < 10_000; i++) {
      const hash = await bundles.add(`{"token":"${i}${padding}","evidence":[]}`);
      // Used again and again, so that it is never the oldest.
      expect(await codesEvery(i, attestation, bundles)).toEqual([]);
      if (i === 9_999) expect((await bundles.find(hash))?.text).toContain('"token":"9999');
    }
    expect(asked).toBe(1);
    const first = sha256(`{"token":"0${padding}","evidence":[]}`);
    await expect(bundles.find(first)).rejects.toMatchObject({ code: 'bundle_mismatch' });
    expect(asked).toBe(2);
  }, 60_000);
});

const codesEvery = (i: number, attestation: unknown, bundles: ReturnType<typeof createBundles>) =>
  i % 50 === 0 ? codes(attestation, { bundles }) : [];

it('verifyMany reports each input in its order, and takes the next when it is asked for', async () => {
  const made = await Promise.all([good(), good(), good()]);
  const texts = new Map(made.map(({ bundle }) => [sha256(bundle), bundle]));
  let loaded = 0;
  const bundles = createBundles({
    load: async (hash) => {
      loaded++;
      return texts.get(hash) ?? null;
    },
  });
  let taken = 0;
  async function* inputs() {
    for (const { attestation } of [...made, ...made]) {
      taken++;
      yield taken === 5 ? 'no JSON' : attestation;
    }
  }
  const reports = [];
  for await (const one of verifyMany(inputs(), { ...options, bundles })) {
    reports.push([one.index, one.report.valid]);
    expect(taken).toBe(reports.length);
  }
  expect(reports.map(([, valid]) => valid)).toEqual([true, true, true, true, false, true]);
  expect(reports.map(([index]) => index)).toEqual([0, 1, 2, 3, 4, 5]);
  expect(loaded).toBe(3);
  const few = verifyMany([made[0]?.attestation], { ...options, bundles });
  expect((await few.next()).value).toMatchObject({ index: 0, report: { valid: true } });
});
