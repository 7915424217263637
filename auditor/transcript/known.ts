// What the chain remembers of the exchanges before: hashes, and a limited number of them.
import { LruMap } from '../../verify/common/lru.ts';
import type { Kept } from './edits.ts';
import { type Conversation, hashOf, type Item } from './items.ts';

export interface Run {
  /** Counted from 1. */
  readonly number: number;
  /** The hash of its first message. */
  readonly root: string;
  /** What its last request and response held. */
  told: Kept[];
  /** From here on `told` is the last response, which no request has told again. */
  first: number;
  head: State;
  instructions: string;
}

/** The history after a response. */
export interface State {
  readonly turn: number;
  readonly run: Run;
  readonly hash: string;
  readonly model: string | null;
  /** How many of its response's calls have this id: a model may give one to several. */
  readonly open: ReadonlyMap<string, number>;
  continued: boolean;
}

/** Of more, the least recently used are forgotten. */
const MAX_KEPT = 100_000;
const MAX_RUNS = 1000;

const SEED = hashOf('transcript');

/** The hash of a history with one item more. A client may leave asides out. */
export const extended = (hash: string, item: Item): string => (item.kind === 'aside' ? hash : hashOf(hash, item.hash));
export const isSaid = ({ kind }: Pick<Item, 'kind'>): boolean => kind === 'answer' || kind === 'call';

export class Known {
  readonly #states = new LruMap<string, State>(MAX_KEPT);
  readonly #said = new LruMap<string, State>(MAX_KEPT);
  /** Asides by run and hash: those of different runs may be the same. */
  readonly #asides = new LruMap<string, true>(MAX_KEPT);
  readonly #byId = new LruMap<string, State>(MAX_KEPT);
  readonly #items = new LruMap<string, Item>(MAX_KEPT);
  readonly #callers = new LruMap<string, Run>(MAX_KEPT);
  readonly #roots = new LruMap<string, Run>(MAX_RUNS);
  readonly #claims = new LruMap<string, number>(MAX_KEPT);

  /** The state after what a model said, the last time it said so. */
  said(item: Pick<Item, 'hash'>): State | null {
    return this.#said.get(item.hash) ?? null;
  }

  /** Whether a response of this run had the aside. */
  hasAside(run: Run, { hash }: Pick<Item, 'hash'>): boolean {
    return this.#asides.get(`${run.number} ${hash}`) === true;
  }

  /** The state after a response, by its id or its conversation's. */
  byId(id: string): State | null {
    return this.#byId.get(id) ?? null;
  }

  /** Items that the service holds are put in, as far as they are known. */
  resolved(items: readonly Item[]): readonly Item[] {
    return items.map((item) => (item.kind === 'reference' ? (this.#items.get(item.id ?? '') ?? item) : item));
  }

  /** Where a history that the service adds to begins; null: nothing is added. */
  begin(previous: string | null): string {
    return previous === null ? SEED : (this.byId(previous)?.hash ?? hashOf('unknown', previous));
  }

  /** The longest beginning of a history that is a known state, the number of its items, and the hash of each beginning. */
  longest(from: string, items: readonly Item[]): { state: State | null; length: number; hashes: string[] } {
    let hash = from;
    let state: State | null = null;
    let length = 0;
    const hashes: string[] = [];
    for (const [i, item] of items.entries()) {
      hash = extended(hash, item);
      hashes.push(hash);
      const known = isSaid(item) || item.kind === 'aside' ? this.#states.get(hash) : undefined;
      if (known !== undefined) [state, length] = [known, i + 1];
    }
    return { state, length, hashes };
  }

  /** The run that an edited history is of: that of its first message, or of most of what it says the model said. */
  runOf(items: readonly Item[]): Run | null {
    const votes = new Map<Run, number>();
    for (const item of items.filter(isSaid)) {
      const run = this.said(item)?.run;
      if (run !== undefined) votes.set(run, (votes.get(run) ?? 0) + 1);
    }
    const [voted] = [...votes].sort(([, a], [, b]) => b - a)[0] ?? [];
    const root = items[0]?.hash ?? '';
    if (voted?.root === root) return voted;
    const [caller] = items.flatMap(({ kind, id }) => (kind === 'call' ? (this.#callers.get(id ?? '') ?? []) : []));
    return this.#roots.get(root) ?? voted ?? caller ?? null;
  }

  /** A history says that a model said this, and no exchange before proved it. */
  claim(hash: string, turn: number): void {
    this.#claims.set(hash, turn);
  }

  /** The turn that told of it before it was proven. */
  claimant(hash: string | null): number | null {
    return hash === null ? null : (this.#claims.get(hash) ?? null);
  }

  add(state: State, response: readonly Item[]): void {
    this.#states.set(state.hash, state);
    for (const item of response) {
      this.#said.set(item.hash, state);
      if (item.kind === 'aside') this.#asides.set(`${state.run.number} ${item.hash}`, true);
      if (item.kind === 'call') this.#callers.set(item.id ?? '', state.run);
    }
  }

  name({ responseId, conversationId, byId }: Conversation, state: State): void {
    for (const id of [responseId, conversationId]) if (id !== null) this.#byId.set(id, state);
    for (const [id, item] of byId) this.#items.set(id, { ...item, text: '' });
  }

  begins(run: Run): void {
    if (run.root !== '') this.#roots.set(run.root, run);
  }
}
