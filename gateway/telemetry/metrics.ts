// What is counted and timed, by OpenTelemetry's names where it has one (docs/metrics.md lists them all).
import { Counter, type Registry } from 'prom-client';
import type { FailureCode as VerifyCode } from '../../verify/index.ts';
import { STATUS } from '../problem.ts';
import { Histogram } from './histogram.ts';

/** Of the semantic conventions for generative AI, for gen_ai.server.request.duration; two more for long answers. */
const REQUEST_S = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 600];
const FIRST_TOKEN_S = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];
const OUTPUT_TOKEN_S = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5];
/** Of the conventions for HTTP, and more for streams. */
const HTTP_S = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];
const GAP_S = [0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const ATTESTATION_S = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 30, 60];

/** Why a sidecar may be refused: gateway/sidecar/client.ts, and the codes of verify/report-check.ts. */
const REFUSALS = [
  ...['simulated', 'socket_owner', 'socket_mode', 'socket_kind'],
  ...['token_malformed', 'token_nonce_mismatch', 'token_result_false', 'evidence_missing', 'evidence_malformed'],
  ...['report_malformed', 'report_nonce_mismatch', 'report_signature_invalid'],
  ...['untrusted_root', 'chain_invalid', 'certificate_expired'],
];

const GEN_AI = ['gen_ai_operation_name', 'gen_ai_provider_name', 'gen_ai_request_model'] as const;

export type Metrics = ReturnType<typeof createMetrics>;

export function createMetrics(registry: Registry) {
  const registers = [registry];
  const metrics = {
    requests: new Histogram(registry, {
      name: 'http_server_request_duration_seconds',
      help: 'From a request to the end of its answer. tee: none, attested, failed, or left when the client did not wait.',
      labels: ['http_request_method', 'http_route', 'http_response_status_code', 'tee'],
      buckets: HTTP_S,
    }),
    generations: new Histogram(registry, {
      name: 'gen_ai_server_request_duration_seconds',
      help: 'From a generation request to the end of its answer, attestation included.',
      labels: [...GEN_AI, 'error_type'],
      buckets: REQUEST_S,
    }),
    firstToken: new Histogram(registry, {
      name: 'gen_ai_server_time_to_first_token_seconds',
      help: 'From a request to the first piece of its stream.',
      labels: GEN_AI,
      buckets: FIRST_TOKEN_S,
    }),
    outputToken: new Histogram(registry, {
      name: 'gen_ai_server_time_per_output_token_seconds',
      help: "Mean time between a stream's pieces after the first. Backends write one token a piece, and answers are not parsed to count them.",
      labels: GEN_AI,
      buckets: OUTPUT_TOKEN_S,
    }),
    gap: new Histogram(registry, {
      name: 'countersign_stream_longest_gap_seconds',
      help: "The longest wait for a stream's next piece, one observation a stream.",
      labels: [],
      buckets: GAP_S,
    }),
    attestations: new Histogram(registry, {
      name: 'countersign_attestation_duration_seconds',
      help: 'From the end of an answer to its attestation, the way to the sidecar and its restarts included.',
      labels: ['outcome'],
      buckets: ATTESTATION_S,
    }),
    phases: new Histogram(registry, {
      name: 'countersign_attestation_phase_duration_seconds',
      help: 'What the sidecar spent its time on: queue, collection, appraisal, check (its own look at the result).',
      labels: ['phase'],
      buckets: ATTESTATION_S,
    }),
    sidecarConnections: new Counter({
      name: 'countersign_sidecar_connections_total',
      help: 'Sidecars that said hello and were accepted, by each worker for itself; each after its first is a restart or a reconnect.',
      registers,
    }),
    sidecarRefusals: new Counter({
      name: 'countersign_sidecar_refusals_total',
      help: 'Sidecars that were refused: for whose socket it is, for being simulated, or by the code of the check that an answer of theirs failed.',
      labelNames: ['code'] as const,
      registers,
    }),
    sidecarRetries: new Counter({
      name: 'countersign_attestation_retries_total',
      help: 'Attestations that were asked for again: after a restart of the sidecar, or because it said so.',
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
      help: "Failures of the backend: our code for how it failed, or http_ and its own error's status.",
      labelNames: ['code'] as const,
      registers,
    }),
    refusals: new Counter({
      name: 'countersign_refusals_total',
      help: 'Errors that the gateway answered with itself, by code (docs/errors.md).',
      labelNames: ['code'] as const,
      registers,
    }),
  };
  startAtZero(metrics);
  return metrics;
}

/** An alert on the first error needs the zero before it. */
function startAtZero({
  refusals,
  sidecarRefusals,
  backendErrors,
  attestations,
}: Pick<Metrics, 'refusals' | 'sidecarRefusals' | 'backendErrors' | 'attestations'>) {
  for (const code of Object.keys(STATUS)) (code.startsWith('backend_') ? backendErrors : refusals).inc({ code }, 0);
  for (const code of REFUSALS) sidecarRefusals.inc({ code }, 0);
  for (const outcome of ['attested', 'failed', 'left']) attestations.of(outcome);
}

export type VerifyOutcome = 'valid' | VerifyCode;
