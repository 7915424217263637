// Starts OpenTelemetry's SDK. The file is loaded only when tracing is on: nothing else in the gateway imports it statically.
import {
  type Context,
  DiagLogLevel,
  defaultTextMapSetter,
  diag,
  type Tracer as OtelTracer,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api';
import { getNumberFromEnv, getStringFromEnv, W3CTraceContextPropagator } from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { defaultResource, detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  type Sampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import type { Logger } from 'pino';
import type { Headers } from '../backend/backend.ts';
import { VERSION } from '../base/config.ts';
import type { Tokens } from '../usage/llm-tokens.ts';
import { CLIENT_LEFT, type ExchangeEnd, type ExchangeTrace, PROVIDER, type Tracer, type Watch } from './watch.ts';

// The spans of an exchange: the request, the backend's response, the attestation, and the sidecar's phases.

const w3c = new W3CTraceContextPropagator();
const getter = {
  get: (headers: Record<string, string | string[] | undefined>, name: string) => headers[name],
  keys: (headers: object) => Object.keys(headers),
};

function createTracer(tracer: OtelTracer, backend: URL | null, close: () => Promise<void>): Tracer {
  return {
    begin: (headers) => new Exchange(tracer, backend, w3c.extract(ROOT_CONTEXT, headers, getter)),
    close,
  };
}

class Exchange implements ExchangeTrace {
  readonly id: string;
  readonly #tracer: OtelTracer;
  readonly #backend: URL | null;
  readonly #request: Span;
  readonly #requestContext: Context;
  /** Difference between the wall clock and performance.now(). One value for the whole exchange keeps its spans consistent. */
  readonly #epoch_ms = Date.now() - performance.now();
  #backendSpan: Span | null = null;

  constructor(tracer: OtelTracer, backend: URL | null, parent: Context) {
    this.#tracer = tracer;
    this.#backend = backend;
    this.#request = this.#span('request', SpanKind.SERVER, parent, performance.now());
    this.#requestContext = trace.setSpan(parent, this.#request);
    this.id = this.#request.spanContext().traceId;
  }

  toBackend(headers: Headers): void {
    this.#backendSpan = this.#span('backend', SpanKind.CLIENT, this.#requestContext, performance.now());
    // The client's headers name its own span, so they are replaced. Baggage is passed through.
    delete headers.traceparent;
    delete headers.tracestate;
    w3c.inject(trace.setSpan(this.#requestContext, this.#backendSpan), headers, defaultTextMapSetter);
  }

  end(watch: Watch, ended: ExchangeEnd, tokens: Tokens | null): void {
    this.#endBackend(watch, ended, tokens);
    this.#attestation(watch);
    const span = this.#request.updateName(`${ended.method} ${ended.route}`);
    span.setAttributes({
      'http.request.method': ended.method,
      'http.route': ended.route,
      'http.response.status_code': ended.status,
      'countersign.request.id': ended.id,
      'countersign.tee': ended.tee,
    });
    if (ended.error !== '') span.setAttribute('error.type', ended.error);
    if (ended.status >= 500 || ended.tee === 'failed') span.setStatus({ code: SpanStatusCode.ERROR });
    span.end(this.#epoch_ms + watch.began_ms + ended.total_ms);
  }

  #endBackend(watch: Watch, ended: ExchangeEnd, tokens: Tokens | null): void {
    const span = this.#backendSpan;
    if (span === null || watch.sent_ms === 0) return;
    const backend = watch.backend?.url ?? this.#backend;
    if (backend !== null)
      span.setAttributes({
        'server.address': backend.hostname,
        'server.port': Number(backend.port) || (backend.protocol === 'https:' ? 443 : 80),
      });
    span.setAttribute('http.request.method', ended.method);
    if (watch.backend_status !== 0) span.setAttribute('http.response.status_code', watch.backend_status);
    if (watch.operation === null) span.updateName(ended.method);
    else {
      span.updateName(`${watch.operation} ${ended.model}`).setAttributes({
        'gen_ai.operation.name': watch.operation,
        'gen_ai.provider.name': PROVIDER,
        'gen_ai.request.model': ended.model,
        'gen_ai.request.stream': watch.stream,
      });
      if (tokens?.source === 'backend')
        span.setAttributes({ 'gen_ai.usage.input_tokens': tokens.input, 'gen_ai.usage.output_tokens': tokens.output });
      if (watch.stream && watch.chunks > 0) span.addEvent('first piece', undefined, this.#epoch_ms + watch.first_ms);
    }
    const failed = watch.backend_status >= 400 || ended.error.startsWith('backend_');
    if (failed) span.setAttribute('error.type', ended.error).setStatus({ code: SpanStatusCode.ERROR });
    else if (ended.status === CLIENT_LEFT) span.setAttribute('error.type', ended.error);
    span.end(this.#epoch_ms + (watch.last_ms === 0 ? watch.began_ms + ended.total_ms : watch.last_ms));
  }

  /** The sidecar sends no spans but the duration of each phase. The last phase ended when its response arrived. */
  #attestation({ attesting_ms, attested_ms, phases }: Watch): void {
    if (attesting_ms === 0) return;
    const span = this.#span('attest', SpanKind.CLIENT, this.#requestContext, attesting_ms);
    if (attested_ms === 0)
      return span.setStatus({ code: SpanStatusCode.ERROR }).end(this.#epoch_ms + performance.now());
    const context = trace.setSpan(this.#requestContext, span);
    const steps = Object.entries(phases ?? {}).map(([name, ms]) => [name.replace('_ms', ''), ms] as const);
    let at_ms = Math.max(attesting_ms, attested_ms - steps.reduce((sum, [, ms]) => sum + ms, 0));
    for (const [name, ms] of steps) {
      const step = this.#span(`sidecar ${name}`, SpanKind.INTERNAL, context, at_ms);
      at_ms = Math.min(attested_ms, at_ms + ms);
      step.end(this.#epoch_ms + at_ms);
    }
    span.end(this.#epoch_ms + attested_ms);
  }

  #span(name: string, kind: SpanKind, parent: Context, from_ms: number): Span {
    return this.#tracer.startSpan(name, { kind, startTime: this.#epoch_ms + from_ms }, parent);
  }
}

/** A collector that accepts no spans delays a shutdown by this much at most. */
const CLOSE_MS = 3_000;

/**
 * OpenTelemetry's variables say where spans go and which: the exporter and the resource read theirs, and what the SDK leaves to its caller
 * is read below. The collector's headers may hold a key, and only the exporter reads them.
 * @param backend_url null: there are several, and each exchange's watch has the one that was used.
 */
export function startTracing(backend_url: string | null, log: Logger): Tracer {
  const warn = (message: string) => log.warn({ reason: message.slice(0, 500) }, 'tracing');
  diag.setLogger({ error: warn, warn, info() {}, debug() {}, verbose() {} }, DiagLogLevel.WARN);
  const resource = defaultResource()
    .merge(resourceFromAttributes({ 'service.name': 'countersign-gateway', 'service.version': VERSION }))
    .merge(detectResources({ detectors: [envDetector] }));
  const provider = new TracerProvider({ resource, sampler: samplerFromEnv(), spanProcessors: [batchesFromEnv()] });
  const close = () =>
    Promise.race([provider.shutdown(), new Promise<void>((resolve) => setTimeout(resolve, CLOSE_MS).unref())]);
  return createTracer(
    provider.getTracer('countersign', VERSION),
    backend_url === null ? null : new URL(backend_url),
    close,
  );
}

function positiveFromEnv(name: string, fallback: number): number {
  const value = getNumberFromEnv(name) ?? fallback;
  if (Number.isFinite(value) && value > 0) return value;
  diag.warn(`${name} must be a number above 0: its default is used`);
  return fallback;
}

/** With the defaults of OpenTelemetry's specification. */
const batchesFromEnv = () =>
  new BatchSpanProcessor({
    exporter: new OTLPTraceExporter(),
    scheduledDelayMillis: positiveFromEnv('OTEL_BSP_SCHEDULE_DELAY', 5_000),
    exportTimeoutMillis: positiveFromEnv('OTEL_BSP_EXPORT_TIMEOUT', 30_000),
    maxQueueSize: positiveFromEnv('OTEL_BSP_MAX_QUEUE_SIZE', 2048),
    maxExportBatchSize: positiveFromEnv('OTEL_BSP_MAX_EXPORT_BATCH_SIZE', 512),
  });

function samplerFromEnv(): Sampler {
  const roots = new Map<string, Sampler>([
    ['always_on', new AlwaysOnSampler()],
    ['always_off', new AlwaysOffSampler()],
    ['traceidratio', new TraceIdRatioBasedSampler(getNumberFromEnv('OTEL_TRACES_SAMPLER_ARG') ?? 1)],
  ]);
  const name = getStringFromEnv('OTEL_TRACES_SAMPLER') ?? 'parentbased_always_on';
  const root = roots.get(name.replace(/^parentbased_/, ''));
  if (root !== undefined) return name.startsWith('parentbased_') ? new ParentBasedSampler({ root }) : root;
  diag.warn('OTEL_TRACES_SAMPLER names no sampler: parentbased_always_on is used');
  return new ParentBasedSampler({ root: new AlwaysOnSampler() });
}
