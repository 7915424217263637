// Keeps usage in Valkey or Redis, so that all gateways count together. Usage is written once a second; a failed write is repeated.
import { randomUUID } from 'node:crypto';
import { Problem } from '../base/problem.ts';
import type { Connection } from '../base/store-connection.ts';
import { AMOUNTS, type Amounts, dayOf, firstDay, NOTHING, sum, type UsageBook, type UsageRecord } from './usage.ts';

const FLUSH_MS = 1_000;
const RETRY_SECONDS = 2;
/** A month's records expire this long after its last write: later than the 31 days in which they are read. */
const MONTH_KEPT_S = 93 * 86_400;
const TOKENS_KEPT_S = 2 * 86_400;
/** Limit for records that wait for an unreachable store. Further ones are lost, which the log reports. */
const MAX_WAITING = 100_000;

/** Limit for the records of one command. */
const MAX_BATCH = 500;
/** The store knows a batch's id for this long, so that one that is sent again, because the reply was lost, is written once. */
const BATCH_KEPT_S = 3_600;
/**
 * KEYS: the batch, then for each record its month and its day's tokens. ARGV: the expiry times of these three, then for each record its
 * day, its model and its amounts.
 */
const WRITE = `
if not redis.call('SET', KEYS[1], '1', 'NX', 'EX', ARGV[1]) then return 0 end
local names = { ${AMOUNTS.map((name) => `'${name}'`).join(', ')} }
for record = 1, (#KEYS - 1) / 2 do
  local month, tokens = KEYS[2 * record], KEYS[2 * record + 1]
  local at = 3 + (record - 1) * (#names + 2)
  local day, model = ARGV[at + 1], ARGV[at + 2]
  for i, name in ipairs(names) do
    local amount = tonumber(ARGV[at + 2 + i])
    if amount > 0 then redis.call('HINCRBY', month, day .. ' ' .. name .. ' ' .. model, amount) end
  end
  redis.call('EXPIRE', month, ARGV[2])
  local used = tonumber(ARGV[at + 5]) + tonumber(ARGV[at + 6])
  if used > 0 then
    redis.call('INCRBY', tokens, used)
    redis.call('EXPIRE', tokens, ARGV[3])
  end
end
return 1`;

const monthKey = (key: string, month: string) => `countersign:usage:${key}:${month}`;
const tokensKey = (key: string, day: string) => `countersign:tokens:${key}:${day}`;

interface WaitingRecord {
  readonly key: string;
  readonly day: string;
  readonly model: string;
  amounts: Amounts;
}

/** Records that were sent, and not yet confirmed. */
interface Batch {
  readonly id: string;
  readonly records: readonly WaitingRecord[];
}

/** `onLost` is called when records are lost. */
export function createSharedBook(connection: Connection, onLost: () => void, now: () => number = Date.now): UsageBook {
  const waiting = new Map<string, WaitingRecord>();
  /** Each key's tokens of today as last read, for use while the store cannot be reached. */
  const lastRead = new Map<string, { readonly day: string; readonly tokens: number }>();
  let sent: Batch | null = null;
  let flushing: Promise<void> | null = null;
  const timer = setInterval(() => void flush(), FLUSH_MS).unref();

  function put(record: WaitingRecord): void {
    const id = `${record.key} ${record.day} ${record.model}`;
    const known = waiting.get(id);
    if (known !== undefined) known.amounts = sum(known.amounts, record.amounts);
    else if (waiting.size < MAX_WAITING) waiting.set(id, record);
    else onLost();
  }

  /** Writes the waiting records. A failure is not logged here, as the connection logs its state, and the next flush tries again. */
  function flush(): Promise<void> {
    flushing ??= write()
      .catch(() => {})
      .finally(() => {
        flushing = null;
      });
    return flushing;
  }

  async function write(): Promise<void> {
    while (sent !== null || waiting.size > 0) {
      sent ??= take();
      const { id, records } = sent;
      await connection.run((client) =>
        client.eval(WRITE, {
          keys: [
            `countersign:usage-batch:${id}`,
            ...records.flatMap(({ key, day }) => [monthKey(key, day.slice(0, 7)), tokensKey(key, day)]),
          ],
          arguments: [
            ...[BATCH_KEPT_S, MONTH_KEPT_S, TOKENS_KEPT_S].map(String),
            ...records.flatMap(({ day, model, amounts }) => [
              day,
              model,
              ...AMOUNTS.map((name) => String(amounts[name])),
            ]),
          ],
        }),
      );
      sent = null;
    }
  }

  function take(): Batch {
    const ids = [...waiting.keys()].slice(0, MAX_BATCH);
    const records = ids.map((id) => waiting.get(id) as WaitingRecord);
    for (const id of ids) waiting.delete(id);
    return { id: randomUUID(), records };
  }

  const unwritten = (key: string, day: string): number => {
    let tokens = 0;
    for (const one of [...(sent?.records ?? []), ...waiting.values()])
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
      const before = unwritten(key, day);
      try {
        const tokens = Number((await connection.run((client) => client.get(tokensKey(key, day)))) ?? 0);
        lastRead.set(key, { day, tokens });
        return tokens + before;
      } catch {
        const last = lastRead.get(key);
        return (last?.day === day ? last.tokens : 0) + unwritten(key, day);
      }
    },
    async close() {
      clearInterval(timer);
      await flush();
      if (sent !== null || waiting.size > 0) onLost();
    },
  };
}

/** Fields are `day name model`, with a name of {@link AMOUNTS}. */
function recordsOf(hashes: readonly Readonly<Record<string, string>>[], first: string): UsageRecord[] {
  const records = new Map<string, UsageRecord>();
  for (const [field, value] of hashes.flatMap((hash) => Object.entries(hash))) {
    const [day = '', name = '', ...words] = field.split(' ');
    const model = words.join(' ');
    if (day < first) continue;
    const id = `${day} ${model}`;
    const amounts = { ...(records.get(id)?.amounts ?? NOTHING), [name]: Math.round(Number(value)) };
    records.set(id, { day, model, amounts });
  }
  return [...records.values()].sort((a, b) => (a.day < b.day ? -1 : 1));
}
