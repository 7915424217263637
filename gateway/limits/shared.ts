// Counts requests in Valkey or Redis, for all gateways together; while that is away, each gateway counts by itself.
import { RateLimiterRedis } from 'rate-limiter-flexible';
import type { Connection } from '../store/connection.ts';
import type { MakeLimiter } from './rates.ts';

/** `whileAway` counts for this gateway alone. */
export function inStore(connection: Connection, whileAway: MakeLimiter): MakeLimiter {
  // What the limiter uses of a client, over a connection that may be renewed under it.
  const client = {
    get isReady() {
      return connection.isReady;
    },
    eval: (script: string, options: { keys: string[]; arguments: string[] }) =>
      connection.run((current) => current.eval(script, options)),
  };
  return (options) =>
    new RateLimiterRedis({
      ...options,
      storeClient: client,
      useRedisPackage: true,
      rejectIfRedisNotReady: true,
      // Who is past the limit is refused here, without asking again, until the second is over.
      inMemoryBlockOnConsumed: options.points,
      insuranceLimiter: whileAway(options),
    });
}
