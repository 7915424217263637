// Releases, verified by the Python package and by verify/: the same claims and list, or the same code and the same words.
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { describe, expect, it } from 'vitest';
import { CheckFailure } from '../../verify/common/checks.ts';
import { type ReleaseOptions, verifyRelease } from '../../verify/release.ts';
import { usePython } from '../support/line-process.ts';
import { optionsOf, releaseVectors } from '../verify/release/vectors.ts';
import { mutated } from './mutate.ts';
import { both, PACKAGE, python, type Said, SKIPPED } from './package.ts';
import { answers } from './release-answers.ts';

/** How many changed releases are asked about, and from which seed they are made. */
const CHANGES = Number(process.env.COUNTERSIGN_CHANGES ?? 300);
const SEED = Number(process.env.COUNTERSIGN_SEED ?? 1);
const DRIVER = fileURLToPath(new URL('release_driver.py', import.meta.url));
const ANSWERS = fileURLToPath(new URL('driver.py', import.meta.url));
const TIMEOUT_MS = 120_000 + 200 * CHANGES;

interface Asked {
  readonly name: string;
  readonly release: ReleaseOptions;
  readonly at: string;
  readonly answered: string;
}

const vectors: readonly Asked[] = releaseVectors.map(([name, one]) => {
  const { at, answered = at } = one.options;
  return { name, release: optionsOf(one), at, answered };
});

async function ours({ release, at, answered }: Asked): Promise<object> {
  try {
    return await verifyRelease(release, { at: new Date(at), answered: new Date(answered) });
  } catch (error) {
    if (error instanceof CheckFailure) return { code: error.code, detail: error.message };
    return { error: String(error) };
  }
}

/** What is no Ed25519 key, each language's library says in its own words: changed roots have theirs as they were. */
const keepsEd25519 = (root: string, changed: string): boolean =>
  [...root.matchAll(/"MCowBQYDK2VwAyEA[^"]*"/g)].every(([key]) => changed.includes(key));

/** Good releases with one change in a bundle, a status or a trusted root. */
function changed(member: 'bundle' | 'status' | 'trustedRoot'): Asked[] {
  const right = vectors.filter(({ name, release }) => name.startsWith('good.') && release[member] != null);
  const questions = right.map(({ name, release }) => ({
    name,
    call: 'attestation' as const,
    input: { text: release[member] ?? '' },
    options: {},
  }));
  return mutated(questions, CHANGES, SEED).flatMap(({ name, input, options }, i) => {
    const one = right[i % right.length] as Asked;
    const at = (options as { at?: string }).at ?? one.at;
    const text = 'text' in input ? input.text : '';
    if (member === 'trustedRoot' && !keepsEd25519(one.release.trustedRoot ?? '', text)) return [];
    return [{ name: `${member} of ${name}`, release: { ...one.release, [member]: text }, at, answered: one.answered }];
  });
}

describe.skipIf(python === null)(`releases verified by the Python package and by verify/${SKIPPED}`, () => {
  const driver = usePython(python, [DRIVER], { PYTHONPATH: `${PACKAGE}src` });

  /** @returns what was said: codes, `verifies` and `error`. */
  async function agree(asked: readonly Asked[]): Promise<string[]> {
    const differences: object[] = [];
    const said: string[] = [];
    for (const one of asked) {
      const [mine, theirs] = await Promise.all([ours(one), driver.ask<object>(one)]);
      said.push('code' in mine ? String(mine.code) : 'error' in mine ? 'error' : 'verifies');
      if (!isDeepStrictEqual(known(mine), known(theirs)))
        differences.push({ name: one.name, ours: mine, python: theirs });
    }
    expect(differences.slice(0, 5), `${differences.length} of ${asked.length} differ`).toEqual([]);
    return said;
  }

  it(
    'every vector',
    async () => {
      const said = await agree(vectors);
      expect(said.length).toBeGreaterThan(100);
      expect(new Set(said).size).toBeGreaterThan(30);
    },
    TIMEOUT_MS,
  );

  it.each(['bundle', 'status', 'trustedRoot'] as const)(
    `${CHANGES} with a changed %s`,
    async (member) => {
      const said = await agree(changed(member));
      expect(new Set(said).size).toBeGreaterThan(5);
    },
    TIMEOUT_MS,
  );
});

describe.skipIf(python === null)(`answers and sessions of a release's guest, by both${SKIPPED}`, () => {
  const driver = usePython(python, [ANSWERS], { PYTHONPATH: `${PACKAGE}src` });

  it('have the same checks, claims, levels and words', async () => {
    const asked = await answers();
    const differences: object[] = [];
    const levels: string[] = [];
    for await (const { question, ours: mine, python: theirs } of both(
      driver,
      asked.map(({ question }) => question),
    )) {
      levels.push(`${question.name}: ${verdict(mine)}`);
      const same = mine.error === undefined ? isDeepStrictEqual(mine, theirs) : mine.error === theirs.error;
      if (!same) differences.push({ name: question.name, ours: mine, python: theirs });
    }
    expect(differences.slice(0, 3), `${differences.length} of ${asked.length} differ`).toEqual([]);
    expect(levels).toEqual(asked.map(({ question, expected }) => `${question.name}: ${expected}`));
  }, 120_000);
});

function verdict({ report, error }: Said): string {
  const failed = report?.checks.find(([, , status]) => status === 'fail');
  return error ?? failed?.[3] ?? report?.level ?? 'nothing';
}

/** Without what only one of them says: errors in options, and which of a certificate's parts was found to be wrong first. */
function known(said: object): object {
  if ('error' in said) return { error: true };
  if (!('detail' in said)) return said;
  return { ...said, detail: String(said.detail).replace(/(certificate cannot be read): .*/, '$1') };
}
