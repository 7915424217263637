// A client that leaves while something is waited for: what comes after must not count it, nor wait for it.
import { EventEmitter } from 'node:events';
import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { ClientGone, readBody } from '../../../gateway/http/body.ts';
import type { Context } from '../../../gateway/http/context.ts';
import { limitedVerification } from '../../../gateway/http/middleware.ts';
import { ANYONE } from '../../../gateway/keys/keys.ts';
import { createConcurrency } from '../../../gateway/limits/concurrency.ts';

type AdmissionDeps = Parameters<typeof limitedVerification>[0];

const LIMITS = {
  max_concurrent_requests: 10,
  max_held_bytes: 10,
  max_streams: 1,
  max_attestations_waiting: 10,
  max_body_bytes: 10,
  max_answer_bytes: 10,
  max_concurrent_per_key: 0,
  max_streams_per_key: 1,
  max_tee_per_key: 1,
  max_held_bytes_per_key: 10,
};

describe('a permit that was left', () => {
  it('is counted neither among all, nor as a stream nor as tee, nor holds anything', () => {
    const concurrency = createConcurrency(LIMITS);
    // Another request of the key is open, so that its counts are kept.
    concurrency.acquire(ANYONE).received();
    const gone = concurrency.acquire(ANYONE);
    gone.release();
    gone.received();
    gone.stream();
    gone.tee();
    gone.hold(10);
    gone.release();
    const next = concurrency.acquire(ANYONE);
    next.received();
    next.stream();
    next.tee();
    next.hold(10);
    expect(concurrency.running).toBe(2);
  });
});

describe('a body whose client has gone', () => {
  it('is not waited for', async () => {
    const incoming = new IncomingMessage(new Socket());
    incoming.on('error', () => {});
    incoming.destroy();
    await new Promise((resolve) => incoming.once('close', resolve));
    expect(() => readBody(incoming, 1024)).toThrow(ClientGone);
  });
});

describe('a verification whose client has gone', () => {
  it('is not begun', async () => {
    const config = { max_verify_per_second: 1, write_stall_ms: 1_000 };
    const rates = { take: async () => ({ allowed: true, limit: 1, remaining: 0, reset_ms: 1 }) };
    const step = limitedVerification({ config, rates } as unknown as AdmissionDeps);
    const context = (destroyed: boolean) =>
      ({
        env: {
          incoming: { headers: {} },
          outgoing: Object.assign(new EventEmitter(), { destroyed, socket: null, setHeader() {}, setTimeout() {} }),
        },
      }) as unknown as Context;
    await expect(step(context(true))).rejects.toBeInstanceOf(ClientGone);
    const here = context(false);
    await step(here);
    expect(here.env.address).toBe('unknown');
  });
});
