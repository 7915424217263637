// What keeping workers warm is worth: the time of a warm worker's answer beside a cold start of the same SDK.
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { Attester } from '../../../../sidecar/common/attester.ts';
import { freshNonce } from '../../../support/attest.ts';
import { plainAttest } from '../../../twin/plain.ts';
import { startNvtrust } from '../../../twin/stage.ts';
import { startTwin, type Twin } from '../../../twin/twin.ts';

const lacks = inject('twinLacks');
const ROUNDS = 5;
const median = (values: number[]) => values.sort((a, b) => a - b)[values.length >> 1] ?? Number.NaN;

describe.skipIf(lacks !== null)(`a warm worker${lacks === null ? '' : `, SKIPPED without ${lacks}`}`, () => {
  let twin: Twin;
  let attester: Attester;
  beforeAll(async () => {
    twin = await startTwin();
    attester = await startNvtrust(twin);
  });
  afterAll(async () => {
    await attester?.close();
    await twin?.close();
  });

  it.each([0, 50, 500])('answers sooner than a cold start of the same SDK, the collection taking %i ms', async (ms) => {
    twin.faults.collection_ms = ms;
    const warm: number[] = [];
    const cold: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      await delay(1_000); // the successor is up, and this machine quiet
      const begin = performance.now();
      await attester.attest(freshNonce(), new AbortController().signal);
      warm.push(performance.now() - begin);
      await delay(500);
      cold.push((await plainAttest(twin, freshNonce())).ms);
    }
    const [warm_ms, cold_ms] = [median(warm), median(cold)];
    console.log(
      `nvtrust, p50 of ${ROUNDS}, collection ${ms} ms: warm worker ${warm_ms.toFixed(0)} ms, cold start of the same SDK ` +
        `${cold_ms.toFixed(0)} ms: ${(cold_ms / warm_ms).toFixed(1)} times`,
    );
    expect(warm_ms).toBeLessThan(cold_ms);
  });
});
