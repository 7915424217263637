// How an exchange ended, in the words that log, metrics and traces share. No content, no key, nothing a client can grow.
import { routePath } from 'hono/route';
import type { Context } from '../context.ts';
import { Problem } from '../problem.ts';
import type { Watch } from './watch.ts';

/** `left`: the client did not wait for it. */
export type TeeOutcome = 'none' | 'attested' | 'failed' | 'left';

export interface Ended {
  readonly id: string;
  readonly method: string;
  /** The route's pattern, never the path. */
  readonly route: string;
  /** 499: the client left. */
  readonly status: number;
  readonly tee: TeeOutcome;
  /** Of the error that was answered, in a running stream too; null where there was none, or it was the backend's own. */
  readonly code: string | null;
  readonly total_ms: number;
}

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);
export const CLIENT_LEFT = 499;

export function endedOf(c: Context, watch: Watch): Ended {
  const outcome = c.get('outcome');
  const status = outcome?.status ?? c.res.status;
  const method = c.env.incoming.method ?? '';
  return {
    id: c.get('id'),
    method: METHODS.has(method) ? method : '_OTHER',
    // The handler that was reached last: what served it, or refused it.
    route: routePath(c),
    status,
    tee: !watch.tee ? 'none' : outcome?.tee === 'attested' ? 'attested' : status === CLIENT_LEFT ? 'left' : 'failed',
    code: outcome === undefined ? codeOf(c.error) : (outcome.problem?.code ?? null),
    total_ms: performance.now() - watch.began_ms,
  };
}

function codeOf(error: Error | undefined): string | null {
  if (error === undefined) return null;
  return error instanceof Problem ? error.code : 'internal_error';
}
