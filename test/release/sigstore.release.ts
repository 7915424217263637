// Sigstore's own verifier as the oracle: over our vectors, the genuine bundles, a world of its mock services and thousands of changed bundles, no
// verdict of ours is more generous than its own.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it } from 'vitest';
import type { ReleaseCase } from '../../scripts/vectors/release-kit.ts';
import { verifySigned } from '../../verify/release/signed.ts';
import { readBundle } from '../../verify/release/sigstore-bundle.ts';
import { readTrustedRoot } from '../../verify/release/trusted-root.ts';
import { verifyRelease } from '../../verify/release.ts';
import { WEIGHTS } from '../support/launch-file.ts';
import { installPackages } from '../support/npm-packages.ts';
import { genuineVectors, vector, vectorsPresent } from '../support/vectors.ts';
import { mockWorld } from './oracle/mock-world.ts';

const MANIFEST = fileURLToPath(new URL('oracle/package.json', import.meta.url));
const VECTORS = fileURLToPath(new URL('../../vectors/release/', import.meta.url));
const MUTATIONS = 2_000;

let load: NodeJS.Require;
beforeAll(() => {
  const folder = installPackages(MANIFEST, 'release-oracle');
  if (folder === null) throw new Error("npm's registry cannot be reached: no oracle");
  load = createRequire(join(folder, 'package.json'));
});

/** What Sigstore's verifier says: an error, or null. */
function theirs(bundle: unknown, root: unknown): unknown {
  const { bundleFromJSON } = load('@sigstore/bundle');
  const { TrustedRoot } = load('@sigstore/protobuf-specs');
  const { Verifier, toSignedEntity, toTrustMaterial } = load('@sigstore/verify');
  try {
    const thresholds = { tlogThreshold: 1, ctlogThreshold: 1, timestampThreshold: 1 };
    new Verifier(toTrustMaterial(TrustedRoot.fromJSON(root)), thresholds).verify(
      toSignedEntity(bundleFromJSON(bundle)),
    );
    return null;
  } catch (error) {
    return error;
  }
}

/** What ours says before it asks whose signature it is. */
const ours = (text: string, root: ReturnType<typeof readTrustedRoot>): Promise<unknown> =>
  Promise.resolve()
    .then(() => verifySigned(readBundle(text), root, null))
    .then(
      () => null,
      (error: unknown) => error,
    );

const cases = readdirSync(join(VECTORS, 'cases')).map(
  (file) => [file, JSON.parse(readFileSync(join(VECTORS, 'cases', file), 'utf8')) as ReleaseCase] as const,
);
const root = JSON.parse(readFileSync(join(VECTORS, 'trusted-root.json'), 'utf8'));

describe('no verdict is more generous', () => {
  it.each(cases.filter(([, { bundle }]) => bundle !== undefined))(
    '%s',
    async (_, { bundle, options, expect: stated, status }) => {
      const under = options.trusted_root ?? root;
      const said = theirs(bundle, under);
      const own = await ours(JSON.stringify(bundle), readTrustedRoot(JSON.stringify(under)));
      if (own === null) expect(said).toBeNull();
      if ('claims' in stated) expect([own, said]).toEqual([null, null]);
      if ('claims' in stated && status !== undefined) expect(theirs(status, under)).toBeNull();
    },
  );

  it.skipIf(!vectorsPresent)('over the genuine bundles that have an envelope', async () => {
    const names = genuineVectors().filter(({ path }) => /^sigstore\/.*dsse.*\/bundle\.sigstore\.json$/.test(path));
    expect(names.length).toBeGreaterThan(3);
    for (const { path } of names) {
      const beside = path.replace('bundle.sigstore.json', 'trusted_root.json');
      const { PUBLIC_ROOT } = await import('../../verify/release/public-root.ts');
      const known = genuineVectors().some((one) => one.path === beside);
      const under = known ? vector(beside).toString() : PUBLIC_ROOT;
      const text = vector(path).toString();
      expect([path, (await ours(text, readTrustedRoot(under))) === null]).toEqual([path, false]);
      expect([path, theirs(JSON.parse(text), JSON.parse(under)) === null]).toEqual([path, false]);
    }
  });

  it.each([1, 2] as const)('in a world of its mock services, log of version %i', async (version) => {
    const { bundle, trustedRoot, repository } = await mockWorld(load, version);
    expect(theirs(JSON.parse(bundle), JSON.parse(trustedRoot))).toBeNull();
    const { claims } = await verifyRelease({ bundle, trustedRoot, repository, tag: 'v1.0.0' });
    expect(claims).toMatchObject({ repository, tag: 'v1.0.0', weights: [WEIGHTS] });
    const other = verifyRelease({ bundle, trustedRoot, repository: `${repository}x`, tag: 'v1.0.0' });
    await expect(other).rejects.toMatchObject({ code: 'release_repository_mismatch' });
  });

  it.each(['good.v1', 'good.v2', 'good.v1-and-time-authority'])(
    'over thousands of changes of %s',
    async (name) => {
      const { bundle } = cases.find(([file]) => file === `${name}.json`)?.[1] ?? {};
      const trusted = readTrustedRoot(JSON.stringify(root));
      let accepted = 0;
      for (let seed = 0; seed < MUTATIONS; seed++) {
        const changed = mutated(bundle, seed);
        if ((await ours(JSON.stringify(changed), trusted)) !== null) continue;
        accepted++;
        expect([seed, theirs(changed, root)]).toEqual([seed, null]);
      }
      // Most members are under a signature; the rest is the log's global index where the log promised nothing.
      expect(accepted).toBeLessThan(MUTATIONS / 10);
      expect(await ours(JSON.stringify(bundle), trusted)).toBeNull();
    },
    240_000,
  );
});

/** One leaf of the JSON is another: a digit, a byte of base64, a text of its neighbour, or it is gone. The same seed makes the same change. */
function mutated(value: unknown, seed: number): unknown {
  const copy = structuredClone(value) as Record<string, unknown>;
  const leaves: { of: Record<string, unknown>; name: string }[] = [];
  const walk = (of: Record<string, unknown>) => {
    for (const [name, inside] of Object.entries(of))
      if (typeof inside === 'object' && inside !== null) walk(inside as Record<string, unknown>);
      else leaves.push({ of, name });
  };
  walk(copy);
  let state = (seed * 2_654_435_761 + 1) >>> 0;
  const random = (below: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const { of, name } = leaves[random(leaves.length)] as (typeof leaves)[number];
  const text = String(of[name]);
  const other = leaves[random(leaves.length)] as (typeof leaves)[number];
  const ways = [
    () => changedByte(text, random),
    () => changedByte(text, random),
    () => changedByte(text, random),
    () => `${text.slice(0, random(text.length))}${text.slice(random(text.length))}`,
    () => String(other.of[other.name]),
    () => undefined,
  ];
  of[name] = ways[random(ways.length)]?.();
  return copy;
}

function changedByte(text: string, random: (below: number) => number): string {
  if (/^\d+$/.test(text)) return String(BigInt(text) + BigInt(random(5)) - 2n);
  const bytes = Buffer.from(text, 'base64');
  if (bytes.length < 8 || bytes.toString('base64') !== text) {
    const at = random(text.length);
    return `${text.slice(0, at)}${String.fromCharCode(33 + random(90))}${text.slice(at + 1)}`;
  }
  const at = random(bytes.length);
  bytes[at] = (bytes[at] as number) ^ (1 << random(8));
  return bytes.toString('base64');
}

it('is installed where the suite keeps what it needs', () => {
  expect(existsSync(load.resolve('@sigstore/verify'))).toBe(true);
});
