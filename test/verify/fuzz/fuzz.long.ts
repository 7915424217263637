// Fuzzes everything that reads what others wrote: never an error without a code, never a pass of what was not signed,
// never more than a moment. FUZZ_INPUTS (20,000) and FUZZ_SEED set how many and which; a finding is run again by its seed.
import { beforeAll, describe, expect, test } from 'vitest';
import { makeWorld, type World } from '../../../scripts/vectors/world.ts';
import { mutateBytes, truncate } from './fuzz-bytes.ts';
import { seeded, seedOf } from './fuzz-random.ts';
import { type AnyTarget, meaningOf, type Target, tryInput } from './fuzz-target.ts';
import { signedTargets } from './fuzz-targets-signed.ts';
import { textTargets } from './fuzz-targets-text.ts';
import { wholeTargets } from './fuzz-targets-whole.ts';

const INPUTS = Number(process.env.FUZZ_INPUTS ?? 20_000);
const SEED = Number(process.env.FUZZ_SEED ?? 20_250_601);
/** A quarter of the inputs are spoilt in several places. */
const SEVERAL = 0.25;
const TIMEOUT_MS = 60_000 + INPUTS * 10;

let targets: readonly AnyTarget[];
let world: World;
beforeAll(async () => {
  console.log(`fuzz: FUZZ_SEED=${SEED} FUZZ_INPUTS=${INPUTS}`);
  world = makeWorld();
  targets = [...(await signedTargets(world)), ...textTargets(world), ...(await wholeTargets(world))];
});

const NAMES = [
  ...['report', 'opaque data', 'certificate', 'PEM chain', 'OCSP response', 'RIM'],
  ...['token of nvtrust', 'token of nvattest', 'token of NRAS', 'token, bare'],
  ...['raw', 'JSON object', 'chunk', 'server-sent events'],
  ...['attestation', 'attestation of a batch', 'response', 'bare evidence', 'transcript'],
];

function target(name: string): Target<Uint8Array | string> {
  const found = targets.find((one) => one.name === name);
  if (found === undefined) throw new TypeError(`no target ${name}`);
  // One of the two, and everything below takes from it what it gives back to it.
  return found as unknown as Target<Uint8Array | string>;
}

const shown = (input: Uint8Array | string): string =>
  typeof input === 'string' ? JSON.stringify(input).slice(0, 4000) : Buffer.from(input).toString('hex').slice(0, 4000);

describe('what is spoilt is refused with a code, in time', () => {
  test.each(NAMES)('%s', { timeout: TIMEOUT_MS }, async (name) => {
    const one = target(name);
    const meaning = meaningOf(await one.run(one.good));
    const total = targets.reduce((sum, { weight }) => sum + weight, 0);
    const inputs = Math.ceil((INPUTS * one.weight) / total);
    for (let i = 0; i < inputs; i++) {
      const seed = seedOf(SEED, i);
      const random = seeded(seed);
      let input = one.mutate(one.good, random);
      if (random.chance(SEVERAL)) for (let n = random.below(4); n > 0; n--) input = one.mutate(input, random);
      const finding = await tryInput(one, input, meaning);
      if (finding !== null) expect.fail(`FUZZ_SEED=${SEED}, input ${i}: ${finding.problem}\n${shown(input)}`);
    }
  });
});

describe('what is cut short at any offset is refused', () => {
  /** Where all offsets would take too long, every so many; all of them in the long run. */
  const step = (length: number): number => (INPUTS > 20_000 ? 1 : Math.max(1, Math.floor(length / 600)));

  test.each(NAMES)('%s', { timeout: TIMEOUT_MS }, async (name) => {
    const one = target(name);
    const meaning = meaningOf(await one.run(one.good));
    const { good } = one;
    for (let at = 0; at < good.length; at += step(good.length)) {
      const input = typeof good === 'string' ? good.slice(0, at) : truncate(good, at);
      const finding = await tryInput(one, input, meaning);
      if (finding !== null) expect.fail(`cut at ${at}: ${finding.problem}`);
    }
  });
});

test('the fuzzer finds a fault that is put in its way', async () => {
  const good = new Uint8Array(64);
  const planted: Target<Uint8Array> = {
    name: 'planted',
    weight: 1,
    good,
    mutate: mutateBytes,
    // One byte of 64 is not looked at.
    run: (input) => {
      if (input.length !== 64 || input.some((byte, i) => byte !== 0 && i !== 40)) throw new RangeError('refused');
      return input;
    },
    refusals: ['RangeError'],
  };
  let found = 0;
  for (let i = 0; i < 2000; i++) {
    const input = planted.mutate(good, seeded(seedOf(SEED, i)));
    if ((await tryInput(planted, input, meaningOf(good))) !== null) found++;
  }
  expect(found).toBeGreaterThan(0);
});
