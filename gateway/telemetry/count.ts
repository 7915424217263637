// Turns the end of an exchange into numbers. What has labels is looked up once and kept: this runs for every request.
import type { Histogram } from 'prom-client';
import { CLIENT_LEFT, type Ended } from './ended.ts';
import type { Metrics } from './metrics.ts';
import type { ModelLabels } from './models.ts';
import type { Operation, Watch } from './watch.ts';

export type Count = (watch: Watch, ended: Ended) => void;

/** The semantic conventions ask for one. We speak for no provider of theirs. */
const PROVIDER = 'countersign';
/** A backend's statuses that are worth a line of their own; the others go by their hundred. */
const STATUSES = new Set([400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504]);

export function createCount(metrics: Metrics, models: ModelLabels): Count {
  const requests = kept((method: string, route: string, status: string, tee: string) =>
    metrics.requests.labels(method, route, status, tee),
  );
  const generations = kept((operation: string, model: string, error: string) =>
    metrics.generations.labels(operation, PROVIDER, model, error),
  );
  const firstToken = kept((operation: string, model: string) => metrics.firstToken.labels(operation, PROVIDER, model));
  const outputToken = kept((operation: string, model: string) =>
    metrics.outputToken.labels(operation, PROVIDER, model),
  );

  return (watch, ended) => {
    requests(ended.method, ended.route, String(ended.status), ended.tee).observe(ended.total_ms / 1000);
    const error = errorOf(watch, ended);
    if (error !== '') fail(error, ended);
    if (watch.operation !== null) generation(watch, watch.operation, ended, error);
    if (watch.attesting_ms !== 0) attestation(watch, ended);
  };

  function fail(error: string, { code }: Ended): void {
    if (code === null || code.startsWith('backend_')) metrics.backendErrors.inc({ code: error });
    else metrics.refusals.inc({ code: error });
  }

  function generation(watch: Watch, operation: Operation, ended: Ended, error: string): void {
    const model = models.of(watch.model, watch.backend_status >= 200 && watch.backend_status < 300);
    const error_type = ended.status === CLIENT_LEFT ? 'client_left' : error;
    generations(operation, model, error_type).observe(ended.total_ms / 1000);
    if (!watch.stream || watch.pieces === 0) return;
    firstToken(operation, model).observe((watch.first_ms - watch.began_ms) / 1000);
    if (watch.pieces === 1 || error_type !== '') return;
    outputToken(operation, model).observe((watch.last_ms - watch.first_ms) / 1000 / (watch.pieces - 1));
    metrics.gap.observe(watch.gap_ms / 1000);
  }

  function attestation(watch: Watch, ended: Ended): void {
    const until_ms = watch.attested_ms === 0 ? performance.now() : watch.attested_ms;
    const outcome = watch.attested_ms !== 0 ? 'attested' : ended.tee === 'left' ? 'left' : 'failed';
    metrics.attestations.observe({ outcome }, (until_ms - watch.attesting_ms) / 1000);
    if (watch.phases === null) return;
    const { queue_ms, collection_ms, appraisal_ms, check_ms } = watch.phases;
    metrics.phases.observe({ phase: 'queue' }, queue_ms / 1000);
    metrics.phases.observe({ phase: 'collection' }, collection_ms / 1000);
    metrics.phases.observe({ phase: 'appraisal' }, appraisal_ms / 1000);
    metrics.phases.observe({ phase: 'check' }, check_ms / 1000);
  }
}

/** '' where nothing went wrong. Our own code, or `http_429` for an error that the backend answered with. */
export function errorOf(watch: Watch, { code, status }: Ended): string {
  if (code !== null) return code;
  if (watch.backend_status < 400 || status === CLIENT_LEFT) return '';
  return STATUSES.has(status) ? `http_${status}` : `http_${Math.floor(status / 100)}xx`;
}

type Child = Pick<Histogram.Internal<string>, 'observe'>;

/** Label values come from closed sets (routes, statuses, codes) or from ModelLabels, so what is kept has a bound. */
function kept<Values extends string[]>(make: (...values: Values) => Child): (...values: Values) => Child {
  const children = new Map<string, Child>();
  return (...values) => {
    const name = values.join(' ');
    const known = children.get(name);
    if (known !== undefined) return known;
    const child = make(...values);
    children.set(name, child);
    return child;
  };
}
