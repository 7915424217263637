// How often somebody may ask: requests in any one second, counted here or, for several gateways, in a shared place.

import { type RateLimiterAbstract, RateLimiterMemory, RateLimiterRes } from 'rate-limiter-flexible';
import { Problem } from '../problem.ts';

/** How a request stands to its rate. */
export interface Allowance {
  readonly allowed: boolean;
  readonly limit: number;
  readonly remaining: number;
  /** Until the count begins anew. */
  readonly reset_ms: number;
}

export interface Rates {
  /**
   * Counts one request of `name`, of which there may be `per_second`. Names are the same wherever they are counted.
   * @throws {Problem} overloaded where whoever counts does not answer.
   */
  take(name: string, per_second: number): Promise<Allowance>;
}

/** Makes the counter for everybody who has the same limit: in memory, in Valkey, or in a cluster's primary process. */
export type MakeLimiter = (options: { points: number; duration: number; keyPrefix: string }) => RateLimiterAbstract;

export const inMemory: MakeLimiter = (options) => new RateLimiterMemory(options);

export function createRates(make: MakeLimiter): Rates {
  const limiters = new Map<number, RateLimiterAbstract>();
  return {
    async take(name, per_second) {
      let limiter = limiters.get(per_second);
      if (limiter === undefined) {
        limiter = make({ points: per_second, duration: 1, keyPrefix: `countersign:rate:${per_second}` });
        limiters.set(per_second, limiter);
      }
      try {
        return allowanceOf(await limiter.consume(name), true, per_second);
      } catch (refusal) {
        if (refusal instanceof RateLimiterRes) return allowanceOf(refusal, false, per_second);
        throw new Problem('overloaded', 'Requests cannot be counted now.', { cause: refusal, retryAfterSeconds: 1 });
      }
    },
  };
}

function allowanceOf(result: RateLimiterRes, allowed: boolean, limit: number): Allowance {
  return { allowed, limit, remaining: Math.max(0, result.remainingPoints), reset_ms: Math.max(0, result.msBeforeNext) };
}
