// Telemetry of an exchange: one log line at its end, its metrics, and its spans when tracing is on.

import type { IncomingHttpHeaders } from 'node:http';
import type { Logger } from 'pino';
import { Registry } from 'prom-client';
import { METHODS, withoutQuery } from '../base/target.ts';
import { ANYONE, type Caller } from '../keys/keys.ts';
import { type Accounted, createAccounting } from '../usage/accounting.ts';
import type { AuditLog } from '../usage/audit-log.ts';
import type { Tokens } from '../usage/llm-tokens.ts';
import type { UsageBook } from '../usage/usage.ts';
import { createMetrics, type Metrics } from './metrics.ts';
import { CLIENT_LEFT, type ExchangeEnd, type Operation, type Outcome, PROVIDER, type Tracer, Watch } from './watch.ts';

// Builds the end of an exchange from its outcome.

/** Backend statuses that are reported exactly. The others are reported by class: `http_4xx`. */
const STATUSES = new Set([400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504]);

function exchangeEndOf(
  exchange: EndedExchange,
  watch: Watch,
  route: string,
  response: Response,
  models: ModelLabels,
): ExchangeEnd {
  const { outcome } = exchange;
  const status = outcome?.status ?? response.status;
  const method = exchange.incoming.method ?? '';
  const code = status === CLIENT_LEFT ? 'client_gone' : (outcome?.problem?.code ?? null);
  return {
    id: exchange.id,
    method: METHODS.has(method) ? method : '_OTHER',
    route,
    status,
    tee: !watch.tee ? 'none' : outcome?.tee === 'attested' ? 'attested' : status === CLIENT_LEFT ? 'left' : 'failed',
    code,
    error: errorOf(watch, code, status),
    model: watch.operation === null ? '' : models.of(watch.model),
    total_ms: performance.now() - watch.began_ms,
  };
}

function errorOf(watch: Watch, code: string | null, status: number): string {
  if (code !== null) return code;
  if (watch.backend_status < 400) return '';
  return STATUSES.has(status) ? `http_${status}` : `http_${Math.floor(status / 100)}xx`;
}

// Model names as labels: the first few of the backend's list that are used, and "other" for any other text.

/** A label's values live as long as the process, so their number is limited. */
export const MAX_MODEL_LABELS = 64;
const OTHER_MODEL = 'other';

interface ModelLabels {
  of(model: string | null): string;
}

function createModelLabels(isListed: IsListed): ModelLabels {
  const labels = new Set<string>();
  return {
    of(model) {
      if (model === null) return OTHER_MODEL;
      if (labels.has(model)) return model;
      if (labels.size >= MAX_MODEL_LABELS || !isListed(model)) return OTHER_MODEL;
      labels.add(model);
      return model;
    },
  };
}

// Updates the metrics at the end of an exchange. Label values come from closed sets (routes, statuses, codes) or from ModelLabels.

type Count = (watch: Watch, ended: ExchangeEnd, tokens: Tokens | null) => void;

function createCount(metrics: Metrics): Count {
  return (watch, ended, tokens) => {
    const labels = {
      http_request_method: ended.method,
      http_route: ended.route,
      http_response_status_code: ended.status,
      tee: ended.tee,
    };
    metrics.requests.observe(labels, ended.total_ms / 1000);
    if (ended.error !== '' && ended.status !== CLIENT_LEFT) fail(ended);
    if (watch.operation !== null) generation(watch, watch.operation, ended, tokens);
    if (watch.attesting_ms !== 0) attestation(watch, ended);
  };

  function fail({ code, error }: ExchangeEnd): void {
    if (code === null || code.startsWith('backend_')) metrics.backendErrors.inc({ code: error });
    else metrics.refusals.inc({ code: error });
  }

  function generation(watch: Watch, operation: Operation, ended: ExchangeEnd, tokens: Tokens | null): void {
    const { model, error: error_type } = ended;
    const labels = {
      gen_ai_operation_name: operation,
      gen_ai_provider_name: PROVIDER,
      gen_ai_request_model: model,
    };
    metrics.generations.observe({ ...labels, error_type }, ended.total_ms / 1000);
    if (tokens?.source === 'backend') {
      metrics.tokenUsage.observe({ ...labels, gen_ai_token_type: 'input' }, tokens.input);
      metrics.tokenUsage.observe({ ...labels, gen_ai_token_type: 'output' }, tokens.output);
    }
    if (!watch.stream || watch.chunks === 0) return;
    metrics.firstToken.observe(labels, (watch.first_ms - watch.began_ms) / 1000);
    if (watch.chunks === 1 || error_type !== '') return;
    metrics.outputToken.observe(labels, (watch.last_ms - watch.first_ms) / 1000 / (watch.chunks - 1));
    metrics.gap.observe(watch.gap_ms / 1000);
  }

  function attestation(watch: Watch, ended: ExchangeEnd): void {
    const until_ms = watch.attested_ms === 0 ? performance.now() : watch.attested_ms;
    const outcome = watch.attested_ms !== 0 ? 'attested' : ended.tee === 'left' ? 'left' : 'failed';
    metrics.attestations.observe({ outcome }, (until_ms - watch.attesting_ms) / 1000);
    if (watch.phases === null) return;
    const { queue_ms, collection_ms, appraisal_ms, check_ms } = watch.phases;
    metrics.phases.observe({ phase: 'queue' }, queue_ms / 1000);
    metrics.phases.observe({ phase: 'collection' }, collection_ms / 1000);
    metrics.phases.observe({ phase: 'appraisal' }, appraisal_ms / 1000);
    metrics.phases.observe({ phase: 'check' }, check_ms / 1000);
    if (watch.tree_size !== null) metrics.batchWait.observe(queue_ms / 1000);
  }
}

type RequestLine = (watch: Watch, ended: ExchangeEnd, key: string | undefined, tokens: Tokens | null) => void;

/** Routes that probes and scrapers ask all the time: their lines are for the level `debug`. */
const PROBED = new Set(['/health', '/metrics', '/metrics/picker']);

/** Writes the log line of an exchange. Milliseconds have one decimal. `first_ms` is the time to the backend's first byte. */
function createRequestLine(log: Logger): RequestLine {
  return (watch, { id, method, route, status, tee, code, model, total_ms }, key, tokens) => {
    const line: Record<string, unknown> = { id, method, route, status, ms: round(total_ms) };
    if (watch.first_ms !== 0) line.first_ms = round(watch.first_ms - watch.began_ms);
    if (watch.attested_ms !== 0) line.attest_ms = round(watch.attested_ms - watch.attesting_ms);
    if (tee !== 'none') line.tee = tee;
    if (watch.signed !== null) line.nonce = watch.signed.nonce;
    if (code !== null) line.code = code;
    if (key !== undefined) line.key = key;
    if (model !== '') line.model = model;
    if (tokens !== null && tokens.source !== 'unknown') {
      line.input_tokens = tokens.input;
      line.output_tokens = tokens.output;
    }
    if (watch.backend !== null) line.backend = watch.backend.name;
    if (watch.trace !== null) line.trace_id = watch.trace.id;
    log[PROBED.has(route) ? 'debug' : 'info'](line);
  };
}

const round = (ms: number) => Math.round(ms * 10) / 10;

/** The bindings of an exchange that telemetry reads. Routes without admission have no `caller`, routes without a backend no `outcome`. */
interface EndedExchange {
  readonly id: string;
  readonly incoming: { readonly method?: string | undefined; readonly url?: string | undefined };
  readonly outcome: Outcome | undefined;
  readonly caller: Caller | undefined;
}

export interface Telemetry {
  readonly registry: Registry;
  readonly metrics: Metrics;
  /** Number of requests that are being served. */
  readonly running: number;
  /** Usage is counted, an audit log is kept, or spans are made. */
  readonly counts: boolean;
  begin(headers: IncomingHttpHeaders): Watch;
  /** `route` is the route's pattern. */
  end(exchange: EndedExchange, watch: Watch, route: string, response: Response): void;
  /** `valid`, or the code of the check that failed. */
  verified(outcome: string): void;
  /** Counts a checked GPU signature, which covers one response (`strict`) or those of a batch. */
  signed(responses: number, kind: 'strict' | 'batch'): void;
  close(): Promise<void>;
}

/** Whether the backend lists a model of this name. */
type IsListed = (model: string) => boolean;

/** Records of requests other than metrics and log. */
interface Records {
  /** null: there are no API keys. */
  readonly book: UsageBook | null;
  /** null: there is no audit log. */
  readonly audit: AuditLog | null;
  /** The largest answer whose LLM tokens are read. */
  readonly max_answer_bytes: number;
}

const NO_RECORDS: Records = { book: null, audit: null, max_answer_bytes: 0 };

export function createTelemetry(
  log: Logger,
  tracer: Tracer | null,
  records: Records = NO_RECORDS,
  isListed: IsListed = () => false,
): Telemetry {
  const { book, audit, max_answer_bytes } = records;
  const registry = new Registry();
  const metrics = createMetrics(registry);
  const accounting = createAccounting(registry, book, audit);
  const count = createCount(metrics);
  const models = createModelLabels(isListed);
  const line = createRequestLine(log);
  // Spans have the tokens too.
  const counts = accounting.counts || tracer !== null;
  let running = 0;
  return {
    registry,
    metrics,
    counts,
    get running() {
      return running;
    },
    begin(headers) {
      running++;
      return new Watch(tracer === null ? null : tracer.begin(headers), counts ? max_answer_bytes : null);
    },
    end(exchange, watch, route, response) {
      running--;
      const ended = exchangeEndOf(exchange, watch, route, response, models);
      const tokens = watch.sent_ms === 0 ? null : watch.tokens(ended.status === CLIENT_LEFT);
      count(watch, ended, tokens);
      line(watch, ended, keyOf(exchange), tokens);
      if (tokens !== null && accounting.counts) accounting.record(accountedOf(exchange, watch, ended, tokens, models));
      watch.release();
      watch.trace?.end(watch, ended, tokens);
    },
    signed(responses, kind) {
      metrics.signatures.inc({ kind });
      if (kind === 'batch') metrics.batchLeaves.observe(responses);
    },
    verified: (code) => metrics.verifications.inc({ code }),
    close: async () => tracer?.close(),
  };
}

/** Limit for a client's text in a record. */
const MAX_NAME = 128;

function accountedOf(
  { caller = ANYONE, incoming }: EndedExchange,
  watch: Watch,
  { id, method, route, status }: ExchangeEnd,
  tokens: Tokens,
  models: ModelLabels,
): Accounted {
  return {
    id,
    caller,
    method,
    // A path that the backend does not serve may be any text.
    endpoint: watch.served ? withoutQuery(incoming.url ?? '').slice(0, MAX_NAME) || route : route,
    model: models.of(watch.model),
    status,
    tokens,
    gpu_ms: watch.phases === null ? 0 : watch.phases.collection_ms / (watch.tree_size ?? 1),
    signed: watch.signed,
  };
}

/** The name of the caller's key, never the key itself. */
function keyOf({ caller }: EndedExchange): string | undefined {
  return caller === undefined || caller === ANYONE ? undefined : caller.name;
}
