// Gauges that are read when metrics are collected: the sidecar's state, the store, running requests, the backends, the process itself.
import { Counter, collectDefaultMetrics, Gauge, type Registry } from 'prom-client';
import { type SessionEnds, SIDECAR_STATES, type Sidecar, type Store } from './attestation/interfaces.ts';
import { type Backends, CANARY_CHECKS, CANARY_STATES, type Canary } from './backend/backend.ts';
import type { AuditLog, AuditState } from './usage/audit-log.ts';

/** Codes that a sidecar gives when it cannot attest. Any other code is counted as `other`. */
const UNAVAILABLE_CODES = ['collection_failed', 'appraisal_failed', 'cc_lost'];

/**
 * Interval of the timer that samples the event loop. The library's default of 10 ms took 0.8 % of a core in an idle gateway; this takes
 * 0.2.
 */
const LOOP_SAMPLE_MS = 100;

interface GaugeSources {
  readonly sidecar: Pick<Sidecar, 'state' | 'unavailable' | 'pending' | 'oldest_ms' | 'sessionEnds'>;
  readonly store: Pick<Store, 'usage' | 'reachable'>;
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
    'Answers that wait for their attestation, and requests that wait for a sidecar that is away. A router can score it.',
    () => sidecar.pending,
  );
  gauge(
    'countersign_signing_queue_age_seconds',
    'How long the oldest of them has waited; 0 where none waits.',
    () => sidecar.oldest_ms / 1000,
  );
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
  new Gauge({
    name: 'countersign_canary_failed',
    help: 'Whether this check of the canary failed: 1 or 0. check: sense, repeats, sampling, top_k.',
    labelNames: ['check'] as const,
    registers,
    collect() {
      for (const check of CANARY_CHECKS) this.set({ check }, canary.result.checks?.[check] === 'wrong' ? 1 : 0);
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
  registerAudit(registry, audit);
  registerSidecar(registry, sidecar);
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

function registerAudit(registry: Registry, audit: AuditLog | null): void {
  const gauge = (name: string, help: string, read: (state: AuditState) => number) =>
    new Gauge({
      name,
      help,
      registers: [registry],
      collect() {
        if (audit === null) this.remove();
        else this.set(read(audit.state()));
      },
    });
  gauge(
    'countersign_audit_lines',
    "The number of the audit log's last line. Lines cut off its end show here.",
    ({ lines }) => lines,
  );
  gauge('countersign_audit_failing', 'Whether the audit log cannot be written now: 1 or 0.', ({ failing }) =>
    Number(failing !== null),
  );
  gauge(
    'countersign_audit_lost',
    'Requests that the audit log has no line of, because the disk took nothing.',
    ({ lost }) => lost,
  );
}

function registerSidecar(registry: Registry, sidecar: GaugeSources['sidecar']): void {
  const registers = [registry];
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
}

/** Registers the metrics of the backends in BACKENDS_FILE. Without it there are none of these. */
export function registerBackends(
  registry: Registry,
  backends: Pick<Backends, 'states' | 'failures' | 'failovers'>,
): void {
  const registers = [registry];
  new Counter({
    name: 'countersign_backend_failovers_total',
    help: 'Requests sent on because a backend could not be reached. Only with BACKENDS_FILE.',
    registers,
    collect() {
      this.reset();
      this.inc(backends.failovers);
    },
  });
  new Counter({
    name: 'countersign_backend_failures_total',
    help: 'Requests that a backend failed, by reason.',
    labelNames: ['backend', 'reason'] as const,
    registers,
    collect() {
      this.reset();
      for (const [backend, reason, count] of backends.failures) this.inc({ backend, reason }, count);
    },
  });
  new Gauge({
    name: 'countersign_backend_up',
    help: 'Whether a backend (name or index) is up: 1 or 0.',
    labelNames: ['backend'] as const,
    registers,
    collect() {
      this.reset();
      for (const [backend, up] of backends.states) this.set({ backend }, up ? 1 : 0);
    },
  });
}
