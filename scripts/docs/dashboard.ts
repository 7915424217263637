// docs/grafana/countersign.json: the state of the service at a glance. Panels are one line each; Grafana's form is made of them.

interface Query {
  readonly expr: string;
  readonly legend: string;
}
interface Panel {
  readonly title: string;
  readonly unit: string;
  readonly queries: readonly Query[];
  readonly kind?: 'timeseries' | 'stat';
}

const JOB = 'job="$job", instance=~"$instance"';
const rate = (metric: string, by: string, more = '') =>
  `sum by (${by}) (rate(${metric}{${JOB}${more}}[$__rate_interval]))`;
const quantile = (q: number, metric: string, by = '', more = '') =>
  `histogram_quantile(${q}, ${rate(`${metric}_bucket`, by === '' ? 'le' : `le, ${by}`, more)})`;
const quantiles = (metric: string): Query[] =>
  [0.5, 0.95, 0.99].map((q) => ({ expr: quantile(q, metric), legend: `p${q * 100}` }));

const panel = (title: string, unit: string, ...queries: Query[]): Panel => ({ title, unit, queries });
const stat = (title: string, unit: string, expr: string): Panel => ({
  title,
  unit,
  queries: [{ expr, legend: '' }],
  kind: 'stat',
});

const ROWS: Record<string, readonly Panel[]> = {
  'At a glance': [
    stat(
      'Requests a second',
      'reqps',
      `sum(rate(http_server_request_duration_seconds_count{${JOB}}[$__rate_interval]))`,
    ),
    stat('Being served', 'short', `sum(http_server_active_requests{${JOB}})`),
    stat('Sidecars connected', 'short', `sum(countersign_sidecar_state{${JOB}, state="connected"})`),
    stat('Sidecars in trouble', 'short', `sum(countersign_sidecar_trouble{${JOB}})`),
    stat('Answers waiting for a proof', 'short', `sum(countersign_signing_queue_depth{${JOB}})`),
    stat(
      'Attestations that failed, last hour',
      'short',
      `sum(increase(countersign_attestation_duration_seconds_count{${JOB}, outcome="failed"}[1h]))`,
    ),
  ],
  Requests: [
    panel('By route', 'reqps', {
      expr: rate('http_server_request_duration_seconds_count', 'http_route'),
      legend: '{{http_route}}',
    }),
    panel('By status', 'reqps', {
      expr: rate('http_server_request_duration_seconds_count', 'http_response_status_code'),
      legend: '{{http_response_status_code}}',
    }),
    panel('By tee', 'reqps', { expr: rate('http_server_request_duration_seconds_count', 'tee'), legend: '{{tee}}' }),
    panel('Refused by the gateway', 'reqps', {
      expr: rate('countersign_refusals_total', 'code'),
      legend: '{{code}}',
    }),
    panel('Failed by the backend', 'reqps', {
      expr: rate('countersign_backend_errors_total', 'code'),
      legend: '{{code}}',
    }),
    panel('Verifications', 'reqps', { expr: rate('countersign_verifications_total', 'code'), legend: '{{code}}' }),
  ],
  Generation: [
    panel('Time to the first token', 's', ...quantiles('gen_ai_server_time_to_first_token_seconds')),
    panel('Time an output token', 's', ...quantiles('gen_ai_server_time_per_output_token_seconds')),
    panel('Whole request', 's', ...quantiles('gen_ai_server_request_duration_seconds')),
    panel('First token by model, p95', 's', {
      expr: quantile(0.95, 'gen_ai_server_time_to_first_token_seconds', 'gen_ai_request_model'),
      legend: '{{gen_ai_request_model}}',
    }),
    panel('Longest gap in a stream', 's', ...quantiles('countersign_stream_longest_gap_seconds')),
  ],
  Attestation: [
    panel('From the end of an answer to its proof', 's', ...quantiles('countersign_attestation_duration_seconds')),
    panel('Phases, p95', 's', {
      expr: quantile(0.95, 'countersign_attestation_phase_duration_seconds', 'phase'),
      legend: '{{phase}}',
    }),
    panel('Outcomes', 'reqps', {
      expr: rate('countersign_attestation_duration_seconds_count', 'outcome'),
      legend: '{{outcome}}',
    }),
    panel('Sidecar', 'short', {
      expr: `sum by (state) (countersign_sidecar_state{${JOB}})`,
      legend: '{{state}}',
    }),
    panel(
      'Connections and retries',
      'short',
      { expr: `sum(increase(countersign_sidecar_connections_total{${JOB}}[$__rate_interval]))`, legend: 'connections' },
      { expr: `sum(increase(countersign_attestation_retries_total{${JOB}}[$__rate_interval]))`, legend: 'retries' },
    ),
    panel('Kept for retrieval', 'bytes', { expr: `countersign_store_bytes{${JOB}}`, legend: '{{instance}}' }),
  ],
  Batches: [
    panel('GPU signatures a second', 'reqps', {
      expr: rate('countersign_signatures_total', 'kind'),
      legend: '{{kind}}',
    }),
    panel('Answers under one shared signature', 'short', ...quantiles('countersign_batch_leaves')),
    panel('Wait for a batch', 's', ...quantiles('countersign_batch_wait_seconds')),
  ],
  Process: [
    panel('Processor', 'percentunit', { expr: rate('process_cpu_seconds_total', 'instance'), legend: '{{instance}}' }),
    panel(
      'Memory',
      'bytes',
      { expr: `process_resident_memory_bytes{${JOB}}`, legend: '{{instance}} resident' },
      { expr: `nodejs_heap_size_used_bytes{${JOB}}`, legend: '{{instance}} heap' },
    ),
    panel('Event loop, p99', 's', { expr: `nodejs_eventloop_lag_p99_seconds{${JOB}}`, legend: '{{instance}}' }),
    panel('File descriptors', 'short', { expr: `process_open_fds{${JOB}}`, legend: '{{instance}}' }),
  ],
};

const WIDTH = 24;
const SIZE = { stat: { w: 4, h: 4 }, timeseries: { w: 8, h: 8 } };
const SOURCE = { type: 'prometheus', uid: '$datasource' };

export function dashboard(): string {
  let id = 1;
  let y = 0;
  const panels = Object.entries(ROWS).flatMap(([title, row]) => {
    const header = {
      id: id++,
      type: 'row',
      title,
      collapsed: false,
      panels: [],
      gridPos: { x: 0, y: y++, w: WIDTH, h: 1 },
    };
    let x = 0;
    let height = 0;
    const placed = row.map((one) => {
      const { w, h } = SIZE[one.kind ?? 'timeseries'];
      if (x + w > WIDTH) {
        x = 0;
        y += h;
      }
      const made = { ...grafanaPanel(one), id: id++, gridPos: { x, y, w, h } };
      x += w;
      height = h;
      return made;
    });
    y += height;
    return [header, ...placed];
  });
  return `${JSON.stringify({ ...FRAME, panels }, null, 2)}\n`;
}

function grafanaPanel({ title, unit, queries, kind = 'timeseries' }: Panel): object {
  return {
    type: kind,
    title,
    datasource: SOURCE,
    fieldConfig: { defaults: { unit, min: 0 }, overrides: [] },
    options:
      kind === 'stat'
        ? { reduceOptions: { calcs: ['lastNotNull'] }, graphMode: 'area' }
        : { legend: { displayMode: 'list', placement: 'bottom' }, tooltip: { mode: 'multi', sort: 'desc' } },
    targets: queries.map(({ expr, legend }, i) => ({
      refId: String.fromCharCode(65 + i),
      datasource: SOURCE,
      expr,
      legendFormat: legend === '' ? '__auto' : legend,
    })),
  };
}

const query = (name: string, definition: string, more: object) => ({
  name,
  type: 'query',
  datasource: SOURCE,
  query: { query: definition, refId: name },
  definition,
  refresh: 2,
  ...more,
});

const FRAME = {
  uid: 'countersign',
  title: 'Countersign',
  description: 'Requests, generation, attestation and the gateway’s process. Metrics are explained in docs/metrics.md.',
  tags: ['countersign', 'llm'],
  schemaVersion: 39,
  version: 1,
  editable: true,
  graphTooltip: 1,
  refresh: '30s',
  time: { from: 'now-1h', to: 'now' },
  timezone: 'browser',
  templating: {
    list: [
      { name: 'datasource', type: 'datasource', query: 'prometheus', label: 'Data source' },
      query('job', 'label_values(countersign_build_info, job)', { label: 'Job' }),
      query('instance', 'label_values(countersign_build_info{job="$job"}, instance)', {
        label: 'Instance',
        multi: true,
        includeAll: true,
        allValue: '.*',
        current: { text: 'All', value: '$__all' },
      }),
    ],
  },
  annotations: { list: [] },
  links: [],
};
