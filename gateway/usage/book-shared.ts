// Keeps usage in Valkey or Redis, so that all gateways count together. What was used is written once a second, and again while it fails.
import type { Connection } from '../attestation/store-connection.ts';
import { Problem } from '../http/problem.ts';
import { AMOUNTS, type Amounts, dayOf, firstDay, NOTHING, sum, type UsageBook, type UsageRecord } from './usage.ts';

const FLUSH_MS = 1_000;
const RETRY_SECONDS = 2;
/** A month's records are kept until the last day of the next month has left the last 31 days. */
const MONTH_KEPT_S = 93 * 86_400;
const TOKENS_KEPT_S = 2 * 86_400;
/** Records that wait for a store that is away; past it the newest are lost, and the log says so. */
const MAX_WAITING = 100_000;

const monthKey = (key: string, month: string) => `countersign:usage:${key}:${month}`;
const tokensKey = (key: string, day: string) => `countersign:tokens:${key}:${day}`;

interface Waiting {
  readonly key: string;
  readonly day: string;
  readonly model: string;
  amounts: Amounts;
}

/** `onLost` is told of records that found no place. */
export function createSharedBook(connection: Connection, onLost: () => void, now: () => number = Date.now): UsageBook {
  let waiting = new Map<string, Waiting>();
  let flushing: Promise<void> | null = null;
  const timer = setInterval(() => void flush(), FLUSH_MS).unref();

  function put({ key, day, model, amounts }: Waiting): void {
    const id = `${key} ${day} ${model}`;
    const known = waiting.get(id);
    if (known !== undefined) known.amounts = sum(known.amounts, amounts);
    else if (waiting.size < MAX_WAITING) waiting.set(id, { key, day, model, amounts });
    else onLost();
  }

  function flush(): Promise<void> {
    if (waiting.size === 0) return flushing ?? Promise.resolve();
    flushing ??= write().finally(() => {
      flushing = null;
    });
    return flushing;
  }

  async function write(): Promise<void> {
    const batch = waiting;
    waiting = new Map();
    try {
      await connection.run((client) => {
        const transaction = client.multi();
        for (const { key, day, model, amounts } of batch.values()) {
          const month = monthKey(key, day.slice(0, 7));
          for (const what of AMOUNTS)
            if (amounts[what] > 0) transaction.hIncrByFloat(month, `${day} ${what} ${model}`, amounts[what]);
          transaction.expire(month, MONTH_KEPT_S);
          const tokens = amounts.input_tokens + amounts.output_tokens;
          if (tokens > 0) transaction.incrBy(tokensKey(key, day), tokens).expire(tokensKey(key, day), TOKENS_KEPT_S);
        }
        return transaction.exec();
      });
    } catch {
      // The connection's state is logged. Whether the transaction was carried out is unknown where its reply was lost: it counts twice then.
      for (const one of batch.values()) put(one);
    }
  }

  const unwritten = (key: string, day: string): number => {
    let tokens = 0;
    for (const one of waiting.values())
      if (one.key === key && one.day === day) tokens += one.amounts.input_tokens + one.amounts.output_tokens;
    return tokens;
  };

  return {
    add: (key, model, amounts) => put({ key, day: dayOf(now()), model, amounts }),
    async records(key) {
      await flush();
      const first = firstDay(now());
      const months = [...new Set([first.slice(0, 7), dayOf(now()).slice(0, 7)])];
      try {
        const hashes = await Promise.all(
          months.map((month) => connection.run((client) => client.hGetAll(monthKey(key, month)))),
        );
        return recordsOf(hashes, first);
      } catch (cause) {
        throw new Problem('store_unavailable', 'The store that usage is kept in cannot be reached.', {
          cause,
          retryAfterSeconds: RETRY_SECONDS,
        });
      }
    },
    async tokensToday(key) {
      const day = dayOf(now());
      const stored = await connection.run((client) => client.get(tokensKey(key, day))).catch(() => null);
      return Number(stored ?? 0) + unwritten(key, day);
    },
    async close() {
      clearInterval(timer);
      await flush();
    },
  };
}

/** Fields are `day what model`. */
function recordsOf(hashes: readonly Readonly<Record<string, string>>[], first: string): UsageRecord[] {
  const records = new Map<string, UsageRecord>();
  for (const [field, value] of hashes.flatMap((hash) => Object.entries(hash))) {
    const [day = '', what = '', ...words] = field.split(' ');
    const model = words.join(' ');
    if (day < first) continue;
    const id = `${day} ${model}`;
    const amounts = { ...(records.get(id)?.amounts ?? NOTHING), [what]: Math.round(Number(value)) };
    records.set(id, { day, model, amounts });
  }
  return [...records.values()].sort((a, b) => (a.day < b.day ? -1 : 1));
}
