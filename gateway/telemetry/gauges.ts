// What is looked up when somebody asks: the sidecar's state, what is kept, what is running, the process itself.
import { collectDefaultMetrics, Gauge, type Registry } from 'prom-client';
import type { Sidecar, SidecarState } from '../sidecar/client.ts';
import type { Store } from '../store/store.ts';

const STATES: readonly SidecarState[] = ['connecting', 'connected', 'refused', 'closed'];
/** The codes that a sidecar gives its trouble; another one is counted as `other`. */
const TROUBLES = ['collection_failed', 'appraisal_failed'];

/** The event loop is looked at by a timer. Every 10 ms, as the library would, it took 0.8 % of a core of a gateway that had nothing to do; so 0.2. */
const LOOP_LOOK_MS = 100;

export interface GaugeSources {
  readonly sidecar: Sidecar;
  readonly store: Store;
  readonly version: string;
  readonly running: () => number;
}

export function registerGauges(registry: Registry, { sidecar, store, version, running }: GaugeSources): void {
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
  gauge('countersign_attestations_pending', 'Answers that wait for their attestation.', () => sidecar.pending);
  gauge('countersign_store_entries', 'Attestations that are kept for retrieval, pending ones included.', () => {
    return store.usage.entries;
  });
  gauge('countersign_store_bytes', 'Memory that kept attestations take, at most.', () => store.usage.bytes);
  new Gauge({
    name: 'countersign_sidecar_state',
    help: 'The connection to the sidecar: 1 for the state it is in, or how many workers are.',
    labelNames: ['state'] as const,
    registers,
    collect() {
      for (const state of STATES) this.set({ state }, sidecar.state === state ? 1 : 0);
    },
  });
  new Gauge({
    name: 'countersign_sidecar_trouble',
    help: 'Why the connected sidecar cannot attest: 1 for the code it gives.',
    labelNames: ['code'] as const,
    registers,
    // Of several workers one is enough.
    aggregator: 'max',
    collect() {
      const code = sidecar.trouble?.code ?? null;
      for (const known of TROUBLES) this.set({ code: known }, code === known ? 1 : 0);
      this.set({ code: 'other' }, code !== null && !TROUBLES.includes(code) ? 1 : 0);
    },
  });
  new Gauge({
    name: 'countersign_build_info',
    help: 'Always 1; the label is what runs.',
    labelNames: ['version'] as const,
    registers,
    aggregator: 'max',
  }).set({ version }, 1);
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: LOOP_LOOK_MS });
  // Gauges with a counter's name: promtool refuses them, and the resources by type say the same.
  for (const kind of ['handles', 'requests', 'resources']) registry.removeSingleMetric(`nodejs_active_${kind}_total`);
}
