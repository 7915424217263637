// OpenTelemetry's standard variables that the gateway supports. Without an endpoint there is no tracing.
import * as z from 'zod';
import { fraction, integer } from '../../node/settings.ts';

const url = z.url({ protocol: /^https?$/, error: 'must be an http or https URL such as http://127.0.0.1:4318' });

const SAMPLERS = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const;

export const otelShape = {
  OTEL_EXPORTER_OTLP_ENDPOINT: url.optional().describe('Turns tracing on: spans go to this collector, `/v1/traces`'),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: url.optional().describe('The whole URL for spans, in place of the one above'),
  OTEL_EXPORTER_OTLP_HEADERS: z
    .string()
    .max(8192)
    .optional()
    .describe('`name=value,…`, sent with every batch of spans'),
  OTEL_EXPORTER_OTLP_PROTOCOL: z
    .enum(['http/json', 'http/protobuf'], 'must be http/json or http/protobuf: spans are sent over HTTP')
    .default('http/json')
    .describe('Spans are JSON over HTTP in either case'),
  OTEL_SERVICE_NAME: z.string().min(1).max(128).default('countersign-gateway').describe('`service.name` of the spans'),
  OTEL_RESOURCE_ATTRIBUTES: z.string().max(8192).optional().describe('`name=value,…`, on every span'),
  OTEL_TRACES_SAMPLER: z
    .enum(SAMPLERS, `must be one of ${SAMPLERS.join(', ')}`)
    .default('parentbased_always_on')
    .describe('Which requests are traced'),
  OTEL_TRACES_SAMPLER_ARG: fraction(0, 1).prefault(1).describe('The traced part, for samplers with `ratio`'),
  OTEL_TRACES_EXPORTER: z.enum(['otlp', 'none'], 'must be otlp or none').default('otlp').describe('`none`: no tracing'),
  OTEL_SDK_DISABLED: z.enum(['true', 'false'], 'must be true or false').default('false').describe('`true`: no tracing'),
  OTEL_BSP_SCHEDULE_DELAY: integer(5_000, 1, 3_600_000).describe('ms between batches of spans'),
  OTEL_BSP_MAX_QUEUE_SIZE: integer(2048, 1, 1_000_000).describe('Spans that may wait'),
  OTEL_BSP_MAX_EXPORT_BATCH_SIZE: integer(512, 1, 100_000).describe('Spans in one batch'),
};

export interface TracingConfig {
  /** The whole URL. */
  readonly endpoint: string;
  readonly service_name: string;
  readonly sampler: (typeof SAMPLERS)[number];
  readonly sampler_ratio: number;
  readonly batch: { readonly delay_ms: number; readonly queue: number; readonly size: number };
}

type Parsed = z.infer<z.ZodObject<typeof otelShape>>;

/** Returns null when tracing is off. */
export function tracingOf(e: Parsed): TracingConfig | null {
  const base = e.OTEL_EXPORTER_OTLP_ENDPOINT?.replace(/\/+$/, '');
  const endpoint = e.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT ?? (base === undefined ? null : `${base}/v1/traces`);
  if (endpoint === null || e.OTEL_SDK_DISABLED === 'true' || e.OTEL_TRACES_EXPORTER === 'none') return null;
  return {
    endpoint,
    service_name: e.OTEL_SERVICE_NAME,
    sampler: e.OTEL_TRACES_SAMPLER,
    sampler_ratio: e.OTEL_TRACES_SAMPLER_ARG,
    batch: {
      delay_ms: e.OTEL_BSP_SCHEDULE_DELAY,
      queue: e.OTEL_BSP_MAX_QUEUE_SIZE,
      size: e.OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
    },
  };
}
