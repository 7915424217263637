// The usage of each API key: requests, attested responses, LLM tokens and GPU time, by day and model.
import { Reservations } from './budget.ts';

/** Amounts that only grow. */
export interface Amounts {
  readonly requests: number;
  readonly attested: number;
  readonly input_tokens: number;
  readonly output_tokens: number;
  /** GPU time for signatures, of which each response of a batch has an equal part. */
  readonly gpu_us: number;
}

export const AMOUNTS = ['requests', 'attested', 'input_tokens', 'output_tokens', 'gpu_us'] as const;

/** One key's usage of one model on one day (UTC). */
export interface UsageRecord {
  /** YYYY-MM-DD */
  readonly day: string;
  readonly model: string;
  readonly amounts: Amounts;
}

/** Keeps usage: in memory, or in a store that several gateways share. */
export interface UsageBook {
  add(key: string, model: string, amounts: Amounts): void;
  /** The last {@link DAYS} days, the oldest first. @throws {Problem} store_unavailable */
  records(key: string): readonly UsageRecord[] | Promise<readonly UsageRecord[]>;
  /** Today's input and output tokens (UTC) that this gateway knows of, reservations included. */
  tokensToday(key: string): number;
  /** Reserves tokens of today for a request, until its release. */
  reserve(key: string, id: string, wanted: Wanted): Reserved | Promise<Reserved>;
  /** Call `add` first. Otherwise the tokens are for a moment neither reserved nor used. */
  release(key: string, id: string): void;
  close(): void | Promise<void>;
}

/** The LLM tokens that a request may cost. */
export interface Wanted {
  /** The key's tokens a day. */
  readonly limit: number;
  /** The request is refused where fewer are left. */
  readonly least: number;
  readonly most: number;
}

export interface Reserved {
  /** The tokens that were reserved; null: too few are left. */
  readonly tokens: number | null;
  /** Tokens of today before this request, reservations included. */
  readonly used: number;
}

export function grant({ limit, least, most }: Wanted, used: number): Reserved {
  return { tokens: used >= limit || used + least > limit ? null : Math.min(most, limit - used), used };
}

/** Days that are kept, today included. */
export const DAYS = 31;
const DAY_MS = 86_400_000;

export const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);
/** The time until the next day (UTC). */
export const restOfDay_ms = (ms: number): number => DAY_MS - (ms % DAY_MS);
export const firstDay = (ms: number): string => dayOf(ms - (DAYS - 1) * DAY_MS);

export function sum(a: Amounts, b: Amounts): Amounts {
  return {
    requests: a.requests + b.requests,
    attested: a.attested + b.attested,
    input_tokens: a.input_tokens + b.input_tokens,
    output_tokens: a.output_tokens + b.output_tokens,
    gpu_us: a.gpu_us + b.gpu_us,
  };
}

export const NOTHING: Amounts = { requests: 0, attested: 0, input_tokens: 0, output_tokens: 0, gpu_us: 0 };

interface MemoryBook extends UsageBook {
  /** All records, for a file. */
  all(): KeptRecord[];
  readonly changes: number;
}

export type KeptRecord = UsageRecord & { readonly key: string };

/** Keeps usage in the memory of this process. Records of a removed key expire like all others. */
export function createMemoryBook(now: () => number = Date.now, kept: readonly KeptRecord[] = []): MemoryBook {
  /** Each key's records by day and model. */
  const keys = new Map<string, Map<string, UsageRecord>>();
  const reservations = new Reservations();
  let today = dayOf(now());
  let changes = 0;
  for (const { key, ...record } of kept) put(key, record);

  /** Removes records that are too old, once a day. */
  function expire(): void {
    const day = dayOf(now());
    if (day === today) return;
    today = day;
    const first = firstDay(now());
    for (const [key, records] of keys) {
      for (const [id, record] of records) if (record.day < first) records.delete(id);
      if (records.size === 0) keys.delete(key);
    }
  }

  function put(key: string, { day, model, amounts }: UsageRecord): void {
    const records = keys.get(key) ?? new Map<string, UsageRecord>();
    keys.set(key, records);
    const id = `${day} ${model}`;
    records.set(id, { day, model, amounts: sum(records.get(id)?.amounts ?? NOTHING, amounts) });
  }

  function tokensToday(key: string): number {
    expire();
    let tokens = reservations.of(key);
    for (const { day, amounts } of keys.get(key)?.values() ?? [])
      if (day === today) tokens += amounts.input_tokens + amounts.output_tokens;
    return tokens;
  }

  return {
    add(key, model, amounts) {
      expire();
      changes++;
      put(key, { day: today, model, amounts });
    },
    records(key) {
      expire();
      return [...(keys.get(key)?.values() ?? [])];
    },
    tokensToday,
    reserve(key, id, wanted) {
      const reserved = grant(wanted, tokensToday(key));
      if (reserved.tokens !== null) reservations.add(key, id, reserved.tokens);
      return reserved;
    },
    release: (key, id) => reservations.delete(key, id),
    all: () => [...keys].flatMap(([key, records]) => [...records.values()].map((record) => ({ key, ...record }))),
    get changes() {
      return changes;
    },
    close() {},
  };
}
