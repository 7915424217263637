// Strangers with nothing but connections: none of them may cost the others their answers, or the process its life.
import { afterEach, describe, expect, it } from 'vitest';
import { AttackStage, expectUnharmed, WORKERS } from './stage.ts';

let stage: AttackStage | null = null;
afterEach(async () => {
  await stage?.close();
  stage = null;
});

const get = (path: string) => `GET ${path} HTTP/1.1\r\nhost: h\r\n\r\n`;

describe.for(WORKERS)('with %i worker(s)', (workers) => {
  it.for(['/', '/health', '/openapi.json', '/nothing'])(
    '64 KB of requests for %s on each of 150 connections that nobody reads from',
    async (path, context) => {
      stage = await AttackStage.start(context, { workers });
      const seen = await stage.under(
        'pipelining.ts',
        { connections: 150, bytes: 64 * 1024, request: get(path) },
        20_000,
      );
      expectUnharmed(seen);
      expect(seen.attack).toMatchObject({ connections: 150 });
    },
  );
});
