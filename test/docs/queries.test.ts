import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { describedMetrics } from '../../scripts/docs/metrics.ts';
import { reads } from './queries.ts';

const read = (path: string) => readFileSync(new URL(`../../docs/${path}`, import.meta.url), 'utf8');

/** What Prometheus adds by itself. */
const ADDED = ['job', 'instance'];
const series = new Map<string, readonly string[]>([['up', []]]);
for (const { name, type, labels } of await describedMetrics()) {
  if (type !== 'histogram') series.set(name, labels);
  else {
    series.set(`${name}_bucket`, [...labels, 'le']);
    series.set(`${name}_sum`, labels);
    series.set(`${name}_count`, labels);
  }
}

function expectKnown(expr: string): void {
  const { metrics, grouped } = reads(expr);
  expect(metrics.length, expr).toBeGreaterThan(0);
  const known = new Set(ADDED);
  for (const { metric, labels } of metrics) {
    expect([...series.keys()], expr).toContain(metric);
    for (const label of series.get(metric) ?? []) known.add(label);
    for (const label of labels) expect([...ADDED, ...(series.get(metric) ?? [])], expr).toContain(label);
  }
  for (const label of grouped) expect([...known], expr).toContain(label);
}

interface Rule {
  alert: string;
  expr: string;
  labels: { severity: string };
  annotations: { summary: string; description: string };
}

const { groups } = parse(read('alerts.yaml')) as { groups: { rules: Rule[] }[] };
const rules = groups.flatMap((group) => group.rules);

describe('the alert rules', () => {
  it.each(rules.map((rule) => [rule.alert, rule] as const))('%s reads metrics and labels that exist', (_name, rule) => {
    expectKnown(rule.expr);
    expect(['critical', 'warning']).toContain(rule.labels.severity);
    expect(rule.annotations.summary).toMatch(/\.$/);
    expect(rule.annotations.description.length).toBeGreaterThan(10);
  });

  it('have names of their own', () => {
    expect(new Set(rules.map((rule) => rule.alert)).size).toBe(rules.length);
  });
});

describe('the dashboard', () => {
  interface Panel {
    id: number;
    type: string;
    title: string;
    description: string;
    datasource?: object;
    fieldConfig: {
      defaults: { unit: string; noValue: string; thresholds?: { steps: { color: string; value: number | null }[] } };
    };
    options: object;
    gridPos: { x: number; y: number; w: number; h: number };
    targets?: { refId: string; datasource: object; expr: string; legendFormat: string }[];
  }
  const board = JSON.parse(read('grafana/countersign.json')) as {
    panels: Panel[];
    templating: { list: { name: string; type: string; datasource?: object }[] };
  };
  const drawn = board.panels.filter((panel) => panel.type !== 'row');

  it.each(drawn.map((panel) => [panel.title, panel] as const))(
    '%s reads metrics and labels that exist',
    (_name, panel) => {
      expect(panel.targets?.length).toBeGreaterThan(0);
      for (const { expr, legendFormat } of panel.targets ?? []) {
        expectKnown(expr);
        // What a legend shows is what the query groups by.
        for (const [, label] of legendFormat.matchAll(/\{\{(\w+)\}\}/g)) {
          const { metrics, grouped } = reads(expr);
          const own = metrics.flatMap(({ metric }) => [...ADDED, ...(series.get(metric) ?? [])]);
          expect(grouped.length > 0 ? grouped : own, expr).toContain(label);
        }
        for (const [, variable] of expr.matchAll(/\$(\w+)/g))
          expect(['__rate_interval', ...board.templating.list.map(({ name }) => name)]).toContain(variable);
      }
    },
  );

  it('has its rows in the order in which one looks', () => {
    const rows = board.panels.filter(({ type }) => type === 'row').map(({ title }) => title);
    expect(rows).toEqual(['Is it up', 'Proofs', 'Signing queue', 'Traffic', 'Usage', 'GPU', 'Process']);
  });

  /** Of Grafana's ids of units, those that fit our metrics. */
  const UNITS = ['none', 'short', 's', 'bytes', 'percentunit', 'reqps', 'ops'];

  it.each(drawn.map((panel) => [panel.title, panel] as const))(
    '%s says what it shows, in which unit',
    (_name, panel) => {
      expect(panel.description).toMatch(/^[A-Z`1].{20,}\.$/s);
      const { unit } = panel.fieldConfig.defaults;
      expect(UNITS).toContain(unit);
      // What its metrics count, by the end of their names.
      const exprs = (panel.targets ?? []).map(({ expr }) => expr).join(' ');
      if (exprs.includes('histogram_quantile')) expect(unit).toBe(/_seconds_bucket/.test(exprs) ? 's' : 'none');
      if (/^sum by \(\w+\) \(rate\(\w+_seconds_count/.test(exprs)) expect(unit).toBe('reqps');
      if (exprs.includes('_bytes{')) expect(unit).toBe('bytes');
    },
  );

  it('names every alert at a panel, and none that is not there', () => {
    const named = drawn.flatMap(({ description }) => description.match(/\bCountersign[A-Z]\w+/g) ?? []);
    expect([...new Set(named)].sort()).toEqual(rules.map((rule) => rule.alert).sort());
  });

  it('asks the data source that its reader chose, everywhere', () => {
    const chosen = { type: 'prometheus', uid: '$datasource' };
    expect(board.templating.list[0]).toMatchObject({ name: 'datasource', type: 'datasource' });
    const variables = board.templating.list.filter(({ type }) => type === 'query');
    expect(variables.map(({ name }) => name)).toEqual(['job', 'instance']);
    const targets = drawn.flatMap((panel) => panel.targets ?? []);
    for (const { datasource } of [...variables, ...drawn, ...targets]) expect(datasource).toEqual(chosen);
  });

  it('names the queries of a panel apart', () => {
    for (const { title, targets = [] } of drawn)
      expect([title, new Set(targets.map(({ refId }) => refId)).size]).toEqual([title, targets.length]);
  });

  it('says "none" where a panel may be empty, and only there', () => {
    for (const { title, description, fieldConfig } of drawn)
      expect([title, fieldConfig.defaults.noValue]).toEqual([title, /\bEmpty /.test(description) ? 'none' : 'no data']);
  });

  it('has thresholds that rise, at each number that stands by itself', () => {
    for (const { title, fieldConfig } of drawn.filter(({ type }) => type === 'stat')) {
      const [first, ...others] = fieldConfig.defaults.thresholds?.steps.map(({ value }) => value) ?? [];
      expect([title, first]).toEqual([title, null]);
      expect(others).toEqual([...others].sort((a, b) => Number(a) - Number(b)));
    }
  });

  it('writes every option out, for versions of Grafana fill in differently what is left out', () => {
    expect(new Set(drawn.map(({ type }) => type))).toEqual(new Set(['stat', 'timeseries']));
    for (const type of ['stat', 'timeseries']) {
      const options = drawn.filter((panel) => panel.type === type).map((panel) => Object.keys(panel.options).sort());
      expect(options[0]?.length).toBeGreaterThan(1);
      for (const names of options) expect(names).toEqual(options[0]);
    }
  });

  it('lays its panels out side by side, none over another', () => {
    expect(new Set(board.panels.map(({ id }) => id)).size).toBe(board.panels.length);
    const cells = new Set<string>();
    for (const { gridPos } of board.panels)
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++)
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
          expect(x).toBeLessThan(24);
          expect(cells.has(`${x} ${y}`)).toBe(false);
          cells.add(`${x} ${y}`);
        }
  });
});

describe('this test', () => {
  it('sees a metric, a label or a grouping that is not there', () => {
    expect(() => expectKnown('rate(countersign_nothing_total[5m])')).toThrow();
    expect(() => expectKnown('rate(countersign_refusals_total{reason="x"}[5m])')).toThrow();
    expect(() => expectKnown('sum by (reason) (rate(countersign_refusals_total[5m]))')).toThrow();
    expect(() => expectKnown('sum by (code) (rate(countersign_refusals_total{code=~"a|b"}[5m])) > 0.5')).not.toThrow();
  });
});
