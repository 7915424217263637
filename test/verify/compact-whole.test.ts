// Whole and compact verdicts, over all vectors and thousands of changed inputs: a compact attestation with its bundle reaches what the whole one
// reaches, and never more, whatever an attacker does to either.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { readManifest } from '../../scripts/conformance/manifest.ts';
import { inputOf, type Vector, verifyOptions } from '../../scripts/vectors/vector.ts';
import {
  appraiseAttestation,
  attestationIn,
  LEVELS,
  type VerifyOptions,
  verifyAttestation,
} from '../../verify/index.ts';
import { type Compact, compactOf, serving, sha256 } from '../support/compact.ts';
import { type Random, seeded, seedOf } from './fuzz/fuzz-random.ts';
import { AT, attest, attestInBatch, EXCHANGE, simulatedRoot } from './maker.ts';
import { answerIn, makeSession, processorRoots, snp, tdx } from './session-maker.ts';

const VECTORS = fileURLToPath(new URL('../../vectors/', import.meta.url));
const SEED = 0x5eed;
const CHANGES = 3_000;

type Json = Record<string, unknown>;

interface Known {
  readonly name: string;
  readonly whole: Json;
  readonly options: VerifyOptions;
}

const read = (file: string) => JSON.parse(readFileSync(join(VECTORS, file), 'utf8')) as Vector;

/** The whole attestations of the vectors, as objects. */
const vectors: Known[] = readManifest(VECTORS).cases.flatMap(({ file }) => {
  const vector = read(file);
  const input = inputOf(VECTORS, vector);
  const text = typeof input === 'string' ? (attestationIn(input) ?? input) : JSON.stringify(input);
  try {
    const whole = JSON.parse(text) as Json | null;
    if (vector.evidence !== undefined || whole === null || typeof whole.raw !== 'string' || 'bundle' in whole)
      return [];
    // The limit is of a text's length, and these are objects.
    if (vector.options.max_characters !== undefined) return [];
    return [{ name: file, whole, options: verifyOptions(VECTORS, vector.options) }];
  } catch {
    return [];
  }
});

async function sessions(): Promise<Known[]> {
  const options = { simulatedRoot: simulatedRoot + processorRoots, at: AT };
  return Promise.all(
    [snp, tdx].map(async (processor, i) => {
      const session = await makeSession({ processor });
      return { name: `session ${i}`, whole: { ...(await answerIn(session, EXCHANGE)) } as Json, options };
    }),
  );
}

const verdictOf = async (input: unknown, options: VerifyOptions) => {
  const { valid, level, checks } = await appraiseAttestation(input, options);
  const codes = checks.flatMap(({ code }) => (code === undefined ? [] : [code]));
  return { valid, level, codes };
};

describe('an attestation in both forms', () => {
  it('has the same verdict, over all vectors', async () => {
    expect(vectors.length).toBeGreaterThan(150);
    for (const { name, whole, options } of [...vectors, ...(await sessions())])
      for (const shares of [true, false]) {
        const expected = await verdictOf(whole, options);
        const { attestation, bundle } = compactOf(whole, shares);
        if (bundle === '{}') continue;
        const got = await verdictOf(attestation, { ...options, bundles: serving(bundle) });
        // What has another form than an attestation has cannot be told apart by its form.
        const ofForm = expected.codes.some((code) => code === 'not_an_attestation' || code.startsWith('cpu_malformed'));
        if (ofForm || (shares && !('evidence' in whole))) expect([name, got.valid]).toEqual([name, false]);
        else expect([name, got]).toEqual([name, expected]);
      }
  });

  it('is valid only where the whole one is, whatever was changed, and no level higher', async () => {
    const known = [
      ...vectors.filter(({ name }) => name.includes('.pass.')),
      ...(await sessions()),
      { name: 'own', whole: { ...(await attest()) }, options: { simulatedRoot, at: AT } },
      { name: 'batch', whole: { ...(await attestInBatch(4, 1)) }, options: { simulatedRoot, at: AT } },
    ];
    let valid = 0;
    for (let i = 0; i < CHANGES; i++) {
      const r = seeded(seedOf(SEED, i));
      const one = r.pick(known);
      const { input, served } = changed(r, one, r.pick(known));
      const options = { ...one.options, bundles: serving(served) };
      const got = await verifyAttestation(input, options).catch(() => null);
      if (got === null) continue;
      valid++;
      const { bundles: _, ...alone } = options;
      const whole = await verdictOf(got.attestation, { ...alone, expected: undefined });
      expect([i, whole.valid]).toEqual([i, true]);
      expect(LEVELS.indexOf(got.level)).toBeLessThanOrEqual(LEVELS.indexOf(whole.level));
      // All that a device and a processor signed is of one known attestation.
      expect(known.map(({ whole: { raw } }) => raw)).toContain(got.attestation.raw);
    }
    // Some changes change nothing: a member's place, or a bundle that another attestation has too.
    expect(valid).toBeGreaterThan(0);
    expect(valid).toBeLessThan(CHANGES / 2);
  }, 120_000);
});

/** What an attacker sends and serves: it knows the format, and hashes anew what it changes. */
function changed(r: Random, { whole }: Known, { whole: other }: Known): { input: unknown; served: string } {
  const mine = compactOf(whole, r.chance(0.7));
  const theirs = compactOf(other, r.chance(0.7));
  const change = r.pick(CHANGES_OF);
  const { attestation, bundle } = change(r, structuredClone(mine), theirs);
  const honest = r.chance(0.3);
  return { input: honest ? attestation : { ...attestation, bundle: sha256(bundle) }, served: bundle };
}

type Change = (r: Random, mine: Compact, theirs: Compact) => Compact;

const membersOf = (text: string): Json => JSON.parse(text) as Json;
const VALUES: readonly unknown[] = [null, '', {}, [], 0, true, 'x', 'ab'.repeat(32)];

/** A member at any depth becomes another value, or goes. */
function altered(r: Random, value: Json): Json {
  const keys = Object.keys(value);
  if (keys.length === 0) return { x: r.pick(VALUES) };
  const key = r.pick(keys);
  const inner = value[key];
  if (typeof inner === 'object' && inner !== null && r.chance(0.6)) altered(r, inner as Json);
  else if (typeof inner === 'string' && inner !== '' && r.chance(0.6)) {
    const at = r.below(inner.length);
    value[key] = inner.slice(0, at) + r.pick(['A', 'b', '0', '']) + inner.slice(at + 1);
  } else if (r.chance(0.3)) delete value[key];
  else value[key] = r.pick(VALUES);
  return value;
}

const CHANGES_OF: readonly Change[] = [
  (r, { attestation, bundle }) => ({ attestation: altered(r, attestation), bundle }),
  (r, { attestation, bundle }) => ({ attestation, bundle: JSON.stringify(altered(r, membersOf(bundle))) }),
  (_r, { attestation }, { bundle }) => ({ attestation, bundle }),
  (r, { attestation, bundle }) => {
    const at = r.below(bundle.length);
    return { attestation, bundle: bundle.slice(0, at) + r.pick(['', ' ', '"', 'A', '\\', '}']) + bundle.slice(at + 1) };
  },
  // A member of another's, in the place of mine or beside it.
  (r, { attestation, bundle }, theirs) => {
    const members = membersOf(theirs.bundle);
    const name = r.pick(Object.keys(members));
    return { attestation, bundle: JSON.stringify({ ...membersOf(bundle), [name]: members[name] }) };
  },
  (r, { attestation, bundle }, theirs) => {
    const name = r.pick(Object.keys(theirs.attestation));
    return { attestation: { ...attestation, [name]: theirs.attestation[name] }, bundle };
  },
  // A member moves from one to the other, or stands in both.
  (r, { attestation, bundle }) => {
    const members = membersOf(bundle);
    const name = r.pick(Object.keys(members));
    const moved = { ...attestation, [name]: members[name] };
    if (r.chance(0.5)) delete members[name];
    return { attestation: moved, bundle: JSON.stringify(members) };
  },
  (r, { attestation, bundle }) => {
    const name = r.pick(Object.keys(attestation));
    const { [name]: moved, ...rest } = attestation;
    return { attestation: rest, bundle: JSON.stringify({ ...membersOf(bundle), [name]: moved }) };
  },
  // A member twice: parsers differ in which of the two they take.
  (r, { attestation, bundle }, theirs) => {
    const members = membersOf(r.chance(0.5) ? bundle : theirs.bundle);
    const name = r.pick(Object.keys(members));
    return { attestation, bundle: bundle.replace('{', `{${JSON.stringify(name)}:${JSON.stringify(members[name])},`) };
  },
];
