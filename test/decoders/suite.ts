// The tests that every decoder takes: the attacks by name, and random streams, on each way to a client.
import { describe, expect, test } from 'vitest';
import { attacks, sendAttack } from './attacks.ts';
import { differential, examine, fetchWay, savedWay, type Way } from './differential.ts';
import type { Decoder } from './reading.ts';

/** FUZZ_STREAMS and FUZZ_SEED set how many and which; a finding is made again by its seed. */
const STREAMS = Number(process.env.FUZZ_STREAMS ?? 300);
const SEED = Number(process.env.FUZZ_SEED ?? 20_250_601);
export const TIMEOUT_MS = 120_000 + STREAMS * 200;
/** Of random streams so many are genuine in what is hashed: what refuses all of them would find nothing. */
const PROVEN_SHARE = 0.1;

export function suite(decoders: () => readonly Decoder[], ways: readonly [string, () => Way][]): void {
  describe.each(ways)('what is read %s was hashed, or the decoder throws', (_name, way) => {
    test('in the attacks by name', { timeout: TIMEOUT_MS }, async () => {
      await expectNoAttack(decoders(), way());
    });

    test(`in ${STREAMS} random streams`, { timeout: TIMEOUT_MS }, async () => {
      const { proven, whole, report } = await differential(decoders(), way(), { streams: STREAMS, seed: SEED });
      if (report.length > 0) expect.fail(report.join('\n\n'));
      for (const [name, count] of [['proofs', proven] as const, ...whole])
        expect([name, count / STREAMS]).toEqual([name, expect.toSatisfy((share: number) => share >= PROVEN_SHARE)]);
    });
  });
}

export async function expectNoAttack(decoders: readonly Decoder[], way: Way, some = attacks): Promise<void> {
  const examined = await examine(decoders, way, await Promise.all(some.map(sendAttack)));
  const wrong = examined.flatMap(({ findings }, i) =>
    findings.map(({ decoder, problem, detail }) => `${some[i]?.name}: ${decoder}: ${problem} ${detail}`),
  );
  expect(wrong).toEqual([]);
}

export const OFFLINE_WAYS: readonly [string, () => Way][] = [fetchWay, savedWay].map((way) => [way.name, () => way]);
