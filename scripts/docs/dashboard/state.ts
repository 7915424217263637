// The rows that say what is up, and what the GPU and the process do.
import { by, gauge, increase, JOB, type Panel, panel, quantile, quantiles, rate, stat } from './panel.ts';

const PHASES = 'countersign_attestation_phase_duration_seconds';
const SEVERAL = 'Empty without BACKENDS_FILE.';

export const IS_IT_UP: readonly Panel[] = [
  stat(
    'Gateways down',
    'none',
    { text: 'Gateways that do not answer for their metrics.', alerts: ['CountersignDown'], redFrom: 1 },
    `count(up{${JOB}} == 0) or vector(0)`,
  ),
  stat(
    'Sidecars connected',
    'none',
    {
      text: 'Connections to sidecars, one for each gateway. Where there is none, requests with tee get a 503; those without are served.',
      alerts: ['CountersignSidecarAway'],
      redBelow: 1,
    },
    `sum(countersign_sidecar_state{${JOB}, state="connected"})`,
  ),
  stat(
    'Sidecars in trouble',
    'none',
    {
      text: 'Sidecars that are connected and cannot attest. /health has their words; `npm run doctor` on the node says what to do.',
      alerts: ['CountersignSidecarTrouble'],
      redFrom: 1,
    },
    `sum(countersign_sidecar_trouble{${JOB}})`,
  ),
  stat(
    'Canary wrong',
    'none',
    {
      text: 'Gateways whose backend answers with nonsense what any model knows. Its proofs are valid all the same: /health has the reason.',
      alerts: ['CountersignCanaryWrong'],
      redFrom: 1,
    },
    `sum(countersign_canary{${JOB}, state="wrong"})`,
  ),
  stat(
    'Shared store up',
    'none',
    {
      text: '1 while every gateway reaches the Valkey or Redis that they share, otherwise 0: then attestations of other gateways cannot be had again, and budgets count what each gateway has seen.',
      alerts: ['CountersignStoreAway'],
      empty: 'Empty without ATTESTATION_STORE_URL.',
      redBelow: 1,
    },
    `min(countersign_store_up{${JOB}})`,
  ),
  stat(
    'Backends down',
    'none',
    {
      text: 'Backends that a gateway finds down. Their requests go to others that serve the model.',
      alerts: ['CountersignBackendDown'],
      empty: SEVERAL,
      redFrom: 1,
    },
    `sum(1 - countersign_backend_up{${JOB}})`,
  ),
  panel(
    'Sidecar',
    'none',
    {
      text: 'The state of the connections to sidecars: how many gateways are in each. `refused`: what listens there may not be used.',
      alerts: ['CountersignSidecarAway', 'CountersignSidecarRefused'],
    },
    by('state', `sum by (state) (countersign_sidecar_state{${JOB}})`),
  ),
  panel(
    'Sidecars connected anew',
    'none',
    {
      text: 'New connections to sidecars. After a start there are none; more are restarts or a socket that breaks.',
      alerts: ['CountersignSidecarRestarts'],
    },
    by('instance', increase('countersign_sidecar_connections_total', 'instance')),
  ),
  panel(
    'Canary',
    'none',
    {
      text: 'What came of the canary’s last question: how many gateways found each state. `unavailable`: the backend did not answer it; `off`: CANARY_INTERVAL_MS is 0.',
      alerts: ['CountersignCanaryWrong'],
    },
    by('state', `sum by (state) (countersign_canary{${JOB}})`),
  ),
  panel(
    'Backends',
    'none',
    {
      text: 'Each backend: 1 up, 0 while some gateway finds it down.',
      empty: SEVERAL,
    },
    by('backend', `min by (backend) (countersign_backend_up{${JOB}})`),
  ),
  panel(
    'Failed by each backend',
    'reqps',
    {
      text: 'Requests that failed in each backend: statuses from 500, connections that break, silence, answers that are not the API’s. After three in a row the gateway tries the backend itself.',
      empty: SEVERAL,
    },
    by('backend', rate('countersign_backend_failures_total', 'backend')),
  ),
  panel(
    'Went to a further backend',
    'reqps',
    { text: 'Requests whose backend could not be connected to, so that another was asked.', empty: SEVERAL },
    by('instance', rate('countersign_backend_failovers_total', 'instance')),
  ),
  panel(
    'Versions',
    'none',
    { text: 'How many gateways run each version. More than one line only during a rollout.' },
    by('version', `count by (version) (countersign_build_info{${JOB}})`),
  ),
];

export const GPU: readonly Panel[] = [
  panel(
    'Signatures a second',
    'ops',
    {
      text: 'GPU signatures that answers went out with: `strict`, one answer each; `batch`, shared by answers whose clients allow it. A line that is flat while the queue grows is the GPU at its limit.',
      alerts: ['CountersignGpuQueue'],
    },
    by('kind', rate('countersign_signatures_total', 'kind')),
  ),
  panel(
    'Phases, p95',
    's',
    {
      text: 'What the sidecar spends its time on: `queue`, `collection` by the GPU, `appraisal`, and its own `check`. With nvtrust and nvattest all of appraisal counts as collection.',
      alerts: ['CountersignAttestationSlow', 'CountersignGpuQueue'],
    },
    by('phase', quantile(0.95, PHASES, 'phase')),
  ),
  panel(
    'Answers under one shared signature',
    'none',
    {
      text: 'How many answers a batch has. Near 1 batches save nothing: few clients allow them, or nothing waits.',
      empty: 'Empty until a client allows batches.',
    },
    ...quantiles('countersign_batch_leaves'),
  ),
  panel(
    'Wait for a batch',
    's',
    {
      text: 'How long an answer waits until the GPU is free for its batch: about one signature’s time at most.',
      empty: 'Empty until a client allows batches.',
    },
    ...quantiles('countersign_batch_wait_seconds'),
  ),
];

export const PROCESS: readonly Panel[] = [
  panel(
    'Processor',
    'percentunit',
    { text: 'Of one core, which is what a gateway uses at most.' },
    by('instance', rate('process_cpu_seconds_total', 'instance')),
  ),
  panel(
    'Memory',
    'bytes',
    { text: 'Resident memory and JavaScript’s heap. A line that climbs for hours under the same load is a leak.' },
    { expr: `process_resident_memory_bytes{${JOB}}`, legend: '{{instance}} resident' },
    { expr: `nodejs_heap_size_used_bytes{${JOB}}`, legend: '{{instance}} heap' },
  ),
  panel(
    'Event loop, p99',
    's',
    {
      text: 'The event loop is looked at every 0.1 s: what is above that is lateness. A gateway that is late needs more processor time, or a second gateway.',
      alerts: ['CountersignEventLoopLag'],
    },
    gauge('nodejs_eventloop_lag_p99_seconds'),
  ),
  panel(
    'File descriptors in use',
    'percentunit',
    {
      text: 'Of those that the process may have (`ulimit -n`). At 100 % no connection is accepted.',
      alerts: ['CountersignDescriptors'],
    },
    by('instance', `process_open_fds{${JOB}} / process_max_fds{${JOB}}`),
  ),
];
