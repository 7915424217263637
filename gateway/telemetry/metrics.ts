// The metrics, under OpenTelemetry's names where there are any (docs/metrics.md lists them all).

import { Counter, Histogram, type Registry } from 'prom-client';
import { STATUS } from '../base/problem.ts';

/** Buckets of the semantic conventions for generative AI (gen_ai.server.request.duration), and two more for long responses. */
const REQUEST_S = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 600];
const FIRST_TOKEN_S = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];
const OUTPUT_TOKEN_S = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5];
/** Buckets of the conventions for HTTP, and more for streams. */
const HTTP_S = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];
/** Of the conventions for gen_ai.client.token.usage. */
const TOKENS = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864];
const GAP_S = [0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const ATTESTATION_S = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 30, 60];

const BATCH_LEAVES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

const GEN_AI = ['gen_ai_operation_name', 'gen_ai_provider_name', 'gen_ai_request_model'] as const;

export type Metrics = ReturnType<typeof createMetrics>;

export function createMetrics(registry: Registry) {
  const metrics = { ...ofResponses([registry]), ...ofAttestations([registry]), ...counters([registry]) };
  startAtZero(metrics);
  return metrics;
}

/** Times of responses. */
const ofResponses = (registers: [Registry]) => ({
  requests: new Histogram({
    name: 'http_server_request_duration_seconds',
    help: 'From a request to the end of its answer. tee: none, attested, failed, or left where the client did not wait.',
    labelNames: ['http_request_method', 'http_route', 'http_response_status_code', 'tee'] as const,
    buckets: HTTP_S,
    registers,
  }),
  generations: new Histogram({
    name: 'gen_ai_server_request_duration_seconds',
    help: 'From a generation request to the end of its answer, attestation included. client_gone: the client left.',
    labelNames: [...GEN_AI, 'error_type'] as const,
    buckets: REQUEST_S,
    registers,
  }),
  firstToken: new Histogram({
    name: 'gen_ai_server_time_to_first_token_seconds',
    help: 'From a request to the first piece of its stream.',
    labelNames: GEN_AI,
    buckets: FIRST_TOKEN_S,
    registers,
  }),
  outputToken: new Histogram({
    name: 'gen_ai_server_time_per_output_token_seconds',
    help: "Mean time between a stream's pieces after the first, each of which is taken for a token.",
    labelNames: GEN_AI,
    buckets: OUTPUT_TOKEN_S,
    registers,
  }),
  tokenUsage: new Histogram({
    name: 'gen_ai_client_token_usage',
    help: "Tokens of a generation by the backend's count, where they are counted. gen_ai_token_type: input, output.",
    labelNames: [...GEN_AI, 'gen_ai_token_type'] as const,
    buckets: TOKENS,
    registers,
  }),
  gap: new Histogram({
    name: 'countersign_stream_longest_gap_seconds',
    help: "The longest wait for a stream's next piece, one observation a stream.",
    buckets: GAP_S,
    registers,
  }),
});

/** Times of attestations, and their GPU signatures. */
const ofAttestations = (registers: [Registry]) => ({
  attestations: new Histogram({
    name: 'countersign_attestation_duration_seconds',
    help: 'From the end of an answer to its attestation.',
    labelNames: ['outcome'] as const,
    buckets: ATTESTATION_S,
    registers,
  }),
  phases: new Histogram({
    name: 'countersign_attestation_phase_duration_seconds',
    help: "The sidecar's time by phase: queue, collection, appraisal, check.",
    labelNames: ['phase'] as const,
    buckets: ATTESTATION_S,
    registers,
  }),
  signatures: new Counter({
    name: 'countersign_signatures_total',
    help: 'GPU signatures. kind: strict for one answer each, batch where answers share one.',
    labelNames: ['kind'] as const,
    registers,
  }),
  batchLeaves: new Histogram({
    name: 'countersign_batch_leaves',
    help: 'Answers under one shared GPU signature.',
    buckets: BATCH_LEAVES,
    registers,
  }),
  batchWait: new Histogram({
    name: 'countersign_batch_wait_seconds',
    help: 'How long an answer of a batch waited in the sidecar for the GPU.',
    buckets: ATTESTATION_S,
    registers,
  }),
});

/** What is only counted. */
const counters = (registers: [Registry]) => ({
  sealedRequests: new Counter({
    name: 'countersign_sealed_requests_total',
    help: 'Requests that were sealed to an attested key and opened. Those that were refused are among countersign_refusals_total, by code.',
    registers,
  }),
  sidecarConnections: new Counter({
    name: 'countersign_sidecar_connections_total',
    help: 'Connections to the sidecar. Each after the first is a restart or a reconnect.',
    registers,
  }),
  sidecarRefusals: new Counter({
    name: 'countersign_sidecar_refusals_total',
    help: 'Sidecars that the gateway refused, by reason.',
    labelNames: ['code'] as const,
    registers,
  }),
  sidecarRetries: new Counter({
    name: 'countersign_attestation_retries_total',
    help: 'Attestations that the gateway asked for again.',
    registers,
  }),
  verifications: new Counter({
    name: 'countersign_verifications_total',
    help: 'Answers of the verify endpoint: valid, or the code of the first check that failed.',
    labelNames: ['code'] as const,
    registers,
  }),
  backendErrors: new Counter({
    name: 'countersign_backend_errors_total',
    help: 'Failures of the backend: our code, or http_ and its status.',
    labelNames: ['code'] as const,
    registers,
  }),
  refusals: new Counter({
    name: 'countersign_refusals_total',
    help: 'Errors that the gateway answered with itself, by code (docs/errors.md).',
    labelNames: ['code'] as const,
    registers,
  }),
});

/** Sets error counters to 0: an alert on the first error needs a value before it. */
function startAtZero({
  refusals,
  backendErrors,
  attestations,
}: Pick<Metrics, 'refusals' | 'backendErrors' | 'attestations'>) {
  for (const code of Object.keys(STATUS)) (code.startsWith('backend_') ? backendErrors : refusals).inc({ code }, 0);
  for (const outcome of ['attested', 'failed', 'left']) attestations.zero({ outcome });
}
