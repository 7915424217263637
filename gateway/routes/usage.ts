// GET /usage: the usage of the caller's API key, by day and model.
import type { Context, Deps } from '../http/context.ts';
import { Problem } from '../http/problem.ts';
import { ANYONE } from '../keys/keys.ts';
import { type Amounts, DAYS, dayOf, NOTHING, sum, type UsageRecord } from '../usage/usage.ts';

export function usage({ book, config }: Deps) {
  return async (c: Context): Promise<Response> => {
    const { caller } = c.env;
    if (caller === ANYONE)
      throw new Problem('invalid_request', 'Usage is kept of API keys, and this gateway has none (API_KEYS_FILE).');
    const records = [...(await book.records(caller.name))].sort(byDayAndModel);
    const today = records.filter(({ day }) => day === dayOf(Date.now())).map(({ amounts }) => amounts);
    const spent = today.reduce(sum, NOTHING);
    const limit = caller.limits.tokens_per_day ?? config.max_tokens_per_day_per_key;
    return c.json({
      key: caller.name,
      tokens_per_day: limit === 0 ? null : limit,
      tokens_today: spent.input_tokens + spent.output_tokens,
      days: DAYS,
      total: inSeconds(records.map(({ amounts }) => amounts).reduce(sum, NOTHING)),
      records: records.map(({ day, model, amounts }) => ({ day, model, ...inSeconds(amounts) })),
    });
  };
}

const inSeconds = ({ gpu_us, ...counts }: Amounts) => ({ ...counts, gpu_seconds: gpu_us / 1e6 });

function byDayAndModel(a: UsageRecord, b: UsageRecord): number {
  if (a.day !== b.day) return a.day < b.day ? -1 : 1;
  return a.model < b.model ? -1 : 1;
}
