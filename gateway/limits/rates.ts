// Rate limits: requests in windows of one second, counted in memory, or in a store that several gateways share.

import type { IncomingHttpHeaders } from 'node:http';
import { isIPv6, type Socket } from 'node:net';
import { type RateLimiterAbstract, RateLimiterMemory, RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible';
import type { Client, Connection } from '../base/store-connection.ts';

/** The state of a rate after one request. */
export interface Allowance {
  readonly allowed: boolean;
  readonly limit: number;
  readonly remaining: number;
  /** Time until the count starts again. */
  readonly reset_ms: number;
}

export interface Rates {
  /** Counts one request under `name`, which may have `per_second` of them. Names are the same in every store. */
  take(name: string, per_second: number): Promise<Allowance>;
}

type Limiter = Pick<RateLimiterAbstract, 'consume'>;

/** Makes the counter for all names that have the same limit: in memory or in Valkey. */
type MakeLimiter = (options: { points: number; duration: number; keyPrefix: string }) => Limiter;

export const inMemory: MakeLimiter = (options) => new RateLimiterMemory(options);

/** Makes a counter that all gateways share. While the server cannot be reached, each gateway counts by itself. */
export function inStore(connection: Pick<Connection, 'run'>): MakeLimiter {
  return (options) => {
    const alone = inMemory(options);
    /** The connection replaces a client whose server hangs. */
    const shared = new WeakMap<Client, Limiter>();
    const limiterOf = (storeClient: Client) => {
      // A key beyond its limit is rejected locally until the second is over, without asking the server.
      const more = { storeClient, useRedisPackage: true, inMemoryBlockOnConsumed: options.points };
      const limiter = shared.get(storeClient) ?? new RateLimiterRedis({ ...options, ...more });
      shared.set(storeClient, limiter);
      return limiter;
    };
    return {
      async consume(name) {
        try {
          return await connection.run((client) => limiterOf(client).consume(name));
        } catch (reason) {
          if (reason instanceof RateLimiterRes) throw reason;
          return alone.consume(name);
        }
      },
    };
  };
}

export function createRates(make: MakeLimiter): Rates {
  const limiters = new Map<number, Limiter>();
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
        throw refusal;
      }
    },
  };
}

function allowanceOf(result: RateLimiterRes, allowed: boolean, limit: number): Allowance {
  return { allowed, limit, remaining: Math.max(0, result.remainingPoints), reset_ms: Math.max(0, result.msBeforeNext) };
}

// The address of a client, in the form in which it is counted.

/** Some proxies write a port, and an IPv6 address in brackets. */
const WITH_PORT = /^(?:(\d+\.\d+\.\d+\.\d+)|\[([0-9a-fA-F:.]+)\])(?::\d+)?$/;

/**
 * Returns the connection's own address, or the last one in the header that a trusted proxy sets: the client may have written the ones
 * before. An IPv6 client has a whole /64 of addresses, so its network is counted.
 */
export function addressOf(headers: IncomingHttpHeaders, socket: Socket | null, header: string | null): string {
  const value = header === null ? undefined : headers[header];
  const last = (Array.isArray(value) ? value.join(',') : value)?.split(',').at(-1)?.trim().slice(0, 64);
  const given = last === undefined || last === '' ? (socket?.remoteAddress ?? 'unknown') : last;
  const address = given.replace(WITH_PORT, '$1$2');
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped !== undefined) return mapped;
  return isIPv6(address) ? network(address) : address;
}

/** The first four groups of an IPv6 address. */
function network(address: string): string {
  const [head = '', tail] = address.toLowerCase().split('::');
  const before = head === '' ? [] : head.split(':');
  const after = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = tail === undefined ? [] : Array<string>(Math.max(0, 8 - before.length - after.length)).fill('0');
  return `${[...before, ...zeros, ...after].slice(0, 4).join(':')}::/64`;
}
