// Messages between a worker and the primary process. Each request has one response.
import type { Registry } from 'prom-client';
import type { Kept } from '../attestation/interfaces.ts';
import type { Owner } from '../keys/keys.ts';
import type { Counted } from '../limits/concurrency.ts';
import type { PermitLimits } from '../limits/permits.ts';
import type { Admission, Seed } from '../sealing/seeds.ts';
import type { AuditEntry, AuditState } from '../usage/audit-log.ts';
import type { Amounts, UsageRecord } from '../usage/usage.ts';

export type PeerRequest =
  /** Requests an attestation that another worker may keep. A worker sends it to the primary, which forwards it to the other workers. */
  | { readonly type: 'find'; readonly owner: Owner; readonly id: string }
  /** Requests a worker's metrics. Sent by the primary. */
  | { readonly type: 'metrics' }
  /** Requests the usage of a key. */
  | { readonly type: 'usage'; readonly key: string }
  /** Requests the number of tokens that a key has used today. */
  | { readonly type: 'tokens'; readonly key: string }
  /** Requests the state of the audit log. */
  | { readonly type: 'audit' }
  /** Requests the seeds of the keys for sealed requests. The primary sends later changes by itself. */
  | { readonly type: 'seeds' }
  /** Asks whether the keys of seed `n` may open this encapsulated key, which no worker may have opened before. */
  | { readonly type: 'admit'; readonly n: number; readonly enc: Uint8Array }
  /** Adds one to a count of this key, unless the limit is reached. `limit` 0: no limit. */
  | { readonly type: 'count'; readonly key: string; readonly counted: Counted; readonly limit: number };

export interface PeerResponses {
  /** undefined: no worker that responded has it, and not all responded. */
  readonly find: Kept | null | undefined;
  readonly metrics: Awaited<ReturnType<Registry['getMetricsAsJSON']>>;
  readonly usage: readonly UsageRecord[];
  readonly tokens: number;
  readonly audit: AuditState | undefined;
  readonly seeds: readonly Seed[];
  readonly admit: Admission;
  readonly count: boolean;
}

export type Message =
  | { readonly countersign: 'request'; readonly n: number; readonly request: PeerRequest }
  | { readonly countersign: 'response'; readonly n: number; readonly response: unknown }
  /** Subtracts one from a count. */
  | { readonly countersign: 'uncount'; readonly key: string; readonly counted: Counted }
  /** Adds to the usage of a key. */
  | { readonly countersign: 'used'; readonly key: string; readonly model: string; readonly amounts: Amounts }
  /** The new seeds of the keys for sealed requests. Sent by the primary. */
  | { readonly countersign: 'seeds'; readonly seeds: readonly Seed[] }
  /** A verified session names the keys of this seed. */
  | { readonly countersign: 'named'; readonly n: number }
  /** Adds a line to the audit log. */
  | { readonly countersign: 'audit'; readonly entry: AuditEntry }
  /** Requests a permit from the queue `name`. `n` is the worker's own number for this request. */
  | {
      readonly countersign: 'acquire';
      readonly name: string;
      readonly n: number;
      readonly owner: string;
      readonly limits: PermitLimits;
    }
  /** The primary's response to `acquire`: the permit, or a refusal because the queue is full. */
  | { readonly countersign: 'permit'; readonly name: string; readonly n: number; readonly granted: boolean }
  /** The worker no longer needs the permit, granted or not. */
  | { readonly countersign: 'release'; readonly name: string; readonly n: number };

export function isMessage(value: unknown): value is Message {
  return typeof value === 'object' && value !== null && 'countersign' in value;
}

/** The other end of a channel between processes. */
export interface Peer {
  send(message: Message): void;
}

/** Sends requests over a channel, with a timeout: the other process may have ended. */
export class PeerRequests {
  readonly #waiting = new Map<number, (response: unknown) => void>();
  #n = 0;

  /** Resolves to undefined on timeout. `afterTimeout` receives a response that comes later. */
  send<R extends PeerRequest>(
    peer: Peer,
    request: R,
    timeout_ms: number,
    afterTimeout?: (response: PeerResponses[R['type']]) => void,
  ): Promise<PeerResponses[R['type']] | undefined> {
    const n = ++this.#n;
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        if (afterTimeout === undefined) this.#waiting.delete(n);
        else this.#waiting.set(n, (response) => afterTimeout(response as PeerResponses[R['type']]));
        resolve(undefined);
      }, timeout_ms);
      this.#waiting.set(n, (response) => {
        clearTimeout(timer);
        resolve(response as PeerResponses[R['type']]);
      });
      peer.send({ countersign: 'request', n, request });
    });
  }

  settle(n: number, response: unknown): void {
    const resolve = this.#waiting.get(n);
    this.#waiting.delete(n);
    resolve?.(response);
  }
}
