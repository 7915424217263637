// docs/grafana: read by Grafana's own types, and each of its queries asked of a real Prometheus that watches the demo under load.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bearer, keyLine } from '../gateway/limits/limits-stage.ts';
import { ask, CHAT, chat } from '../support/client.ts';
import { eventually, type Folder, freePort, temporaryFolder } from '../support/harness.ts';
import { type RunningProcess, startCommand, startProcess } from '../support/process.ts';
import { typeErrors } from './grafana-types.ts';
import buildPrometheus, { PROMETHEUS } from './setup.ts';

beforeAll(buildPrometheus);

interface Panel {
  readonly title: string;
  readonly type: string;
  readonly description: string;
  readonly targets: readonly { readonly expr: string }[];
}
const text = readFileSync(new URL('../../docs/grafana/countersign.json', import.meta.url), 'utf8');
const board = JSON.parse(text) as { panels: Panel[] };
const drawn = board.panels.filter(({ type }) => type !== 'row');

describe('the dashboard', () => {
  it('is one by the types that Grafana publishes', () => {
    expect(typeErrors(board)).toBe('');
  });

  it.each([
    ['an option that there is not', '"showLegend"', '"showLegends"', 'showLegends'],
    ['a value that an option does not take', '"colorMode": "value"', '"colorMode": "values"', '"values"'],
    ['a threshold that is text', '"value": 1\n', '"value": "1"\n', "'string'"],
    ['a member of the dashboard that there is not', '"graphTooltip"', '"graphToolTip"', 'graphToolTip'],
  ])('would not be with %s', (_name, from, to, said) => {
    expect(text).toContain(from);
    expect(typeErrors(JSON.parse(text.replace(from, to)))).toContain(said);
  });
});

describe('its queries, over the demo under load', () => {
  let folder: Folder;
  let engine: RunningProcess;
  let demo: RunningProcess;
  let prometheus: RunningProcess;
  let api: string;

  interface Sample {
    readonly metric: Readonly<Record<string, string>>;
    readonly value: readonly [number, string];
  }
  /** As Grafana asks: its variables are filled in. */
  async function query(expr: string): Promise<Sample[]> {
    const filled = expr
      .replaceAll('$job', 'countersign')
      .replaceAll('$instance', '.*')
      .replaceAll('$__rate_interval', '2m');
    const { json, text } = await ask(`${api}/query?query=${encodeURIComponent(filled)}`, { method: 'GET' });
    const { status, data } = json();
    expect(status, text).toBe('success');
    return data.result;
  }
  const numbers = (samples: readonly Sample[]) =>
    samples.map(({ value }) => Number(value[1])).filter((number) => Number.isFinite(number));

  beforeAll(async () => {
    folder = temporaryFolder();
    const file = (name: string, content: string) => {
      writeFileSync(join(folder.path, name), content);
      return join(folder.path, name);
    };
    const [enginePort, port, metricsPort, prometheusPort] = await Promise.all([1, 2, 3, 4].map(freePort));
    engine = startProcess('demo/engine/main.ts', [], { PORT: String(enginePort) });
    demo = startProcess('demo/main.ts', ['--root-dir', join(folder.path, 'root'), '--cpu', 'TDX'], {
      PORT: String(port),
      METRICS_PORT: String(metricsPort),
      SIDECAR_SOCKET: join(folder.path, 'run', 'sidecar.sock'),
      COLLATERAL_DIR: join(folder.path, 'collateral'),
      API_KEYS_FILE: file('keys', ['a', 'b'].map(keyLine).join('\n')),
      AUDIT_LOG: join(folder.path, 'audit.log'),
      BACKENDS_FILE: file(
        'backends.json',
        JSON.stringify({ backends: [{ name: 'engine', url: `http://127.0.0.1:${enginePort}/v1` }] }),
      ),
      CANARY_INTERVAL_MS: '300000',
      CANARY_EXPECT: '*',
    });
    const config = {
      global: { scrape_interval: '1s' },
      scrape_configs: [{ job_name: 'countersign', static_configs: [{ targets: [`127.0.0.1:${metricsPort}`] }] }],
    };
    prometheus = startCommand(PROMETHEUS, [
      `--config.file=${file('prometheus.yml', JSON.stringify(config))}`,
      `--storage.tsdb.path=${join(folder.path, 'tsdb')}`,
      `--web.listen-address=127.0.0.1:${prometheusPort}`,
    ]);
    api = `http://127.0.0.1:${prometheusPort}/api/v1`;
    await eventually(() => demo.output().includes('Ctrl-C ends everything.'), 40_000);
    const scraped = async () => numbers(await query('up')).includes(1);
    await eventually(() => scraped().catch(() => false), 20_000);
    // Rates are told of series that are there: the first requests make them, those after a scrape raise them.
    for (let i = 0; i < 4; i++) {
      await load(`http://127.0.0.1:${port}`);
      await new Promise((resolve) => setTimeout(resolve, 1_500));
    }
  }, 120_000);
  afterAll(async () => {
    for (const one of [demo, engine, prometheus])
      if (one !== undefined && one.child.exitCode === null) await one.kill('SIGTERM');
    folder.remove();
  }, 30_000);

  async function load(url: string): Promise<void> {
    const question = { ...CHAT, model: 'countersign-demo', max_tokens: 8 };
    const [a, b] = [bearer('a'), bearer('b')];
    const signed = await chat(url, { ...question, tee: true }, a);
    expect(signed.status, signed.text).toBe(200);
    const answers = await Promise.all([
      chat(url, { ...question, stream: true, tee: true }, a),
      chat(url, { ...question, stream: true, tee: { batch: true } }, b),
      chat(url, question, b),
      ask(`${url}/~sev_gpu@1.0/verify`, { body: signed.text, headers: a }),
    ]);
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect((await chat(url, '{', a)).status).toBe(400);
    await ask(`${url}/~sev_gpu@1.0/verify`, { body: signed.text.replace('"nonce":"', '"nonce":"0'), headers: a });
  }

  it.each(drawn.map((panel) => [panel.title, panel] as const))(
    '%s has data, or says why it is empty',
    async (_, panel) => {
      for (const { expr } of panel.targets) {
        const found = numbers(await query(expr));
        if (!panel.description.includes('Empty ')) expect(found.length, expr).toBeGreaterThan(0);
      }
    },
  );

  it('are empty for a reason that holds here, and no other', async () => {
    const empty: string[] = [];
    for (const { title, targets } of drawn)
      for (const { expr } of targets) if (numbers(await query(expr)).length === 0) empty.push(title);
    // No shared store, no backend that fails, no sidecar that is refused.
    expect([...new Set(empty)]).toEqual(['Shared store up', 'Sidecars refused', 'Failed by the backend']);
  });

  const value = async (title: string) => {
    const panel = drawn.find((one) => one.title === title);
    return numbers(await query(panel?.targets[0]?.expr ?? ''));
  };

  it('say what is so', async () => {
    expect(await value('Gateways down')).toEqual([0]);
    expect(await value('Sidecars connected')).toEqual([1]);
    expect(await value('Canary wrong')).toEqual([0]);
    expect(await value('Backends down')).toEqual([0]);
    expect((await value('Requests a second'))[0]).toBeGreaterThan(0);
    expect(await value('Tokens by key')).toHaveLength(2);
    expect(await value('Requests without an audit line')).toEqual([0]);
    const [left = 0] = await value('The processor’s session ends in');
    expect(left).toBeGreaterThan(1_500);
    expect(left).toBeLessThan(3_600);
  });

  it('show a gateway that went', async () => {
    await demo.kill('SIGTERM');
    await eventually(async () => (await value('Gateways down'))[0] === 1, 15_000);
  });
});
