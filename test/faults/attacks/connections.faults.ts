// Strangers with nothing but connections: none of them may cost the others their answers, or the process its life.
import { describe, expect, it } from 'vitest';
import { COMPOSE } from './compose.ts';
import { AttackStage, expectUnharmed } from './stage.ts';

const get = (path: string) => `GET ${path} HTTP/1.1\r\nhost: h\r\n\r\n`;

describe('a gateway', () => {
  it.for(['/', '/health', '/openapi.json', '/nothing'])(
    '64 KB of requests for %s on each of 150 connections that nobody reads from',
    async (path, context) => {
      const stage = await AttackStage.start(context);
      const seen = await stage.under(
        'pipelining.ts',
        { connections: 150, bytes: 64 * 1024, request: get(path) },
        20_000,
      );
      expectUnharmed(seen);
      expect(seen.attack).toMatchObject({ connections: 150 });
    },
  );

  it.for([
    ['the descriptors that compose.yaml gives', COMPOSE.descriptors, {}, 10_000],
    ['as many descriptors as there may be connections', 1_024, { MAX_CONCURRENT_REQUESTS: '512' }, 2_000],
  ] as const)(
    'more idle strangers than there may be connections, with %s: connections that are open are answered',
    async ([_name, descriptors, gateway, connections], context) => {
      const stage = await AttackStage.start(context, {
        gateway,
        descriptors,
        peaceful: { probe_connections: 'kept' },
      });
      const seen = await stage.under('idle.ts', { connections }, 25_000);
      expectUnharmed(seen);
      const { closed } = seen.attack as { most: number; closed: number };
      expect(closed).toBeGreaterThan(0);
    },
  );
});
