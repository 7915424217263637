// The chart's PodMonitor and PrometheusRule in a real Prometheus: each alert fires for the gateway that has what it is for, and for no other.
// The times are cut down to seconds; alerts.yaml beside this file holds them as they are.
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse, stringify } from 'yaml';
import { type Built, type Manifest, render } from '../deploy/manifests.ts';
import { tool } from '../deploy/tools.ts';
import { chatStream } from '../support/backend.ts';
import { ask, CHAT, chat } from '../support/client.ts';
import { eventually, type Folder, freePort, temporaryFolder } from '../support/harness.ts';
import { type RunningProcess, startCommand } from '../support/process.ts';
import { useService } from '../support/service.ts';
import buildPrometheus, { PROMETHEUS } from './setup.ts';

/** Seconds since the gateway came up, and the Unix time. */
type Value = (seconds: number, now: number) => number;
/** Series as /metrics has them, with the value that they take. */
type Trouble = Readonly<Record<string, Value>>;

const is =
  (value: number): Value =>
  () =>
    value;
/** A counter, `a_second`. */
const grows =
  (a_second = 10): Value =>
  (seconds) =>
    Math.floor(seconds * a_second);
const endsIn =
  (seconds: number): Value =>
  (_, now) =>
    now + seconds;
/** A histogram, all of whose values lie between 10 and the next bound. */
const slow = (name: string, labels: string): Trouble =>
  Object.fromEntries(
    ['10', '30', '60', '+Inf'].map((le) => [`${name}_bucket{le="${le}",${labels}}`, le === '10' ? is(0) : grows()]),
  );
const MODEL =
  'gen_ai_operation_name="chat",gen_ai_provider_name="countersign",gen_ai_request_model="scripted",error_type=""';

/** What each alert is for. Down: nobody listens there. */
const TROUBLES: Readonly<Record<string, Trouble | 'down'>> = {
  CountersignDown: 'down',
  CountersignInternalError: { 'countersign_refusals_total{code="internal_error"}': grows() },
  CountersignBackendFailing: {
    'countersign_backend_errors_total{code="backend_timeout"}': grows(1),
    [`gen_ai_server_request_duration_seconds_count{${MODEL}}`]: grows(),
  },
  CountersignBackendDown: { 'countersign_backend_up{backend="big"}': is(0) },
  CountersignSidecarAway: { 'countersign_sidecar_state{state="connected"}': is(0) },
  CountersignSidecarRefused: { 'countersign_sidecar_refusals_total{code="socket_owner"}': grows() },
  CountersignSidecarTrouble: { 'countersign_sidecar_trouble{code="collection_failed"}': is(1) },
  CountersignConfidentialComputingLost: { 'countersign_sidecar_trouble{code="cc_lost"}': is(1) },
  CountersignSidecarRestarts: { countersign_sidecar_connections_total: grows() },
  CountersignSessionNotRenewed: { 'countersign_session_end_timestamp_seconds{type="TDX"}': endsIn(600) },
  CountersignCollateralEnds: { 'countersign_collateral_end_timestamp_seconds{type="TDX"}': endsIn(86_400) },
  CountersignAttestationsFailing: {
    'countersign_attestation_duration_seconds_count{outcome="attested"}': grows(),
    'countersign_attestation_duration_seconds_count{outcome="failed"}': grows(1),
  },
  CountersignAttestationSlow: slow('countersign_attestation_duration_seconds', 'outcome="attested"'),
  CountersignGpuQueue: slow('countersign_attestation_phase_duration_seconds', 'phase="queue"'),
  CountersignCanaryWrong: { 'countersign_canary_failed{check="sense"}': is(1) },
  CountersignStoreAway: { countersign_store_up: is(0) },
  CountersignAuditFailing: { countersign_audit_failing: is(1) },
  CountersignOverloaded: { 'countersign_refusals_total{code="overloaded"}': grows() },
  CountersignFirstTokenSlow: slow('gen_ai_server_time_to_first_token_seconds', MODEL),
  CountersignEventLoopLag: { nodejs_eventloop_lag_p99_seconds: is(0.5) },
  CountersignDescriptors: { process_open_fds: is(19_000), process_max_fds: is(20_000) },
};
/** Alerts that fire for another one's trouble too. */
const TOO: Readonly<Record<string, string>> = { CountersignSidecarTrouble: 'CountersignConfidentialComputingLost' };
/** A gateway on which all is well. */
const WELL = 'well';
const WELL_VALUES: Trouble = {
  nodejs_eventloop_lag_p99_seconds: is(0.11),
  process_open_fds: is(30),
  process_max_fds: is(20_000),
};

/** Metrics of a gateway at work, with a trouble laid over them. */
function metricsWith(text: string, values: Trouble, seconds: number, now: number): string {
  const lines = new Map(
    text
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'))
      .map((line) => [line.slice(0, line.lastIndexOf(' ')), line.slice(line.lastIndexOf(' ') + 1)]),
  );
  for (const [series, value] of Object.entries(values)) lines.set(series, String(value(seconds, now)));
  return [...lines].map(([series, value]) => `${series} ${value}\n`).join('');
}

/** The Prometheus Operator's scrape of a PodMonitor: where `job` comes from. Its targets are here, with the labels of the pods there. */
function scrapeOf(chart: Built, targets: string[]): object {
  const { spec, metadata } = chart.one('PodMonitor', 'countersign');
  const label = (name: string) => `__meta_kubernetes_pod_label_${name.replace(/[^a-zA-Z0-9_]/g, '_')}`;
  const { labels } = chart.one('Deployment', 'countersign').spec.template.metadata;
  const pods = Object.fromEntries(Object.entries(labels).map(([name, value]) => [label(name), value]));
  const jobLabel =
    spec.jobLabel === undefined ? [] : [{ source_labels: [label(spec.jobLabel)], regex: '(.+)', target_label: 'job' }];
  return {
    job_name: `podMonitor/countersign/${metadata.name}/0`,
    metrics_path: spec.podMetricsEndpoints[0].path,
    static_configs: [{ targets, labels: pods }],
    relabel_configs: [{ target_label: 'job', replacement: `countersign/${metadata.name}` }, ...jobLabel],
  };
}

/** The same rules: minutes and hours of windows as seconds, and no alert waits longer than a second. */
function inSeconds({ groups }: Manifest): object {
  const faster = (rule: Manifest) => ({
    ...rule,
    expr: rule.expr.replace(/\[(\d+)m\]/g, '[$1s]'),
    ...(rule.for === undefined ? {} : { for: '1s' }),
  });
  return { groups: groups.map((group: Manifest) => ({ ...group, rules: group.rules.map(faster) })) };
}

const service = useService();

describe("the chart's monitor and rules in a real Prometheus", () => {
  const servers: Server[] = [];
  const addresses = new Map<string, string>();
  let folder: Folder;
  let prometheus: RunningProcess;
  let api: string;
  let rules: Manifest;
  let job: string[];

  beforeAll(async () => {
    buildPrometheus();
    folder = temporaryFolder();
    const chart = render(await tool('helm'), 'pool');
    rules = chart.one('PrometheusRule', 'countersign').spec;
    const { url } = service.gateway;
    await chat(url, { ...CHAT, tee: true });
    service.backend.script = chatStream(['a', 'b']);
    await chat(url, { ...CHAT, stream: true, tee: true });
    const { text } = await ask(`${url}/metrics`, { method: 'GET' });

    const started = Date.now();
    for (const [alert, trouble] of Object.entries({ ...TROUBLES, [WELL]: {} })) {
      if (trouble === 'down') {
        addresses.set(alert, `127.0.0.1:${await freePort()}`);
        continue;
      }
      const server = createServer((_, response) => {
        const [seconds, now] = [(Date.now() - started) / 1000, Date.now() / 1000];
        response.setHeader('content-type', 'text/plain; version=0.0.4');
        response.end(metricsWith(text, { ...WELL_VALUES, ...trouble }, seconds, now));
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      servers.push(server);
      addresses.set(alert, `127.0.0.1:${(server.address() as AddressInfo).port}`);
    }
    const file = (name: string, content: object) => {
      writeFileSync(join(folder.path, name), stringify(content));
      return join(folder.path, name);
    };
    const scrape = scrapeOf(chart, [...addresses.values()]);
    const config = {
      global: { scrape_interval: '500ms', scrape_timeout: '400ms', evaluation_interval: '500ms' },
      rule_files: [file('rules.yml', inSeconds(rules))],
      scrape_configs: [scrape],
    };
    const port = await freePort();
    prometheus = startCommand(PROMETHEUS, [
      `--config.file=${file('prometheus.yml', config)}`,
      `--storage.tsdb.path=${join(folder.path, 'tsdb')}`,
      `--web.listen-address=127.0.0.1:${port}`,
    ]);
    api = `http://127.0.0.1:${port}/api/v1`;
    await eventually(async () => (await firing().catch(() => new Set())).size >= addresses.size - 1, 60_000).catch(
      () => {},
    );
    const { data } = (await ask(`${api}/label/job/values`, { method: 'GET' })).json();
    job = data;
  }, 900_000);
  afterAll(async () => {
    if (prometheus !== undefined && prometheus.child.exitCode === null) await prometheus.kill('SIGTERM');
    for (const server of servers) server.closeAllConnections();
    for (const server of servers) server.close();
    folder?.remove();
  }, 30_000);

  /** `ALERT at TARGET`, by the name of the target's trouble. */
  async function firing(): Promise<Set<string>> {
    const { data } = (await ask(`${api}/alerts`, { method: 'GET' })).json();
    const name = (instance: string) => [...addresses].find(([, address]) => address === instance)?.[0];
    return new Set(
      data.alerts
        .filter(({ state }: Manifest) => state === 'firing')
        .map(({ labels }: Manifest) => `${labels.alertname} at ${name(labels.instance)}`),
    );
  }

  it('know the gateways by the job that the rules match', () => {
    expect(job).toEqual(['countersign']);
  });

  it('are the rules of docs/alerts.yaml, each with a trouble here', () => {
    expect(rules).toEqual(parse(readFileSync(new URL('../../docs/alerts.yaml', import.meta.url), 'utf8')));
    const named = rules.groups.flatMap((group: Manifest) => group.rules.map(({ alert }: Manifest) => alert));
    expect(Object.keys(TROUBLES).sort()).toEqual([...named].sort());
  });

  it('are about metrics that there are', () => {
    const listed = readFileSync(new URL('../../docs/metrics.md', import.meta.url), 'utf8');
    for (const trouble of Object.values(TROUBLES))
      for (const series of trouble === 'down' ? [] : Object.keys(trouble)) {
        const [name = ''] = series.split('{');
        if (!/^(process|nodejs)_/.test(name)) expect(listed).toContain(`\`${name.replace(/_(bucket|count)$/, '')}\``);
      }
  });

  it.each(Object.keys(TROUBLES))('%s fires, at the gateway that has it', async (alert) => {
    await eventually(async () => (await firing()).has(`${alert} at ${alert}`), 20_000);
  });

  it('leave every gateway alone that has another trouble, or none', async () => {
    expect([...(await firing())].sort()).toEqual(
      [...Object.keys(TROUBLES).map((alert) => [alert, alert]), ...Object.entries(TOO)]
        .map(([alert, at]) => `${alert} at ${at}`)
        .sort(),
    );
  });
});
