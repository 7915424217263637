// The fault table: one row a fault, with what its clients saw and what it left behind.
import type { Cost } from './cost.ts';
import { PLAIN } from './seen.ts';

export interface Row {
  readonly fault: string;
  /** What a client saw, in words, and how many saw it. */
  readonly saw: Readonly<Record<string, number>>;
  /** The gateway's, before and after; null where it ended with the fault. */
  readonly before: Cost;
  readonly after: Cost | null;
}

declare module 'vitest' {
  interface TaskMeta {
    faults?: Row[];
  }
}

const HEAD = `| fault | what the clients saw | gateway's memory before → after, MiB | its descriptors |
|---|---|---|---|`;

/** Markdown. */
export function table(rows: readonly Row[]): string {
  return [HEAD, ...rows.map(line)].join('\n');
}

function line({ fault, saw, before, after }: Row): string {
  const seen = Object.entries(saw)
    .sort(([a, many], [b, more]) => Number(a.startsWith(PLAIN)) - Number(b.startsWith(PLAIN)) || more - many)
    .map(([words, count]) => `${count} × ${words}`)
    .join('; ');
  const memory = `${before.rss_mib.toFixed(0)} → ${after === null ? 'ended' : after.rss_mib.toFixed(0)}`;
  const descriptors = `${before.descriptors} → ${after === null ? 'ended' : after.descriptors}`;
  return `| ${fault} | ${seen} | ${memory} | ${descriptors} |`;
}
