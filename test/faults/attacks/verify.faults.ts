// Strangers at the verify endpoint, which needs no key: chat goes on, and anybody who has a right attestation has its verdict at once.
import { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { ask, CHAT } from '../../support/client.ts';
import { AttackStage, expectUnharmed, PEACEFUL_KEY, percentile } from './stage.ts';

const ATTACK_MS = 20_000;
const VERDICT_MS = 1_000;
const REST_MS = 100;

const FROM = 20;
const ATTACKS = [
  [
    '24 clients with 14 MB of JSON that would be a GiB',
    { clients: 24, from: FROM, addresses: 'each', sends: 'objects' },
  ],
  ['24 clients with 14 MB of JSON that are parsed', { clients: 24, from: FROM, addresses: 'each', sends: 'costly' }],
  ['24 clients with 200 KiB that are parsed', { clients: 24, from: FROM, addresses: 'each', sends: 'small' }],
  ['200 connections that announce a body', { clients: 200, from: FROM, addresses: 'each', sends: 'nothing' }],
  [
    '200 that send all of it but a byte, from one address',
    { clients: 200, from: FROM, addresses: 'one', sends: 'all but one byte' },
  ],
] as const;

describe('a gateway', () => {
  it.for(ATTACKS)('%s', async ([, options], context) => {
    const stage = await AttackStage.start(context);
    const { url } = stage.stage;
    const headers = { authorization: `Bearer ${PEACEFUL_KEY}` };
    const chat = { body: JSON.stringify({ ...CHAT, tee: true }), headers };
    const { attestation } = (await ask(`${url}/v1/chat/completions`, chat)).json();
    const body = JSON.stringify(attestation);

    const times: number[] = [];
    const wrong: string[] = [];
    let verifying = true;
    const verified = (async () => {
      // On a connection of its own each time.
      const agent = new Agent({ keepAlive: false, localAddress: '127.0.0.9' });
      while (verifying) {
        const begin_ms = performance.now();
        const said = await ask(`${url}/~sev_gpu@1.0/verify`, { body, agent }).then(
          ({ text }) => text,
          (error: NodeJS.ErrnoException) => error.code ?? error.name,
        );
        times.push(performance.now() - begin_ms);
        if (said !== 'true') wrong.push(said);
        await sleep(REST_MS);
      }
    })();
    // Threads start with the first verifications.
    await sleep(3_000);
    times.length = 0;
    const seen = await stage.under('verifying.ts', options, ATTACK_MS);
    verifying = false;
    await verified;
    console.log(
      `verdicts: ${times.length}, p50 ${percentile(times, 50)} ms, p99 ${percentile(times, 99)} ms, slowest ${percentile(times, 100)} ms`,
    );
    expectUnharmed(seen);
    expect(wrong).toEqual([]);
    expect(times.length).toBeGreaterThan(20);
    expect(percentile(times, 99)).toBeLessThan(VERDICT_MS);
  });
});
