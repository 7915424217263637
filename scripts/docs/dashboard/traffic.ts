// The rows about requests, and about who uses what.
import { by, gauge, JOB, type Panel, panel, quantile, quantiles, rate, stat } from './panel.ts';

const REQUESTS = 'http_server_request_duration_seconds_count';
const GENERATIONS = 'gen_ai_server_request_duration_seconds';
const FIRST_TOKEN = 'gen_ai_server_time_to_first_token_seconds';
const NONE = 'Empty while there are none.';
const AUDIT = 'Empty without AUDIT_LOG.';
const KEYS = 'Empty without API_KEYS_FILE.';

export const TRAFFIC: readonly Panel[] = [
  stat(
    'Requests a second',
    'reqps',
    { text: 'Requests of all routes that have ended.' },
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
      text: 'Requests that have ended, by status; 499 where the client left (`client_gone` in the log). 5xx are looked up under *Refused* and *Failed by the backend*.',
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
];

export const USAGE: readonly Panel[] = [
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
      text: '`backend`: it said how many; `events`: the gateway counted a stream’s; `unknown`: nobody, and the request counts as no tokens. To have the backend count streams, see docs/operate.md.',
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
      text: 'The share of one GPU’s time that signatures over a key’s answers take, of the ten keys that take most. Answers of a batch divide theirs. Near 100 % over all keys the GPU has no time left.',
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
    { text: 'By what is asked for: `chat`, `text_completion`, `embeddings`, `generate_content`.' },
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
];
