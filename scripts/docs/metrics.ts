// docs/metrics.md: every metric with its labels and meaning, from the registry that counts them.
import { Registry } from 'prom-client';
import { createMetrics, registerBackends, registerGauges } from '../../gateway/telemetry/metrics.ts';
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
  registerBackends(registry, { states: [], failovers: 0 });
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
  const rows = (wanted: (name: string) => boolean) =>
    all
      .filter(({ name }) => wanted(name))
      .map(({ name, type, help, labels }) => `| \`${name}\` | ${type} | ${list(labels)} | ${help} |`)
      .join('\n');
  const list = (labels: readonly string[]) => labels.map((label) => `\`${label}\``).join(', ');
  const ofProcess = (name: string) => /^(process|nodejs)_/.test(name);
  return `# Metrics

<!-- Made by \`npm run make docs\` from gateway/telemetry/: change it there. -->

\`GET /metrics\` in Prometheus' text format: on the main port while there are no API keys, otherwise on \`METRICS_PORT\` alone
([configuration](configuration.md)). The sidecar has no port: the gateway tells its times and its state.

Names are those of OpenTelemetry's semantic conventions for generative AI and HTTP where they have one, as Prometheus writes them
(\`gen_ai.server.time_to_first_token\` is \`gen_ai_server_time_to_first_token_seconds\`). \`gen_ai_request_model\` is one of the first
${MAX_MODEL_LABELS} names that the backend served, then \`other\`; \`key\` is the name that the operator gave an API key, of the first ${MAX_KEY_LABELS}. No label holds anything else that a client wrote.

| name | type | labels | meaning |
|---|---|---|---|
${rows((name) => !ofProcess(name))}

With the attesters \`nvtrust\` and \`nvattest\`, NVIDIA's program collects and appraises in one step: all of it counts as collection.

To look at: [grafana/countersign.json](grafana/countersign.json), a dashboard. To be woken by: [alerts.yaml](alerts.yaml).

## The process

The event loop is looked at every 100 ms: of its delays, 0.1 s is that pause itself, and what is above it is lateness.

| name | type | labels | meaning |
|---|---|---|---|
${rows(ofProcess)}
`;
}
