// The metrics, under OpenTelemetry's names where there are any (docs/metrics.md lists them all).

import { Counter, collectDefaultMetrics, Gauge, Histogram, type Registry } from 'prom-client';
import { type Backends, CANARY_STATES, type Canary } from '../backend/backend.ts';
import { STATUS } from '../base/problem.ts';
import type { AuditLog, AuditState } from '../usage/audit-log.ts';

/** Buckets of the semantic conventions for generative AI (gen_ai.server.request.duration), and two more for long responses. */
const REQUEST_S = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 600];
const FIRST_TOKEN_S = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];
const OUTPUT_TOKEN_S = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5];
/** Buckets of the conventions for HTTP, and more for streams. */
const HTTP_S = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];
const GAP_S = [0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const ATTESTATION_S = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 30, 60];

const BATCH_LEAVES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

const GEN_AI = ['gen_ai_operation_name', 'gen_ai_provider_name', 'gen_ai_request_model'] as const;

export type Metrics = ReturnType<typeof createMetrics>;

export function createMetrics(registry: Registry) {
  const registers = [registry];
  const metrics = {
    requests: new Histogram({
      name: 'http_server_request_duration_seconds',
      help: 'From a request to the end of its answer. tee: none, attested, failed, or left where the client did not wait.',
      labelNames: ['http_request_method', 'http_route', 'http_response_status_code', 'tee'] as const,
      buckets: HTTP_S,
      registers,
    }),
    generations: new Histogram({
      name: 'gen_ai_server_request_duration_seconds',
      help: 'From a generation request to the end of its answer, attestation included.',
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
    gap: new Histogram({
      name: 'countersign_stream_longest_gap_seconds',
      help: "The longest wait for a stream's next piece, one observation a stream.",
      buckets: GAP_S,
      registers,
    }),
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
  };
  startAtZero(metrics);
  return metrics;
}

/** Sets error counters to 0: an alert on the first error needs a value before it. */
function startAtZero({
  refusals,
  backendErrors,
  attestations,
}: Pick<Metrics, 'refusals' | 'backendErrors' | 'attestations'>) {
  for (const code of Object.keys(STATUS)) (code.startsWith('backend_') ? backendErrors : refusals).inc({ code }, 0);
  for (const outcome of ['attested', 'failed', 'left']) attestations.zero({ outcome });
}

// Gauges that are read when metrics are collected: the sidecar's state, the store, running requests, the process itself.

/** The states of the connection to the sidecar. */
export const SIDECAR_STATES = ['connecting', 'connected', 'refused', 'closed'] as const;
export type SidecarState = (typeof SIDECAR_STATES)[number];
/** Codes that a sidecar gives when it cannot attest. Any other code is counted as `other`. */
const UNAVAILABLE_CODES = ['collection_failed', 'appraisal_failed'];

/**
 * Interval of the timer that samples the event loop. The library's default of 10 ms took 0.8 % of a core in an idle gateway; this takes
 * 0.2.
 */
const LOOP_SAMPLE_MS = 100;

/** Unix times at which the processor's session and its collateral end, for the metrics. */
export interface SessionEnds {
  /** `SEV_SNP`, `TDX`, … */
  readonly type: string;
  readonly session_ms: number;
  /** The end of the first part of Intel's collateral; null without readable collateral. */
  readonly collateral_ms: number | null;
}

interface GaugeSources {
  readonly sidecar: {
    readonly state: SidecarState;
    readonly unavailable: { readonly code: string } | null;
    readonly pending: number;
    readonly oldest_ms: number;
    readonly sessionEnds: SessionEnds | null;
  };
  readonly store: {
    readonly usage: { readonly entries: number; readonly bytes: number };
    readonly reachable: boolean | null;
  };
  readonly audit: AuditLog | null;
  readonly canary: Pick<Canary, 'result'>;
  readonly version: string;
  readonly running: () => number;
}

export function registerGauges(
  registry: Registry,
  { sidecar, store, audit, canary, version, running }: GaugeSources,
): void {
  const registers = [registry];
  const gauge = (name: string, help: string, read: () => number) =>
    new Gauge({
      name,
      help,
      registers,
      collect() {
        this.set(read());
      },
    });
  gauge('http_server_active_requests', 'Requests that are being served.', running);
  gauge(
    'countersign_signing_queue_depth',
    'Answers that wait for their attestation. A router can score it.',
    () => sidecar.pending,
  );
  new Gauge({
    name: 'countersign_signing_queue_age_seconds',
    help: 'How long the oldest of them has waited; 0 where none waits.',
    registers,
    collect() {
      this.set(sidecar.oldest_ms / 1000);
    },
  });
  gauge('countersign_store_entries', 'Attestations that are kept for retrieval, pending ones included.', () => {
    return store.usage.entries;
  });
  gauge('countersign_store_bytes', 'Memory that kept attestations take, at most.', () => store.usage.bytes);
  new Gauge({
    name: 'countersign_canary',
    help: "Whether the backend's answers make sense: 1 for the state it is in.",
    labelNames: ['state'] as const,
    registers,
    collect() {
      for (const state of CANARY_STATES) this.set({ state }, canary.result.state === state ? 1 : 0);
    },
  });
  // Absent where gateways share no store.
  new Gauge({
    name: 'countersign_store_up',
    help: 'Whether the Valkey or Redis of ATTESTATION_STORE_URL answers: 1 or 0.',
    registers,
    collect() {
      if (store.reachable === null) this.remove();
      else this.set(Number(store.reachable));
    },
  });
  const ofAudit = (name: string, help: string, read: (state: AuditState) => number) =>
    new Gauge({
      name,
      help,
      registers,
      collect() {
        if (audit === null) this.remove();
        else this.set(read(audit.state()));
      },
    });
  ofAudit(
    'countersign_audit_lines',
    "The number of the audit log's last line. Lines cut off its end show here.",
    ({ lines }) => lines,
  );
  ofAudit('countersign_audit_failing', 'Whether the audit log cannot be written now: 1 or 0.', ({ failing }) =>
    Number(failing !== null),
  );
  ofAudit(
    'countersign_audit_lost',
    'Requests that the audit log has no line of, because the disk took nothing.',
    ({ lost }) => lost,
  );
  new Gauge({
    name: 'countersign_sidecar_state',
    help: 'The connection to the sidecar: 1 for the state it is in.',
    labelNames: ['state'] as const,
    registers,
    collect() {
      for (const state of SIDECAR_STATES) this.set({ state }, sidecar.state === state ? 1 : 0);
    },
  });
  new Gauge({
    name: 'countersign_sidecar_trouble',
    help: 'Why the connected sidecar cannot attest: 1 for the code it gives.',
    labelNames: ['code'] as const,
    registers,
    collect() {
      const code = sidecar.unavailable?.code ?? null;
      for (const known of UNAVAILABLE_CODES) this.set({ code: known }, code === known ? 1 : 0);
      this.set({ code: 'other' }, code !== null && !UNAVAILABLE_CODES.includes(code) ? 1 : 0);
    },
  });
  // Absent where no processor signs.
  const end = (name: string, help: string, read: (ends: SessionEnds) => number | null) =>
    new Gauge({
      name,
      help,
      labelNames: ['type'] as const,
      registers,
      collect() {
        this.reset();
        const ends = sidecar.sessionEnds;
        const end_ms = ends === null ? null : read(ends);
        if (ends !== null && end_ms !== null) this.set({ type: ends.type }, end_ms / 1000);
      },
    });
  end(
    'countersign_session_end_timestamp_seconds',
    "Unix time at which the processor's session ends. A new one is made at half of its hour. type: SEV_SNP, TDX.",
    (ends) => ends.session_ms,
  );
  end(
    'countersign_collateral_end_timestamp_seconds',
    "Unix time at which Intel's collateral ends. It is fetched daily and holds for 30 days.",
    (ends) => ends.collateral_ms,
  );
  new Gauge({
    name: 'countersign_build_info',
    help: 'Always 1; the label is what runs.',
    labelNames: ['version'] as const,
    registers,
  }).set({ version }, 1);
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: LOOP_SAMPLE_MS });
  // These gauges have a counter's name, which promtool rejects. `nodejs_active_resources` has the same numbers by type.
  for (const kind of ['handles', 'requests', 'resources']) registry.removeSingleMetric(`nodejs_active_${kind}_total`);
}

/** Registers the metrics of the backends in BACKENDS_FILE. Without it there are none of these. */
export function registerBackends(registry: Registry, backends: Pick<Backends, 'states' | 'failovers'>): void {
  const registers = [registry];
  new Counter({
    name: 'countersign_backend_failovers_total',
    help: 'Requests sent on because a backend could not be connected to. Only with BACKENDS_FILE.',
    registers,
    collect() {
      this.reset();
      this.inc(backends.failovers);
    },
  });
  new Gauge({
    name: 'countersign_backend_up',
    help: 'Whether a backend, by name or place from 0, is up: 1 or 0. Only with BACKENDS_FILE.',
    labelNames: ['backend'] as const,
    registers,
    collect() {
      this.reset();
      for (const [backend, up] of backends.states) this.set({ backend }, up ? 1 : 0);
    },
  });
}
