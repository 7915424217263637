// What a worker and the primary process say to each other: one question, one answer.
import type { Registry } from 'prom-client';
import type { Kept } from '../attestation/store-memory.ts';
import type { Owner } from '../keys/caller.ts';
import type { Counted } from '../limits/concurrency.ts';
import type { PermitLimits } from '../limits/permits.ts';

export type Question =
  /** Has any other worker kept this? Asked of the primary by a worker, and by it of the others. */
  | { readonly ask: 'find'; readonly owner: Owner; readonly id: string }
  /** What does this worker's /metrics say? Asked by the primary. */
  | { readonly ask: 'metrics' }
  /** May this key have one more? 0: no limit. */
  | { readonly ask: 'sit'; readonly key: string; readonly counted: Counted; readonly limit: number };

export interface Answers {
  /** undefined: not everybody who may have it answered. */
  readonly find: Kept | null | undefined;
  readonly metrics: Awaited<ReturnType<Registry['getMetricsAsJSON']>>;
  readonly sit: boolean;
}

export type Message =
  | { readonly countersign: 'question'; readonly n: number; readonly question: Question }
  | { readonly countersign: 'answer'; readonly n: number; readonly answer: unknown }
  /** What was sat on is free again. */
  | { readonly countersign: 'leave'; readonly key: string; readonly counted: Counted }
  /** A worker asks the primary for a permit of the queue `name`; `n` is its own number for that. */
  | {
      readonly countersign: 'acquire';
      readonly name: string;
      readonly n: number;
      readonly owner: string;
      readonly limits: PermitLimits;
    }
  /** The primary's answer: the permit, or that the queue is full. */
  | { readonly countersign: 'permit'; readonly name: string; readonly n: number; readonly given: boolean }
  /** It is needed no longer, given or not. */
  | { readonly countersign: 'release'; readonly name: string; readonly n: number };

export function isMessage(value: unknown): value is Message {
  return typeof value === 'object' && value !== null && 'countersign' in value;
}

/** The other end of a channel between processes. */
export interface Peer {
  send(message: Message): void;
}

/** Asks over a channel, and gives up after a time: the other process may have ended. */
export class Asker {
  readonly #waiting = new Map<number, (answer: unknown) => void>();
  #n = 0;

  /** undefined when there was no answer in time; `late` takes one that comes after that. */
  ask<Q extends Question>(
    peer: Peer,
    question: Q,
    timeout_ms: number,
    late?: (answer: Answers[Q['ask']]) => void,
  ): Promise<Answers[Q['ask']] | undefined> {
    const n = ++this.#n;
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        if (late === undefined) this.#waiting.delete(n);
        else this.#waiting.set(n, (answer) => late(answer as Answers[Q['ask']]));
        resolve(undefined);
      }, timeout_ms);
      this.#waiting.set(n, (answer) => {
        clearTimeout(timer);
        resolve(answer as Answers[Q['ask']]);
      });
      peer.send({ countersign: 'question', n, question });
    });
  }

  answered(n: number, answer: unknown): void {
    const taking = this.#waiting.get(n);
    this.#waiting.delete(n);
    taking?.(answer);
  }
}
