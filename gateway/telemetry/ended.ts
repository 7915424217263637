// How an exchange ended, in the words that log, metrics and traces share. No content, no key, nothing a client can grow.
import type { Context } from '../context.ts';
import type { ModelLabels } from './models.ts';
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
  /** The code, or `http_429` for an error that the backend answered with; '' where nothing went wrong. */
  readonly error: string;
  /** Of a generation, from a bounded set (ModelLabels); '' of anything else. */
  readonly model: string;
  readonly total_ms: number;
}

/** The semantic conventions ask for one. We speak for no provider of theirs. */
export const PROVIDER = 'countersign';
/** A backend's statuses that are worth a name of their own; the others go by their hundred. */
const STATUSES = new Set([400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504]);

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);
export const CLIENT_LEFT = 499;

export function endedOf(c: Context, watch: Watch, route: string, response: Response, models: ModelLabels): Ended {
  const outcome = c.env.outcome;
  const status = outcome?.status ?? response.status;
  const method = c.env.incoming.method ?? '';
  const code = status === CLIENT_LEFT ? null : (outcome?.problem?.code ?? null);
  const served = watch.backend_status >= 200 && watch.backend_status < 300;
  return {
    id: c.env.id,
    method: METHODS.has(method) ? method : '_OTHER',
    route,
    status,
    tee: !watch.tee ? 'none' : outcome?.tee === 'attested' ? 'attested' : status === CLIENT_LEFT ? 'left' : 'failed',
    code,
    error: errorOf(watch, code, status),
    model: watch.operation === null ? '' : models.of(watch.model, served),
    total_ms: performance.now() - watch.began_ms,
  };
}

function errorOf(watch: Watch, code: string | null, status: number): string {
  if (code !== null) return code;
  if (watch.backend_status < 400 || status === CLIENT_LEFT) return '';
  return STATUSES.has(status) ? `http_${status}` : `http_${Math.floor(status / 100)}xx`;
}
