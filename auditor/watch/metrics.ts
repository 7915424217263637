// metrics.prom: the state of the fleet in Prometheus' text format, for the textfile collector of node_exporter.
import { STATES, type Standing } from './board.ts';

interface Metric {
  readonly name: string;
  readonly help: string;
  readonly labels: readonly string[];
}

export interface Figures {
  readonly standings: ReadonlyMap<string, Standing>;
  readonly entries: number;
  readonly bytes: number;
  readonly round_ms: number;
  readonly at: Date;
}

type Sample = readonly [labels: Readonly<Record<string, string>>, value: number | null];

const seconds = (time: string | null | undefined): number | null => (time == null ? null : Date.parse(time) / 1000);

/** Every metric, all of them gauges. */
const METRICS: readonly (Metric & { readonly samples: (figures: Figures) => readonly Sample[] })[] = [
  {
    name: 'countersign_watch_node_state',
    help: `1 for the state that the node is in: ${STATES.join(', ')}.`,
    labels: ['node', 'state'],
    samples: ({ standings }) =>
      [...standings].flatMap(([node, { last }]) =>
        STATES.map((state): Sample => [{ node, state }, Number(last?.state === state)]),
      ),
  },
  ...(
    [
      ['last_proof_timestamp_seconds', 'When the node last proved itself.', (one) => seconds(one.proven?.time)],
      ['proof_duration_seconds', 'From the request to the verified answer.', (one) => ratio(one.proven?.latency_ms)],
      ['misses', 'Rounds without a proof since the last with one.', (one) => one.misses],
      ['new_devices', 'Devices that were never seen before.', (one) => one.last?.new_devices.length ?? 0],
      ['warnings', 'What needs somebody, though the node is proven.', (one) => one.last?.warnings.length ?? 0],
      [
        'certificates_end_timestamp_seconds',
        'The first end of a certificate that the proof rests on.',
        (one) => seconds(one.proven?.ends?.certificates),
      ],
      [
        'collateral_end_timestamp_seconds',
        "The end of the processor's collateral.",
        (one) => seconds(one.proven?.ends?.collateral),
      ],
    ] satisfies readonly (readonly [string, string, (standing: Standing) => number | null])[]
  ).map(([name, help, value]) => ({
    name: `countersign_watch_${name}`,
    help,
    labels: ['node'],
    samples: ({ standings }: Figures) => [...standings].map(([node, standing]): Sample => [{ node }, value(standing)]),
  })),
  ...(
    [
      ['round_duration_seconds', 'The last round, all nodes.', ({ round_ms }) => round_ms / 1000],
      ['round_timestamp_seconds', 'When the last round ended.', ({ at }) => at.getTime() / 1000],
      ['history_entries', 'The number of the newest entry.', ({ entries }) => entries],
      ['history_bytes', 'History and proofs on the disk.', ({ bytes }) => bytes],
    ] satisfies readonly (readonly [string, string, (figures: Figures) => number])[]
  ).map(([name, help, value]) => ({
    name: `countersign_watch_${name}`,
    help,
    labels: [],
    samples: (figures: Figures): readonly Sample[] => [[{}, value(figures)]],
  })),
];

function ratio(ms: number | null | undefined): number | null {
  return ms == null ? null : ms / 1000;
}

/** For docs/metrics.md. */
export const WATCH_METRICS: readonly Metric[] = METRICS;

/** Names of nodes have no character that must be escaped. */
export function metricsText(figures: Figures): string {
  return METRICS.map(({ name, help, samples }) => {
    const lines = samples(figures)
      .filter(([, value]) => value !== null)
      .map(([labels, value]) => {
        const list = Object.entries(labels).map(([label, text]) => `${label}="${text}"`);
        return `${name}${list.length === 0 ? '' : `{${list.join(',')}}`} ${value}\n`;
      });
    return `# HELP ${name} ${help}\n# TYPE ${name} gauge\n${lines.join('')}`;
  }).join('');
}
