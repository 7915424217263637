// docs/metrics.md: every metric with its labels and meaning, from the registry that counts them.
import { Registry } from 'prom-client';
import { WATCH_METRICS } from '../../auditor/watch/metrics.ts';
import { registerBackends, registerGauges } from '../../gateway/gauges.ts';
import { createMetrics } from '../../gateway/telemetry/metrics.ts';
import { MAX_MODEL_LABELS } from '../../gateway/telemetry/telemetry.ts';
import { createAccounting, MAX_KEY_LABELS } from '../../gateway/usage/accounting.ts';

export interface Described {
  readonly name: string;
  readonly type: string;
  readonly help: string;
  readonly labels: readonly string[];
}

/** Of a gateway that nobody has asked anything. */
export async function describedMetrics(): Promise<Described[]> {
  const registry = new Registry();
  createMetrics(registry);
  createAccounting(registry, null, null);
  const sidecar = { state: 'connecting' as const, unavailable: null, sessionEnds: null, pending: 0, oldest_ms: 0 };
  const store = { usage: { entries: 0, bytes: 0 } } as never;
  registerBackends(registry, { states: [], failures: [], failovers: 0 });
  const canary = { result: { state: 'off' as const } };
  registerGauges(registry, { sidecar, store, audit: null, canary, version: '', running: () => 0 });
  const labels = new Map(
    registry.getMetricsAsArray().map((metric) => {
      const { name, labelNames = [] } = metric as unknown as { name: string; labelNames?: readonly string[] };
      return [name, labelNames];
    }),
  );
  const metrics = await registry.getMetricsAsJSON();
  return metrics.map(({ name, help, type }) => ({ name, help, type: String(type), labels: labels.get(name) ?? [] }));
}

export async function metricsPage(): Promise<string> {
  const all = await describedMetrics();
  const list = (labels: readonly string[]) => labels.map((label) => `\`${label}\``).join(', ');
  const own = all.filter(({ name }) => !/^(process|nodejs)_/.test(name));
  const rows = own
    .map(({ name, type, help, labels }) => `| \`${name}\` | ${type} | ${list(labels)} | ${help} |`)
    .join('\n');
  return `# Metrics

<!-- Made by \`npm run make docs\` from gateway/telemetry/ and auditor/watch/metrics.ts: change it there. -->

\`GET /metrics\` has Prometheus' text format. Without API keys it is on the main port, with them only on \`METRICS_PORT\`
([configuration](configuration.md)).

Names follow OpenTelemetry's conventions for generative AI and HTTP.
\`gen_ai_request_model\` is one of the first ${MAX_MODEL_LABELS} used names of the backend's list, else \`other\`; \`key\` one of the first ${MAX_KEY_LABELS} names of keys. No label holds anything
else that a client wrote.

| name | type | labels | meaning |
|---|---|---|---|
${rows}

Those with the label \`key\` need API keys, those with \`backend\` \`BACKENDS_FILE\`.

NVIDIA's programs (\`nvtrust\`, \`nvattest\`) collect and appraise in one step, which counts as collection.

The [Grafana dashboard](grafana/README.md) shows these metrics; the [alert rules](alerts.yaml) watch them.

## The watch

\`metrics.prom\` of [\`countersign watch\`](watch.md), all of them gauges:

| name | labels | meaning |
|---|---|---|
${WATCH_METRICS.map(({ name, labels, help }) => `| \`${name}\` | ${list(labels)} | ${help} |`).join('\n')}

## The process

[prom-client](https://github.com/siimon/prom-client) describes those that begin with \`process_\` or \`nodejs_\`. The event loop is sampled every 100 ms: only more is lateness.
`;
}
