// docs/grafana/countersign.json: the state of the service at a glance. Its rows are beside this file; Grafana's form is made of them here.
import type { About, Panel } from './panel.ts';
import { PROOFS, SIGNING_QUEUE } from './proofs.ts';
import { GPU, IS_IT_UP, PROCESS } from './state.ts';
import { TRAFFIC, USAGE } from './traffic.ts';

/** In the order in which one looks. */
const ROWS: Readonly<Record<string, readonly Panel[]>> = {
  'Is it up': IS_IT_UP,
  Proofs: PROOFS,
  'Signing queue': SIGNING_QUEUE,
  Traffic: TRAFFIC,
  Usage: USAGE,
  GPU,
  Process: PROCESS,
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
      const { w, h } = SIZE[one.kind];
      if (x + w > WIDTH || h !== height) {
        x = 0;
        y += height;
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

/** Every option is written out: what is left out, Grafana's versions fill in differently. */
const OPTIONS = {
  stat: {
    reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false },
    orientation: 'auto',
    textMode: 'auto',
    colorMode: 'value',
    graphMode: 'area',
    justifyMode: 'auto',
    wideLayout: true,
    showPercentChange: false,
    percentChangeColorMode: 'standard',
  },
  timeseries: {
    legend: { displayMode: 'list', placement: 'bottom', showLegend: true, calcs: [] },
    tooltip: { mode: 'multi', sort: 'desc' },
  },
};

function grafanaPanel({ title, kind, unit, queries, about }: Panel): object {
  const defaults = { unit, min: 0, noValue: about.empty === undefined ? 'no data' : 'none' };
  return {
    type: kind,
    title,
    description: description(about),
    datasource: SOURCE,
    fieldConfig: {
      defaults:
        kind === 'stat' ? { ...defaults, color: { mode: 'thresholds' }, thresholds: thresholds(about) } : defaults,
      overrides: [],
    },
    options: OPTIONS[kind],
    targets: queries.map(({ expr, legend }, i) => ({
      refId: String.fromCharCode(65 + i),
      datasource: SOURCE,
      expr,
      legendFormat: legend === '' ? '__auto' : legend,
    })),
  };
}

/** Markdown, behind the i at a panel's title. */
function description({ text, alerts = [], empty }: About): string {
  const alert = alerts.length === 0 ? [] : [`${alerts.length === 1 ? 'Alert' : 'Alerts'}: ${alerts.join(', ')}.`];
  return [text, ...(empty === undefined ? [] : [empty]), ...alert].join('\n\n');
}

function thresholds({ redFrom, redBelow }: About): object {
  const steps: { color: string; value: number | null }[] = [
    { color: redBelow === undefined ? 'green' : 'red', value: null },
  ];
  if (redBelow !== undefined) steps.push({ color: 'green', value: redBelow });
  if (redFrom !== undefined) steps.push({ color: 'red', value: redFrom });
  return { mode: 'absolute', steps };
}

const query = (name: string, definition: string, more: object) => ({
  name,
  type: 'query',
  datasource: SOURCE,
  query: { query: definition, refId: name },
  refresh: 2,
  ...more,
});

const FRAME = {
  uid: 'countersign',
  title: 'Countersign',
  description:
    'Is it up, proofs, signing queue, traffic, usage, GPU, process. docs/metrics.md explains the metrics, docs/alerts.yaml has the alerts.',
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
