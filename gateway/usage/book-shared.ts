// Keeps usage in Valkey or Redis, so that all gateways count together. Usage is written once a second; a failed write is repeated. LLM
// tokens are reserved there at once.
import { randomUUID } from 'node:crypto';
import { Problem } from '../base/problem.ts';
import type { Connection } from '../base/store-connection.ts';
import { Reservations } from './budget.ts';
import {
  AMOUNTS,
  type Amounts,
  dayOf,
  firstDay,
  grant,
  NOTHING,
  type Reserved,
  sum,
  type UsageBook,
  type UsageRecord,
  type Wanted,
} from './usage.ts';

const FLUSH_MS = 1_000;
/** What a request with a reservation did cost is written soon, because other gateways count the reservation until then. */
const SETTLE_MS = 20;
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

/** A reservation of a gateway that has died expires after this time. */
const RESERVED_S = 900;
/**
 * KEYS: the day's tokens, and the key's reservations: `TOKENS EXPIRY` by the request's id. ARGV: now, the expiry, the id, the limit, the
 * least and the most tokens, the day's tokens as the gateway knows them, from which a store that has lost them learns them again, how long
 * they are kept, and the ids of reservations that have ended. Returns the tokens that were reserved, or -1; those that were used before; and those of them that are spent.
 */
const RESERVE = `
local now, limit, least, most = tonumber(ARGV[1]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
for i = 9, #ARGV do redis.call('HDEL', KEYS[2], ARGV[i]) end
local spent = tonumber(redis.call('GET', KEYS[1]) or '0')
if spent < tonumber(ARGV[7]) then
  spent = tonumber(ARGV[7])
  redis.call('SET', KEYS[1], ARGV[7], 'EX', ARGV[8])
end
local used = spent
local held = redis.call('HGETALL', KEYS[2])
for i = 1, #held, 2 do
  local tokens, expiry = string.match(held[i + 1], '^(%d+) (%d+)$')
  if tonumber(expiry) > now then used = used + tonumber(tokens) else redis.call('HDEL', KEYS[2], held[i]) end
end
if used >= limit or used + least > limit then return { -1, used, spent } end
local tokens = math.min(most, limit - used)
redis.call('HSET', KEYS[2], ARGV[3], string.format('%d %s', tokens, ARGV[2]))
redis.call('EXPIREAT', KEYS[2], ARGV[2])
return { tokens, used, spent }`;

/** The names of the store's keys. A cluster keeps those of one hash tag on one node, as a script that has several needs it. */
const namesOf = (prefix: 'countersign' | '{countersign}') => ({
  reserved: (key: string, day: string) => `${prefix}:reserved:${key}:${day}`,
  month: (key: string, month: string) => `${prefix}:usage:${key}:${month}`,
  tokens: (key: string, day: string) => `${prefix}:tokens:${key}:${day}`,
  batch: (id: string) => `${prefix}:usage-batch:${id}`,
});

interface WaitingRecord {
  readonly key: string;
  readonly day: string;
  readonly model: string;
  amounts: Amounts;
}

interface EndedReservation {
  readonly key: string;
  readonly day: string;
  readonly id: string;
}

/** Records and ends of reservations that were sent, and not yet confirmed. */
interface Batch {
  readonly id: string;
  readonly records: readonly WaitingRecord[];
  readonly ended: readonly EndedReservation[];
}

/** `admission`: the connection as requests wait for it. `onLost` is called when records are lost. */
export function createSharedBook(
  connection: Connection,
  admission: Pick<Connection, 'run'>,
  onLost: () => void,
  now: () => number = Date.now,
): UsageBook {
  return new SharedBook(connection, admission, onLost, now);
}

class SharedBook implements UsageBook {
  readonly #connection: Connection;
  readonly #names: ReturnType<typeof namesOf>;
  readonly #admission: Pick<Connection, 'run'>;
  readonly #onLost: () => void;
  readonly #now: () => number;
  readonly #reservations = new Reservations();
  readonly #waiting = new Map<string, WaitingRecord>();
  /** Each key's tokens of today as last read, for use while the store cannot be reached. */
  readonly #lastRead = new Map<string, { readonly day: string; readonly tokens: number }>();
  /** The day of each reservation that the store may have, by its request. */
  readonly #reservedOn = new Map<string, string>();
  #ended: EndedReservation[] = [];
  #sent: Batch | null = null;
  #flushing: Promise<void> | null = null;
  readonly #timer = setInterval(() => void this.#flush(), FLUSH_MS).unref();
  #settling: NodeJS.Timeout | null = null;

  constructor(connection: Connection, admission: Pick<Connection, 'run'>, onLost: () => void, now: () => number) {
    this.#connection = connection;
    this.#names = namesOf(connection.isCluster ? '{countersign}' : 'countersign');
    this.#admission = admission;
    this.#onLost = onLost;
    this.#now = now;
  }

  add(key: string, model: string, amounts: Amounts): void {
    this.#put({ key, day: dayOf(this.#now()), model, amounts });
  }

  #put(record: WaitingRecord): void {
    const id = `${record.key} ${record.day} ${record.model}`;
    const known = this.#waiting.get(id);
    if (known !== undefined) known.amounts = sum(known.amounts, record.amounts);
    else if (this.#waiting.size < MAX_WAITING) this.#waiting.set(id, record);
    else this.#onLost();
  }

  /** Writes the waiting records. A failure is not logged here, as the connection logs its state, and the next flush tries again. */
  #flush(): Promise<void> {
    this.#flushing ??= this.#write()
      .catch(() => {})
      .finally(() => {
        this.#flushing = null;
      });
    return this.#flushing;
  }

  async #write(): Promise<void> {
    while (this.#sent !== null || this.#waiting.size > 0 || this.#ended.length > 0) {
      this.#sent ??= this.#take();
      const { id, records, ended: over } = this.#sent;
      await this.#connection.run((client) =>
        client.eval(WRITE, {
          keys: [
            this.#names.batch(id),
            ...records.flatMap(({ key, day }) => [
              this.#names.month(key, day.slice(0, 7)),
              this.#names.tokens(key, day),
            ]),
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
      for (const { key, day, amounts } of records) this.#know(key, day, amounts.input_tokens + amounts.output_tokens);
      // After their tokens, so that these are never counted as neither.
      await this.#connection.run((client) =>
        Promise.all(over.map(({ key, day, id }) => client.hDel(this.#names.reserved(key, day), id))),
      );
      this.#sent = null;
    }
  }

  /** Counts tokens that were written among those that the store has. */
  #know(key: string, day: string, tokens: number): void {
    const known = this.#lastRead.get(key);
    if (known?.day === day) this.#lastRead.set(key, { day, tokens: known.tokens + tokens });
  }

  #knownToday(key: string, day: string): number {
    const known = this.#lastRead.get(key);
    return known?.day === day ? known.tokens : 0;
  }

  #take(): Batch {
    const ids = [...this.#waiting.keys()].slice(0, MAX_BATCH);
    const records = ids.map((id) => this.#waiting.get(id) as WaitingRecord);
    for (const id of ids) this.#waiting.delete(id);
    const over = this.#ended.slice(0, MAX_BATCH);
    this.#ended = this.#ended.slice(MAX_BATCH);
    return { id: randomUUID(), records, ended: over };
  }

  #unwritten(key: string, day: string): number {
    let tokens = 0;
    for (const one of [...(this.#sent?.records ?? []), ...this.#waiting.values()])
      if (one.key === key && one.day === day) tokens += one.amounts.input_tokens + one.amounts.output_tokens;
    return tokens;
  }

  async records(key: string): Promise<UsageRecord[]> {
    await this.#flush();
    const first = firstDay(this.#now());
    const months = [...new Set([first.slice(0, 7), dayOf(this.#now()).slice(0, 7)])];
    try {
      const hashes = await Promise.all(
        months.map((month) => this.#connection.run((client) => client.hGetAll(this.#names.month(key, month)))),
      );
      return recordsOf(hashes, first);
    } catch (cause) {
      throw new Problem('store_unavailable', 'The store that usage is kept in cannot be reached.', {
        cause,
        retryAfterSeconds: RETRY_SECONDS,
      });
    }
  }

  tokensToday(key: string): number {
    const day = dayOf(this.#now());
    return this.#knownToday(key, day) + this.#unwritten(key, day) + this.#reservations.of(key);
  }

  async reserve(key: string, id: string, wanted: Wanted): Promise<Reserved> {
    const day = dayOf(this.#now());
    const { limit, least, most } = wanted;
    const now_s = Math.floor(this.#now() / 1000);
    // What this gateway has not written yet is not in the store.
    const room = limit - this.#unwritten(key, day);
    const numbers = [room, least, most, this.#knownToday(key, day), TOKENS_KEPT_S].map(String);
    const over = this.#ended.filter((one) => one.key === key && one.day === day).slice(0, MAX_BATCH);
    this.#reservedOn.set(id, day);
    let reserved: Reserved;
    try {
      const [tokens = -1, used = 0, spent = 0] = (await this.#admission.run((client) =>
        client.eval(RESERVE, {
          keys: [this.#names.tokens(key, day), this.#names.reserved(key, day)],
          arguments: [String(now_s), String(now_s + RESERVED_S), id, ...numbers, ...over.map((one) => one.id)],
        }),
      )) as number[];
      this.#ended = this.#ended.filter((one) => !over.includes(one));
      this.#lastRead.set(key, { day, tokens: spent });
      reserved = { tokens: tokens < 0 ? null : tokens, used: used + limit - room };
    } catch {
      reserved = grant(wanted, this.tokensToday(key));
    }
    if (reserved.tokens === null) this.release(key, id);
    else this.#reservations.add(key, id, reserved.tokens);
    return reserved;
  }

  release(key: string, id: string): void {
    this.#reservations.delete(key, id);
    const day = this.#reservedOn.get(id);
    if (day === undefined) return;
    this.#reservedOn.delete(id);
    // One that is forgotten expires.
    if (this.#ended.length < MAX_WAITING) this.#ended.push({ key, day, id });
    this.#settling ??= setTimeout(() => {
      this.#settling = null;
      void this.#flush();
    }, SETTLE_MS).unref();
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    clearTimeout(this.#settling ?? undefined);
    await this.#flush();
    if ((this.#sent?.records.length ?? 0) > 0 || this.#waiting.size > 0) this.#onLost();
  }
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
