// Starts OpenTelemetry's SDK. Loaded only where tracing is on: nothing else in the gateway imports this file.
import { DiagLogLevel, diag } from '@opentelemetry/api';
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
import { VERSION } from '../version.ts';
import type { TracingConfig } from './otel.ts';
import { createTracer } from './spans.ts';
import type { Tracer } from './trace.ts';

/** A collector that does not take its spans holds up a stop for no longer. */
const CLOSE_MS = 3_000;

export interface TracingOptions extends TracingConfig {
  readonly backend_url: string;
}

export function startTracing(options: TracingOptions, log: Logger): Tracer {
  const { endpoint, service_name, batch } = options;
  const warn = (message: string) => log.warn({ reason: message.slice(0, 500) }, 'tracing');
  diag.setLogger({ error: warn, warn, info() {}, debug() {}, verbose() {} }, DiagLogLevel.WARN);
  const resource = defaultResource()
    .merge(resourceFromAttributes({ 'service.name': service_name, 'service.version': VERSION }))
    .merge(detectResources({ detectors: [envDetector] }));
  const processor = new BatchSpanProcessor({
    // It reads the collector's headers from the environment: they may hold a key, and go nowhere else.
    exporter: new OTLPTraceExporter({ url: endpoint }),
    ...(batch.delay_ms === null ? {} : { scheduledDelayMillis: batch.delay_ms }),
    ...(batch.queue === null ? {} : { maxQueueSize: batch.queue }),
    ...(batch.size === null ? {} : { maxExportBatchSize: batch.size }),
  });
  const provider = new TracerProvider({ resource, sampler: samplerOf(options), spanProcessors: [processor] });
  return createTracer(provider.getTracer('countersign', VERSION), new URL(options.backend_url), () =>
    Promise.race([provider.shutdown(), new Promise<void>((resolve) => setTimeout(resolve, CLOSE_MS).unref())]),
  );
}

function samplerOf({ sampler, sampler_ratio }: TracingConfig): Sampler {
  const root = sampler.endsWith('off')
    ? new AlwaysOffSampler()
    : sampler.endsWith('ratio')
      ? new TraceIdRatioBasedSampler(sampler_ratio)
      : new AlwaysOnSampler();
  return sampler.startsWith('parentbased') ? new ParentBasedSampler({ root }) : root;
}
