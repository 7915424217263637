// What the dashboard shows: its rows and panels, each with its queries, what a bad value means, and the alerts of docs/alerts.yaml that go with it.

export interface Query {
  readonly expr: string;
  /** '' for a query with one series. */
  readonly legend: string;
}

export interface Panel {
  readonly title: string;
  readonly kind: 'timeseries' | 'stat';
  /** Grafana's name of the unit. */
  readonly unit: string;
  readonly queries: readonly Query[];
  readonly about: About;
}

export interface About {
  /** What it shows, and what a bad value means. */
  readonly text: string;
  readonly alerts?: readonly string[];
  /** Without what there is nothing to show. */
  readonly empty?: string;
  /** Red from this value on. */
  readonly redFrom?: number;
  /** Red below this value. */
  readonly redBelow?: number;
}

const JOB = 'job="$job", instance=~"$instance"';
const rate = (metric: string, by: string, more = '') =>
  `sum by (${by}) (rate(${metric}{${JOB}${more}}[$__rate_interval]))`;
const increase = (metric: string, by: string) => `sum by (${by}) (increase(${metric}{${JOB}}[$__rate_interval]))`;
const quantile = (q: number, metric: string, by = '', more = '') =>
  `histogram_quantile(${q}, ${rate(`${metric}_bucket`, by === '' ? 'le' : `le, ${by}`, more)})`;
const quantiles = (metric: string, more = ''): Query[] =>
  [0.5, 0.95, 0.99].map((q) => ({ expr: quantile(q, metric, '', more), legend: `p${q * 100}` }));
/** One series for each value of a label. */
const by = (label: string, expr: string): Query => ({ expr, legend: `{{${label}}}` });
const gauge = (metric: string): Query => by('instance', `${metric}{${JOB}}`);

const panel = (title: string, unit: string, about: About, ...queries: Query[]): Panel => ({
  title,
  kind: 'timeseries',
  unit,
  queries,
  about,
});
const stat = (title: string, unit: string, about: About, expr: string): Panel => ({
  title,
  kind: 'stat',
  unit,
  queries: [{ expr, legend: '' }],
  about,
});

const REQUESTS = 'http_server_request_duration_seconds_count';
const GENERATIONS = 'gen_ai_server_request_duration_seconds';
const FIRST_TOKEN = 'gen_ai_server_time_to_first_token_seconds';
const ATTESTATIONS = 'countersign_attestation_duration_seconds';
const PHASES = 'countersign_attestation_phase_duration_seconds';

const NONE = 'Empty while there are none.';
const SEVERAL = 'Empty without BACKENDS_FILE.';
const AUDIT = 'Empty without AUDIT_LOG.';
const KEYS = 'Empty without API_KEYS_FILE.';
const CPU = 'Empty where no processor signs (CPU_EVIDENCE=off).';

export const ROWS: Readonly<Record<string, readonly Panel[]>> = {
  'Is it up': [
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
        text: 'Connections to sidecars, one for each worker of a gateway. Where there is none, requests with tee get a 503; those without are served.',
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
      { text: 'Backends that a gateway finds down. Their requests go to the others.', empty: SEVERAL, redFrom: 1 },
      `sum(1 - countersign_backend_up{${JOB}})`,
    ),
    panel(
      'Sidecar',
      'none',
      {
        text: 'The state of the connections to sidecars: how many workers are in each. `refused`: what listens there may not be used.',
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
        text: 'What came of the canary’s last question: how many workers found each state. `unavailable`: the backend did not answer it; `off`: CANARY_INTERVAL_MS is 0.',
        alerts: ['CountersignCanaryWrong'],
      },
      by('state', `sum by (state) (countersign_canary{${JOB}})`),
    ),
    panel(
      'Backends',
      'none',
      {
        text: 'Each backend: 1 up, 0 while a worker of some gateway finds it down.',
        empty: SEVERAL,
      },
      by('backend', `min by (backend) (countersign_backend_up{${JOB}})`),
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
  ],
  Proofs: [
    stat(
      'Attestations that failed, last hour',
      'none',
      {
        text: 'Answers that got no proof. A stream without its attestation ends in an error.',
        alerts: ['CountersignAttestationsFailing'],
        redFrom: 1,
      },
      `sum(increase(${ATTESTATIONS}_count{${JOB}, outcome="failed"}[1h]))`,
    ),
    stat(
      'The processor’s session ends in',
      's',
      {
        text: 'Time left of the session that answers are signed in; a new one is made at half of its hour. Below 15 minutes that did not happen, and at 0 the processor’s half of a proof is missing, or with CPU_EVIDENCE=required the whole.',
        alerts: ['CountersignSessionNotRenewed'],
        empty: CPU,
        redBelow: 900,
      },
      `min(countersign_session_end_timestamp_seconds{${JOB}}) - time()`,
    ),
    stat(
      'Intel’s collateral ends in',
      's',
      {
        text: 'Time left of the collateral that TDX quotes are verified with. It is fetched daily and holds for 30 days; when it has ended, verifiers refuse the processor’s half.',
        alerts: ['CountersignCollateralEnds'],
        empty: 'Empty but with TDX.',
        redBelow: 3 * 86_400,
      },
      `min(countersign_collateral_end_timestamp_seconds{${JOB}}) - time()`,
    ),
    stat(
      'Kept for retrieval',
      'short',
      { text: 'Attestations that can be had again by id, those that are pending included.' },
      `sum(countersign_store_entries{${JOB}})`,
    ),
    stat(
      'Memory of these',
      'bytes',
      {
        text: 'What the kept attestations take at most. ATTESTATION_STORE_BYTES is the limit: at it the oldest go first.',
      },
      `sum(countersign_store_bytes{${JOB}})`,
    ),
    stat(
      'Verifications that found a fault, last hour',
      'none',
      {
        text: 'Attestations that the verify endpoint called invalid. Whoever sends nonsense makes these too; *Verifications* says by which check.',
      },
      `sum(increase(countersign_verifications_total{${JOB}, code!="valid"}[1h]))`,
    ),
    panel(
      'From the end of an answer to its proof',
      's',
      {
        text: 'How long an answer is held for its proof, the way to the sidecar and its restarts included. What grows here, clients wait; *Phases* says where.',
        alerts: ['CountersignAttestationSlow'],
      },
      ...quantiles(ATTESTATIONS, ', outcome="attested"'),
    ),
    panel(
      'Outcomes',
      'reqps',
      {
        text: 'What became of answers that asked for a proof: `attested`, `failed`, or `left` by a client that did not wait.',
        alerts: ['CountersignAttestationsFailing'],
      },
      by('outcome', rate(`${ATTESTATIONS}_count`, 'outcome')),
    ),
    panel(
      'By tee',
      'reqps',
      { text: 'Requests without a proof (`none`), and with one by how it ended.' },
      by('tee', rate(REQUESTS, 'tee')),
    ),
    panel(
      'Asked for again',
      'none',
      {
        text: 'Attestations that the gateway asked for again, after a restart of the sidecar or because it said so. They cost time, not proofs.',
      },
      by('instance', increase('countersign_attestation_retries_total', 'instance')),
    ),
    panel(
      'Sidecars refused',
      'none',
      {
        text: 'Sidecars that may not be used, by reason: the socket may be somebody else’s, or what came over it does not verify. Anything but `simulated` is to be looked into at once.',
        empty: NONE,
        alerts: ['CountersignSidecarRefused'],
      },
      by('code', `${increase('countersign_sidecar_refusals_total', 'code')} > 0`),
    ),
    panel(
      'Verifications',
      'reqps',
      { text: 'What the verify endpoint found: `valid`, or the first check that failed.' },
      by('code', rate('countersign_verifications_total', 'code')),
    ),
  ],
  'Signing queue': [
    stat(
      'Answers that wait for their proof',
      'none',
      {
        text: 'Over all gateways. A queue that does not shrink means that the GPU is asked for more signatures than it makes.',
        alerts: ['CountersignGpuQueue'],
      },
      `sum(countersign_signing_queue_depth{${JOB}})`,
    ),
    stat(
      'The oldest has waited',
      's',
      {
        text: 'The longest wait at this moment. At ATTEST_TIMEOUT_MS an answer fails with `attestation_unavailable`.',
        alerts: ['CountersignAttestationSlow'],
        redFrom: 5,
      },
      `max(countersign_signing_queue_age_seconds{${JOB}})`,
    ),
    panel(
      'Depth',
      'none',
      { text: 'Answers that wait, by gateway. A router can send requests with tee where fewest do.' },
      gauge('countersign_signing_queue_depth'),
    ),
    panel(
      'Age of the oldest',
      's',
      {
        text: 'By gateway. A line that climbs steadily is a sidecar that signs nothing.',
        alerts: ['CountersignAttestationSlow'],
      },
      gauge('countersign_signing_queue_age_seconds'),
    ),
    panel(
      'Wait in the sidecar',
      's',
      {
        text: 'How long an answer waits in the sidecar until the GPU is free for it. Seconds here mean that the GPU has too much to sign: let clients allow batches, or add nodes.',
        alerts: ['CountersignGpuQueue'],
      },
      ...quantiles(PHASES, ', phase="queue"'),
    ),
  ],
  Traffic: [
    stat(
      'Requests a second',
      'reqps',
      { text: 'All routes, health and metrics included.' },
      `sum(rate(${REQUESTS}{${JOB}}[$__rate_interval]))`,
    ),
    stat(
      'Being served',
      'none',
      {
        text: 'Requests that are running. MAX_CONCURRENT_REQUESTS is the limit of each gateway: at it they are refused as `overloaded`.',
        alerts: ['CountersignOverloaded'],
      },
      `sum(http_server_active_requests{${JOB}})`,
    ),
    panel(
      'By route',
      'reqps',
      { text: 'Requests that have ended, by route.' },
      by('http_route', rate(REQUESTS, 'http_route')),
    ),
    panel(
      'By status',
      'reqps',
      {
        text: 'Requests that have ended, by status; 499 where the client left. 5xx are looked up under *Refused* and *Failed by the backend*.',
      },
      by('http_response_status_code', rate(REQUESTS, 'http_response_status_code')),
    ),
    panel(
      'Refused by the gateway',
      'reqps',
      {
        text: 'Errors that the gateway answered with itself, by code (docs/errors.md). `internal_error` is a fault of ours: the log has its place. `overloaded`: the gateway is at its capacity.',
        empty: NONE,
        alerts: ['CountersignInternalError', 'CountersignOverloaded'],
      },
      by('code', `${rate('countersign_refusals_total', 'code')} > 0`),
    ),
    panel(
      'Failed by the backend',
      'reqps',
      {
        text: 'By our code for how it failed, or `http_` and the status that it answered with.',
        empty: NONE,
        alerts: ['CountersignBackendFailing'],
      },
      by('code', `${rate('countersign_backend_errors_total', 'code')} > 0`),
    ),
    panel(
      'Time to the first token',
      's',
      {
        text: 'From a request to the first chunk of its stream. It grows when the backend has more to do than it can.',
        alerts: ['CountersignFirstTokenSlow'],
      },
      ...quantiles(FIRST_TOKEN),
    ),
    panel(
      'First token by model, p95',
      's',
      { text: 'The same for each model that the backend names.', alerts: ['CountersignFirstTokenSlow'] },
      by('gen_ai_request_model', quantile(0.95, FIRST_TOKEN, 'gen_ai_request_model')),
    ),
    panel(
      'Time an output token',
      's',
      { text: 'Mean time between a stream’s chunks after the first: how fast an answer reads.' },
      ...quantiles('gen_ai_server_time_per_output_token_seconds'),
    ),
    panel(
      'Whole request',
      's',
      { text: 'From a generation request to the end of its answer, proof included. Long answers take long.' },
      ...quantiles(GENERATIONS),
    ),
    panel(
      'Longest gap in a stream',
      's',
      {
        text: 'The longest wait for a stream’s next chunk, once for each stream. Seconds here are streams that stall.',
      },
      ...quantiles('countersign_stream_longest_gap_seconds'),
    ),
  ],
  Usage: [
    stat(
      'Audit log failing',
      'none',
      {
        text: 'Gateways that cannot write their audit log now. Is the disk full? Lines wait in memory for a while.',
        alerts: ['CountersignAuditFailing'],
        empty: AUDIT,
        redFrom: 1,
      },
      `sum(countersign_audit_failing{${JOB}})`,
    ),
    stat(
      'Requests without an audit line',
      'none',
      {
        text: 'Since the start of each gateway. Above 0 lines are missing for good; the log says itself how many and where.',
        alerts: ['CountersignAuditFailing'],
        empty: AUDIT,
        redFrom: 1,
      },
      `sum(countersign_audit_lost{${JOB}})`,
    ),
    panel(
      'Tokens by direction',
      'short',
      { text: 'Tokens a second of all keys together, in and out, by the backend’s own count.', empty: KEYS },
      by('direction', rate('countersign_key_tokens_total', 'direction')),
    ),
    panel(
      'Tokens by key',
      'short',
      {
        text: 'Tokens a second of the ten keys that use most, in and out together. A key at its budget gets `insufficient_quota`, under *Refused by the gateway*.',
        empty: KEYS,
      },
      by('key', `topk(10, ${rate('countersign_key_tokens_total', 'key')})`),
    ),
    panel(
      'Requests by key',
      'reqps',
      { text: 'Requests that reached the backend, of the ten keys that send most.', empty: KEYS },
      by('key', `topk(10, ${rate('countersign_key_requests_total', 'key')})`),
    ),
    panel(
      'Who counted the tokens',
      'reqps',
      {
        text: '`backend`: it said how many; `events`: the gateway counted a stream’s; `unknown`: nobody, and the request counts as no tokens. To have the backend count streams, see docs/operations.md.',
        empty: KEYS,
      },
      by('counted', rate('countersign_key_requests_total', 'counted')),
    ),
    panel(
      'Proven answers by key',
      'reqps',
      { text: 'Answers that were attested, of the ten keys that ask for most.', empty: KEYS },
      by('key', `topk(10, ${rate('countersign_key_attested_total', 'key')})`),
    ),
    panel(
      'GPU’s time by key',
      'percentunit',
      {
        text: 'The share of one GPU’s time that signatures over a key’s answers take, of the ten keys that take most. Answers of a batch divide theirs. Near 100 % over all keys nobody else is signed for.',
        alerts: ['CountersignGpuQueue'],
        empty: KEYS,
      },
      by('key', `topk(10, ${rate('countersign_key_gpu_seconds_total', 'key')})`),
    ),
    panel(
      'Generations by model',
      'reqps',
      { text: 'What each model is used for.' },
      by('gen_ai_request_model', rate(`${GENERATIONS}_count`, 'gen_ai_request_model')),
    ),
    panel(
      'Generations by operation',
      'reqps',
      { text: 'Chat, text completion, embeddings.' },
      by('gen_ai_operation_name', rate(`${GENERATIONS}_count`, 'gen_ai_operation_name')),
    ),
    panel(
      'Last line of the audit log',
      'short',
      {
        text: 'Its number, by gateway, counted from the beginning of the log. It never falls: where it does, lines were cut off the end.',
        alerts: ['CountersignAuditFailing'],
        empty: AUDIT,
      },
      gauge('countersign_audit_lines'),
    ),
  ],
  GPU: [
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
  ],
  Process: [
    panel(
      'Processor',
      'percentunit',
      { text: 'Of one core; a gateway with workers uses several.' },
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
        text: 'The event loop is looked at every 0.1 s: what is above that is lateness. A gateway that is late needs more processor time, or WORKERS.',
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
  ],
};
