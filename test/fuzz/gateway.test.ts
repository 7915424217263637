import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CHAT, chat } from '../support/client.ts';
import { type RawAnswer, speak } from '../support/raw.ts';
import { expectServing } from '../support/refusals.ts';
import { useService } from '../support/service.ts';
import { blameless } from './blameless.ts';
import { type FuzzRequest, fuzzRequest } from './requests.ts';

/** `npm run fuzz gateway` sends 100,000. */
const REQUESTS = Number(process.env.FUZZ_REQUESTS ?? 3_000);
const AT_ONCE = 24;
const SEED = process.env.FUZZ_SEED === undefined ? undefined : Number(process.env.FUZZ_SEED);

const service = useService(
  { MAX_BODY_BYTES: '65536', limits: { headers_timeout_ms: 300, request_timeout_ms: 500 } },
  {},
  blameless(true),
);

const statuses = new Map<number, number>();

function check(got: RawAnswer, head: boolean): void {
  statuses.set(got.status, (statuses.get(got.status) ?? 0) + 1);
  // 505 is the client's fault for all its number: another version of HTTP.
  if (got.status !== 505) expect(got.status, "a 5xx of the gateway's own").toBeLessThan(500);
  expect(got.headers['x-request-id']).toMatch(/^req-/);
  // The page and its files alone may be kept, and are asked for again.
  expect(got.headers['cache-control']).toMatch(/^no-store$|^no-cache$|^public, max-age=\d+, immutable$/);
  if (got.status < 400 || head) return;
  expect(got.headers['content-type']).toMatch(/^application\/json/);
  const value = JSON.parse(Buffer.from(got.body, 'latin1').toString('utf8'));
  expect(Object.keys(value)).toEqual(['error']);
  expect(Object.keys(value.error)).toEqual(['message', 'type', 'param', 'code']);
  for (const name of ['message', 'type', 'code']) expect(typeof value.error[name], name).toBe('string');
}

async function send({ bytes, head }: FuzzRequest): Promise<void> {
  const got = await speak(service.gateway.url, bytes, { head, timeout_ms: 8_000 });
  const [first] = got.answers;
  expect(first, `an answer, not just an end: ${JSON.stringify(bytes.slice(0, 300))}`).toBeDefined();
  try {
    for (const one of got.answers) check(one, head);
  } catch (cause) {
    throw new Error(`${(cause as Error).message}\nasked: ${JSON.stringify(bytes.slice(0, 300))}`, { cause });
  }
}

describe('the gateway as a black box', () => {
  it(
    `answers each of ${REQUESTS} fuzzed requests, never with a 5xx of its own, always in OpenAI's shape`,
    async () => {
      const batch = fc.array(fuzzRequest, { minLength: AT_ONCE, maxLength: AT_ONCE });
      await fc.assert(
        fc.asyncProperty(batch, async (requests) => {
          service.backend.seen.length = 0;
          await Promise.all(requests.map(send));
          await expectServing(service.gateway.url);
        }),
        {
          numRuns: Math.ceil(REQUESTS / AT_ONCE),
          ...(SEED === undefined ? {} : { seed: SEED }),
          endOnFailure: true,
        },
      );
      const table = [...statuses].sort(([a], [b]) => a - b).map(([status, n]) => `${status}: ${n}`);
      console.log(`fuzzed requests by status: ${table.join(', ')}`);
      expect(statuses.get(200), 'and not all of it is refused at the door').toBeGreaterThan(REQUESTS / 20);
      expect((await chat(service.gateway.url, { ...CHAT, tee: true })).status).toBe(200);
    },
    60_000 + REQUESTS * 30,
  );
});
