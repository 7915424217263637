// The Python package and verify/ are asked the same, and say the same: valid, incomplete, level, claims, what is proven, and of each check its status and code.
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { usePython } from '../support/line-process.ts';
import { vectorsPresent } from '../support/vectors.ts';
import { type Forms, formsOf } from './compact.ts';
import { mutated } from './mutate.ts';
import { both, type Options, PACKAGE, python, type Question, type Said, SKIPPED } from './package.ts';
import { bytewise, gpus, processors, vectors } from './questions.ts';
import { type Expected, genuineGuests, lists } from './references.ts';
import { launches, madeGuests, sessions, signedChanges } from './sessions.ts';

/** How many changed questions of each kind are asked, and from which seed they are made. */
const CHANGES = Number(process.env.COUNTERSIGN_CHANGES ?? 300);
const SEED = Number(process.env.COUNTERSIGN_SEED ?? 1);
const DRIVER = fileURLToPath(new URL('driver.py', import.meta.url));
const TIMEOUT_MS = 120_000 + 200 * CHANGES;

describe.skipIf(python === null)(`the Python package beside verify/${SKIPPED}`, () => {
  const driver = usePython(python, [DRIVER], { PYTHONPATH: `${PACKAGE}src` });

  /** Asks both. @returns the first check that failed, or `valid`, of each; or what `say` takes of it. */
  async function agree(questions: readonly Question[], say = verdict): Promise<string[]> {
    const differences: unknown[] = [];
    const verdicts: string[] = [];
    for await (const { question, ours, python: theirs } of both(driver, questions)) {
      verdicts.push(say(ours));
      if (!isSame(ours, theirs)) differences.push({ question: question.name, ...difference(ours, theirs) });
    }
    expect(differences.slice(0, 5), `${differences.length} of ${questions.length} differ`).toEqual([]);
    return verdicts;
  }

  /** Asks both about each form. No compact one reaches more than the whole one. @returns how many whole ones are valid */
  async function agreeWhole(asked: readonly Forms[]): Promise<number> {
    const whole = await agree(
      asked.map((forms) => forms.whole),
      attained,
    );
    const pairs = asked.flatMap(({ compact }, i) => compact.map((question) => ({ question, whole: whole[i] ?? '' })));
    const compact = await agree(
      pairs.map(({ question }) => question),
      attained,
    );
    const rows = pairs.map(({ question }, i) => ({ name: question.name, attained: compact[i] }));
    expect(rows).toEqual(pairs.map(({ question, whole }) => ({ name: question.name, attained: whole })));
    return whole.filter((one) => one.startsWith('valid')).length;
  }

  async function agreeAsExpected(asked: readonly Expected[], say = verdict): Promise<void> {
    const said = await agree(
      asked.map(({ question }) => question),
      say,
    );
    const rows = (verdicts: readonly string[]) => asked.map(({ question }, i) => `${question.name}: ${verdicts[i]}`);
    expect(rows(said)).toEqual(rows(asked.map(({ expected }) => expected)));
  }

  it(
    'every vector',
    async () => {
      const questions = vectors();
      expect(questions.length).toBeGreaterThan(150);
      const verdicts = await agree(questions);
      expect(new Set(verdicts).size).toBeGreaterThan(30);
    },
    TIMEOUT_MS,
  );

  it(
    `${CHANGES} changed vectors`,
    async () => {
      const right = vectors().filter(({ name }) => name.includes('.pass.'));
      expect(new Set(await agree(mutated(right, CHANGES, SEED))).size).toBeGreaterThan(8);
    },
    TIMEOUT_MS,
  );

  it(
    `every vector as one event of a stream, and ${CHANGES} of them changed`,
    async () => {
      const events = vectors()
        .filter(({ call }) => call === 'attestation')
        .map((question) => asEvent(question));
      expect(new Set(await agree(events)).size).toBeGreaterThan(15);
      const right = events.filter(({ name }) => name.includes('-event'));
      expect(right.length).toBeGreaterThan(3);
      expect(new Set(await agree(mutated(right, CHANGES, SEED))).size).toBeGreaterThan(4);
    },
    TIMEOUT_MS,
  );

  it(
    'sessions and answers in them',
    async () => {
      const verdicts = await agree(await sessions());
      expect(verdicts.slice(0, 10)).toEqual(Array(10).fill('valid'));
      expect(new Set(verdicts).size).toBeGreaterThan(10);
    },
    TIMEOUT_MS,
  );

  it(
    `${CHANGES} changed sessions and answers`,
    async () => {
      const right = (await sessions()).slice(0, 10);
      expect(new Set(await agree(mutated(right, CHANGES, SEED))).size).toBeGreaterThan(8);
    },
    TIMEOUT_MS,
  );

  it(
    `${CHANGES} sessions and answers, changed before they were signed`,
    async () => {
      expect(new Set(await agree(await signedChanges(CHANGES, SEED))).size).toBeGreaterThan(8);
    },
    TIMEOUT_MS,
  );

  it(
    'every attestation in its compact forms, which pass where the whole one does',
    async () => {
      const asked = [...vectors(), ...(await sessions())].map(formsOf).filter((forms) => forms !== null);
      expect(asked.flatMap(({ compact }) => compact).length).toBeGreaterThan(200);
      expect(await agreeWhole(asked)).toBeGreaterThan(60);
    },
    TIMEOUT_MS,
  );

  it(
    `${CHANGES} changed attestations, whole and compact`,
    async () => {
      const right = [...vectors().filter(({ name }) => name.includes('.pass.')), ...(await sessions()).slice(0, 10)];
      const asked = mutated(right, CHANGES, SEED)
        .map(formsOf)
        .filter((forms) => forms !== null);
      expect(asked.length).toBeGreaterThan(CHANGES / 4);
      await agreeWhole(asked);
    },
    TIMEOUT_MS,
  );

  it(
    `${CHANGES} compact attestations whose bundle or own members are changed`,
    async () => {
      const right = [...vectors().filter(({ name }) => name.includes('.pass.')), ...(await sessions()).slice(0, 10)]
        .map(formsOf)
        .flatMap((forms) => forms?.compact ?? []);
      expect(new Set(await agree(mutated(right, CHANGES, SEED))).size).toBeGreaterThan(8);
    },
    TIMEOUT_MS,
  );

  it('guests among reference values', async () => agreeAsExpected(await madeGuests()), TIMEOUT_MS);

  it('launch files, and weights that the caller names', async () => agreeAsExpected(await launches()), TIMEOUT_MS);

  it('lists of reference values, those that cannot be used too', () => agreeAsExpected(lists(), guestIn), TIMEOUT_MS);

  describe.skipIf(!vectorsPresent)('genuine evidence', () => {
    it(
      'of GPUs and switches',
      async () => {
        const verdicts = await agree(gpus());
        expect(verdicts[0]).toBe('valid');
        expect(new Set(verdicts).size).toBeGreaterThan(10);
      },
      TIMEOUT_MS,
    );

    it(
      `of GPUs and switches, ${CHANGES} times changed`,
      async () => {
        expect(new Set(await agree(mutated(gpus(), CHANGES, SEED))).size).toBeGreaterThan(8);
      },
      TIMEOUT_MS,
    );

    it(
      'of processors',
      async () => {
        const verdicts = await agree(processors());
        expect(verdicts).toHaveLength(55);
        expect(new Set(verdicts).size).toBeGreaterThan(10);
      },
      TIMEOUT_MS,
    );

    it('of processors, among reference values', () => agreeAsExpected(genuineGuests(), guestIn), TIMEOUT_MS);

    it(
      'of processors, byte by byte',
      async () => {
        const verdicts = await agree(bytewise());
        expect(verdicts.length).toBeGreaterThan(1_500);
        expect(new Set(verdicts).size).toBeGreaterThan(5);
      },
      TIMEOUT_MS,
    );

    it(
      `of processors, ${CHANGES} times changed`,
      async () => {
        expect(new Set(await agree(mutated(processors(), CHANGES, SEED))).size).toBeGreaterThan(8);
      },
      TIMEOUT_MS,
    );
  });
});

function asEvent(question: Question): Question {
  const options = question.options as Options;
  return { ...question, options: { ...options, expected: { ...options.expected, event: true } } } as Question;
}

/** An option that cannot be used is a TypeError in both; nothing else may be thrown. */
const isSame = (ours: Said, theirs: Said): boolean =>
  ours.report === undefined
    ? ours.error === 'TypeError' && theirs.error === 'TypeError'
    : JSON.stringify(ours.report) === JSON.stringify(theirs.report);

function verdict({ report, error }: Said): string {
  const failed = report?.checks.find(([, , status]) => status === 'fail');
  return error ?? (failed === undefined ? 'valid' : `${failed[0]} ${failed[3]}`);
}

const UNREADABLE = /^((form|bundle) too_large|form not_an_attestation|bundle bundle_malformed)$/;

/** What a form of an attestation attains: its level and claims, or what fails. Where a form cannot be read, its own check says so. */
function attained(said: Said): string {
  const { report } = said;
  if (report?.valid === true) return `valid ${report.level} ${JSON.stringify(report.claims)}`;
  return verdict(said).replace(UNREADABLE, 'cannot be read');
}

/** What is said of the guest and of its launch file. */
function guestIn({ report, error }: Said): string {
  const of = (name: string) => {
    const [, , status, code] = report?.checks.find(([one]) => one === name) ?? [];
    return code ?? status;
  };
  return error ?? ['cpu_measurement', 'cpu_software'].map(of).join(', ');
}

/** What differs, and of the checks only those that do. */
function difference(ours: Said, theirs: Said): object {
  const [one, other] = [ours.report, theirs.report];
  if (one === undefined || other === undefined)
    return { ours: ours.why ?? verdict(ours), python: theirs.why ?? verdict(theirs) };
  const lines = (report: NonNullable<Said['report']>) =>
    new Set(
      Object.entries(report).flatMap(([name, value]) =>
        (name === 'checks' ? (value as unknown[]) : [value]).map((part) => `${name}: ${JSON.stringify(part)}`),
      ),
    );
  const [a, b] = [lines(one), lines(other)];
  return { ours: [...a].filter((line) => !b.has(line)), python: [...b].filter((line) => !a.has(line)) };
}
