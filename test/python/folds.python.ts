// Streams of a seeded grammar (streams.py), folded by proto/ and by the Python package: the same text, or refused by both for the same reason.
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { FoldError, foldPayloads } from '../../proto/stream/fold.ts';
import { choicesAsked, streamFormOf } from '../../proto/stream/forms.ts';
import { recordEvents } from '../../proto/stream/record-events.ts';
import { usePython } from '../support/line-process.ts';
import { PACKAGE, python, SKIPPED } from './package.ts';

/** How many streams are folded, and from which seed they are made. */
const STREAMS = Number(process.env.COUNTERSIGN_STREAMS ?? 600);
const SEED = Number(process.env.COUNTERSIGN_SEED ?? 1);
const BATCH = 200;
const DRIVER = fileURLToPath(new URL('fold_driver.py', import.meta.url));
const TIMEOUT_MS = 120_000 + 10 * STREAMS;

interface Folded {
  readonly endpoint: string;
  readonly request: string;
  readonly events: readonly (readonly [name: string | null, text: string])[];
  /** The names of the changes in streams.py. */
  readonly changes: readonly string[];
  /** What Python folds it into, or why it does not. */
  readonly text?: string;
  readonly refused?: string;
  readonly reason?: FoldError['reason'];
}

/** @returns the text that proto/ folds it into, or why it does not. */
function ours({ endpoint, request, events }: Folded): Pick<Folded, 'text' | 'refused' | 'reason'> {
  const form = streamFormOf(endpoint);
  try {
    if (form === null) throw new TypeError(`no streams of ${endpoint}`);
    if (form === 'completion') {
      const payloads = events.map(([, text]) => text);
      return { text: foldPayloads(payloads, choicesAsked(endpoint, request)) };
    }
    const record = recordEvents(form);
    for (const [name, text] of events)
      if (record.add(name, text) === 'error') return { refused: 'the stream ended with an error', reason: 'broken' };
    return { text: record.text() };
  } catch (error) {
    if (error instanceof FoldError) return { refused: error.message, reason: error.reason };
    throw error;
  }
}

describe.skipIf(python === null)(`streams folded by the Python package and by proto/${SKIPPED}`, () => {
  const driver = usePython(python, [DRIVER], { PYTHONPATH: `${PACKAGE}src` });

  it(
    `${STREAMS} of seed ${SEED}`,
    async () => {
      const differences: object[] = [];
      const accepted = new Map<string, number>();
      const changed = new Map<string, number>();
      const reasons = new Set<string>();
      for (let from = 0; from < STREAMS; from += BATCH) {
        const count = Math.min(BATCH, STREAMS - from);
        const some = await driver.ask<Folded[]>({ seed: SEED, from, count });
        for (const [i, stream] of some.entries()) {
          const mine = ours(stream);
          if (mine.text !== stream.text || mine.refused !== stream.refused || mine.reason !== stream.reason)
            differences.push({ number: from + i, ...stream, ours: mine });
          reasons.add(mine.refused ?? '');
          if (mine.text === undefined) continue;
          accepted.set(stream.endpoint, (accepted.get(stream.endpoint) ?? 0) + 1);
          if (stream.changes.length > 0) changed.set(stream.endpoint, (changed.get(stream.endpoint) ?? 0) + 1);
        }
      }
      expect(differences.slice(0, 3), `${differences.length} of ${STREAMS} differ`).toEqual([]);
      // A grammar in which everything is refused, or everything accepted, proves nothing.
      for (const endpoint of ['/v1/chat/completions', '/v1/completions', '/v1/responses', '/v1/messages']) {
        expect(accepted.get(endpoint)).toBeGreaterThan(STREAMS / 30);
        expect(changed.get(endpoint)).toBeGreaterThan(STREAMS / 100);
      }
      expect(reasons.size).toBeGreaterThan(20);
    },
    TIMEOUT_MS,
  );
});
