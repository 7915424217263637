// Streams of a seeded grammar (streams.py) through openai, langchain-openai and anthropic (PyPI): they show what is signed, or it does not fold.
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { usePython } from '../support/line-process.ts';
import { makeVenv } from '../support/venv.ts';

const REQUIREMENTS = fileURLToPath(new URL('clients-requirements.txt', import.meta.url));
const PYTHONPATH = fileURLToPath(new URL('../../python/src', import.meta.url));
const DRIVER = fileURLToPath(new URL('shown.py', import.meta.url));

/** How many streams the clients read, and from which seed they are made. */
const STREAMS = Number(process.env.COUNTERSIGN_STREAMS ?? 600);
const SEED = Number(process.env.COUNTERSIGN_SEED ?? 1);
const BATCH = 100;
const TIMEOUT_MS = 180_000 + 100 * STREAMS;

const python = makeVenv(REQUIREMENTS, 'verifying-clients-venv');
const skipped = python === null ? ' SKIPPED: PyPI cannot be reached' : '';

type Counts = Readonly<Record<string, number>>;

interface Found {
  readonly refused: number;
  /** Streams that fold, by endpoint. */
  readonly accepted: Counts;
  /** How often each client came to the end. */
  readonly shown: Counts;
  /** What clients raised. */
  readonly raised: Counts;
  /** Clients that show something else by a fault of their own: KNOWN in shown.py. */
  readonly known?: Counts;
  /** Clients that show something else, which the rules accept and could refuse. */
  readonly open?: Counts;
  readonly different: readonly object[];
}

describe.skipIf(python === null)(`what clients show of a stream is what is signed${skipped}`, () => {
  const clients = usePython(python, [DRIVER], { PYTHONPATH, LANGSMITH_TRACING: 'false' });

  it(
    `${STREAMS} of seed ${SEED}`,
    async () => {
      const sums = { accepted: new Map<string, number>(), shown: new Map(), known: new Map(), open: new Map() };
      const different: object[] = [];
      for (let from = 0; from < STREAMS; from += BATCH) {
        const found = await clients.ask<Found>({ seed: SEED, from, count: Math.min(BATCH, STREAMS - from) });
        different.push(...found.different);
        for (const kind of ['accepted', 'shown', 'known', 'open'] as const)
          for (const [name, count] of Object.entries(found[kind] ?? {}))
            sums[kind].set(name, (sums[kind].get(name) ?? 0) + count);
      }
      if (sums.open.size > 0) console.warn('accepted, and shown otherwise:', Object.fromEntries(sums.open));
      expect(different.slice(0, 3), `${different.length} differ`).toEqual([]);
      // A grammar in which everything is refused, or of which clients show nothing, proves nothing.
      expect(sums.accepted.size).toBe(4);
      for (const count of sums.accepted.values()) expect(count).toBeGreaterThan(STREAMS / 30);
      expect(sums.shown.size).toBe(10);
      for (const count of sums.shown.values()) expect(count).toBeGreaterThan(STREAMS / 30);
    },
    TIMEOUT_MS,
  );
});
