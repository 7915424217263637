// The rows about proofs, and about the queue for them.
import { by, gauge, increase, JOB, type Panel, panel, quantiles, rate, stat } from './panel.ts';

const REQUESTS = 'http_server_request_duration_seconds_count';
const ATTESTATIONS = 'countersign_attestation_duration_seconds';
const PHASES = 'countersign_attestation_phase_duration_seconds';
const NONE = 'Empty while there are none.';
const CPU = 'Empty where no processor signs (CPU_EVIDENCE=off).';

export const PROOFS: readonly Panel[] = [
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
      empty: 'Empty without TDX.',
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
      text: 'Attestations that the verify endpoint called invalid. Nonsense raises it too; *Verifications* says by which check.',
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
];

export const SIGNING_QUEUE: readonly Panel[] = [
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
];
