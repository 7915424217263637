// A panel of the dashboard, and the queries that panels are made of.

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

export const JOB = 'job="$job", instance=~"$instance"';
export const rate = (metric: string, by: string, more = '') =>
  `sum by (${by}) (rate(${metric}{${JOB}${more}}[$__rate_interval]))`;
export const increase = (metric: string, by: string) =>
  `sum by (${by}) (increase(${metric}{${JOB}}[$__rate_interval]))`;
export const quantile = (q: number, metric: string, by = '', more = '') =>
  `histogram_quantile(${q}, ${rate(`${metric}_bucket`, by === '' ? 'le' : `le, ${by}`, more)})`;
export const quantiles = (metric: string, more = ''): Query[] =>
  [0.5, 0.95, 0.99].map((q) => ({ expr: quantile(q, metric, '', more), legend: `p${q * 100}` }));
/** One series for each value of a label. */
export const by = (label: string, expr: string): Query => ({ expr, legend: `{{${label}}}` });
export const gauge = (metric: string): Query => by('instance', `${metric}{${JOB}}`);

export const panel = (title: string, unit: string, about: About, ...queries: Query[]): Panel => ({
  title,
  kind: 'timeseries',
  unit,
  queries,
  about,
});
export const stat = (title: string, unit: string, about: About, expr: string): Panel => ({
  title,
  kind: 'stat',
  unit,
  queries: [{ expr, legend: '' }],
  about,
});
