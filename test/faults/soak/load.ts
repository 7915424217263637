// The soak's clients: whole answers and streams, with tee and without, some that leave, some that are slow to take.
import { NEVER } from '../judge.ts';
import { see } from '../seen.ts';
import type { Stage } from '../stage.ts';

const KINDS = [
  { stream: true, tee: true },
  { stream: false, tee: true },
  { stream: true, tee: false },
  { stream: false, tee: false },
] as const;

export interface Load {
  /** What the clients saw, in words, and how many of them. */
  readonly saw: Map<string, number>;
  /** Milliseconds of whole answers without tee, and with it, since this was last called. */
  takeLatencies(): { plain: number[]; tee: number[] };
  /** Resolves when the last client has its answer. */
  stop(): Promise<void>;
}

/** What no log, metric or file may hold. */
export const CANARY = 'a canary among questions';

export function startLoad(stage: Stage, clients: number, key: string): Load {
  const saw = new Map<string, number>();
  let plain: number[] = [];
  let tee: number[] = [];
  let over = false;
  let number = 0;

  async function client(): Promise<void> {
    while (!over) {
      const n = ++number;
      const kind = KINDS[n % KINDS.length] ?? KINDS[0];
      const leaves = n % 23 === 0 ? (text: string) => text.length > 300 : undefined;
      const began_ms = performance.now();
      const words = await see(
        stage.url,
        { question: `${CANARY} ${n}`, key, ...kind, ...(leaves === undefined ? {} : { leaves }) },
        () => stage.root,
      );
      saw.set(words, (saw.get(words) ?? 0) + 1);
      if (!kind.stream && words.includes('the answer')) (kind.tee ? tee : plain).push(performance.now() - began_ms);
      if (words.startsWith('no answer')) await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }

  const running = Array.from({ length: clients }, client);
  return {
    saw,
    takeLatencies() {
      const taken = { plain, tee };
      plain = [];
      tee = [];
      return taken;
    },
    async stop() {
      over = true;
      await Promise.all(running);
    },
  };
}

/** What must never happen, and did. */
export function wrongIn(saw: ReadonlyMap<string, number>): string[] {
  return [...saw].filter(([words]) => words.startsWith(NEVER)).map(([words, count]) => `${count} × ${words}`);
}
