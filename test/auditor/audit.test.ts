// `countersign audit` over a service with the demo engine: proofs, whole answers and streams, findings, files and exit statuses.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { AUDITOR } from '../../auditor/commands.ts';
import { NOUNS } from '../../demo/engine/words.ts';
import { main } from '../../verify/cli/main.ts';
import { ask } from '../support/client.ts';
import { type DemoService, startDemoService } from './demo.ts';
import { question, requestOf } from './trial.ts';

let service: DemoService;
beforeAll(async () => {
  service = await startDemoService();
});
afterAll(() => service.close());

let made = 0;
/** A folder of proven answers to the requests of these seeds. */
async function answers(seeds: readonly number[], more: object = {}, path = '/v1/chat/completions'): Promise<string> {
  const folder = join(service.folder, `answers-${++made}`);
  mkdirSync(folder);
  for (const seed of seeds) {
    const body = JSON.stringify({ ...requestOf(seed), tee: true, ...more });
    const { text } = await ask(`${service.url}${path}`, { body });
    writeFileSync(join(folder, `${seed}.json`), text);
  }
  return folder;
}
const upTo = (count: number) => Array.from({ length: count }, (_, i) => i + 1);

async function audit(files: string | readonly string[], ...more: string[]) {
  const engine = more.includes('--engine') ? [] : ['--engine', `${service.engine}/v1`];
  const args = ['audit', ...[files].flat(), ...engine, '--allow-simulated', service.root, '--offline'];
  let output = '';
  const keep = (words: string) => {
    output += `${words}\n`;
  };
  const spies = [
    vi.spyOn(console, 'log').mockImplementation(keep),
    vi.spyOn(console, 'error').mockImplementation(keep),
  ];
  const code = await main([...args, ...more], AUDITOR);
  for (const spy of spies) spy.mockRestore();
  return { code, output };
}

describe('countersign audit', () => {
  it('finds honest answers consistent, whole and streamed, and draws them; its words and files hold none of theirs', async () => {
    const whole = await answers(upTo(4));
    const streamed = await answers([5, 6, 7, 8], { stream: true });
    const chart = join(service.folder, 'chart.svg');
    const { code, output } = await audit([whole, streamed], '--chart', chart);
    expect([code, output]).toEqual([0, expect.stringMatching(/^CONSISTENT: 8 answers are what countersign-demo/m)]);
    expect(output).toMatch(/no alarm: \d{3} tokens of temperature 0: 0 miss/);
    expect(output).toContain('could have seen: a share of misses');
    expect(output).toContain('not calibrated');
    const svg = readFileSync(chart, 'utf8');
    expect(svg).toMatch(/^<svg [\s\S]*Temperature 0: \d+ tokens[\s\S]*<\/svg>\n$/);
    const { choices } = JSON.parse(readFileSync(join(whole, '1.json'), 'utf8'));
    const said = `${choices[0].message.content} ${question(1)}`.match(/[a-z]{4,}/g) ?? [];
    // The report speaks of answers and tokens itself.
    const words = said.filter((word) => NOUNS.includes(word) && !/^(answer|token|number|star)$/.test(word));
    expect(words.length).toBeGreaterThan(5);
    for (const word of new Set(words)) expect(`${svg}${output}`).not.toMatch(new RegExp(`\\b${word} `));
  }, 60_000);

  it('says too little of few tokens, and as JSON everything but words', async () => {
    const { code, output } = await audit(join(await answers([1]), '1.json'), '--json');
    const report = JSON.parse(output);
    expect([code, report]).toMatchObject([3, { verdict: 'TOO LITTLE', answers: 1, findings: [], not_audited: [] }]);
    expect(report.tests[0]).toMatchObject({ test: 'greedy', alarm: false });
  });

  it('finds other weights and another temperature, and says so without a word of the answers outside of a terminal', async () => {
    const other = await startDemoService(8);
    try {
      const folder = await answers([1, 2, 3]);
      const { code, output } = await audit(folder, '--engine', other.engine);
      expect([code, output]).toEqual([1, expect.stringMatching(/^ALARM: .*\n[\s\S]*^NOT CONSISTENT: 3 answers/m)]);
      expect(output).not.toContain(' nats at token');
      // The right weights beside a named alternative.
      const beside = await audit(folder, '--against', other.engine);
      expect([beside.code, beside.output]).toEqual([0, expect.stringContaining('which favours these weights')]);
    } finally {
      await other.close();
    }
  }, 60_000);

  it('audits no answer whose proof does not verify, and none twice', async () => {
    const folder = await answers([1, 2]);
    const file = join(folder, '1.json');
    writeFileSync(join(folder, 'again.json'), readFileSync(join(folder, '2.json')));
    const text = readFileSync(file, 'utf8');
    writeFileSync(file, text.replace(/"token_ids":\[\d+/, '"token_ids":[777'));
    const { code, output } = await audit(folder);
    expect(code).toBe(1);
    expect(output).toMatch(/not audited, the proof does not verify \(response_mismatch\): .*1\.json/);
    expect(output).toMatch(/left out: 1 answer, \d+ tokens: the same answer again/);
    expect(output).toMatch(/^TOO LITTLE: 1 answer says .*; 1 more has no valid proof$/m);
    writeFileSync(file, text);
    expect((await audit(folder)).output).toMatch(/^TOO LITTLE: 2 answers say .*are the least$/m);
    expect(await audit(folder)).toMatchObject({ code: 3 });
  });

  it('reads lines as verify does', async () => {
    const folder = await answers([1, 2]);
    const lines = join(service.folder, 'answers.jsonl');
    const texts = [1, 2].map((seed) => JSON.parse(readFileSync(join(folder, `${seed}.json`), 'utf8')));
    writeFileSync(lines, texts.map((text) => `${JSON.stringify(text)}\n`).join(''));
    expect((await audit(lines)).output).toContain('TOO LITTLE: 2 answers');
  });

  it('calibrates by a reference deployment: at least 5,000 tokens, of the same model', async () => {
    const file = join(service.folder, 'calibration.json');
    const few = await audit(await answers([1]), '--calibrate', file);
    expect([few.code, few.output]).toEqual([3, expect.stringMatching(/^TOO LITTLE: \d+ tokens .* of 5000; no file/)]);
    const forged = await answers([1, 2]);
    const path = join(forged, '1.json');
    writeFileSync(path, readFileSync(path, 'utf8').replace(/"token_ids":\[\d+/, '"token_ids":[777'));
    const refused = await audit(forged, '--calibrate', file);
    expect([refused.code, refused.output]).toEqual([
      2,
      expect.stringContaining('--calibrate: no valid proof in 1 answer (response_mismatch)\n'),
    ]);
    const calibration = { version: 1, model: 'countersign-demo', made: '', tokens: 6000, misses: 30, above: [] };
    const above = [80, 60, 40, 30, 20, 10, 0, 0, 0, 0, 0];
    writeFileSync(file, JSON.stringify({ ...calibration, above }));
    const { output } = await audit(await answers([1]), '--calibration', file);
    expect(output).toContain('an honest engine misses at most 0.68 %');
    for (const [wrong, words] of [
      [{ ...calibration, above, model: 'other' }, 'it is of the model other'],
      [{ ...calibration, above, misses: 600 }, 'its reference missed too often'],
      [calibration, 'not a calibration of version 1'],
    ] as const) {
      writeFileSync(file, JSON.stringify(wrong));
      expect(await audit(await answers([1]), '--calibration', file)).toMatchObject({
        code: 2,
        output: expect.stringContaining(words),
      });
    }
  });
});

/** An engine before the demo engine that answers some paths in its own way. */
async function oddEngine(odd: (path: string, body: Record<string, unknown>, answer: string) => [number, string]) {
  const server: Server = createServer((request: IncomingMessage, response: ServerResponse) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', async () => {
      const body = Buffer.concat(parts).toString();
      const path = request.url ?? '';
      const init = request.method === 'POST' ? { method: 'POST', body } : {};
      const answer = await fetch(service.engine + path, init);
      const [status, text] = odd(path, body === '' ? {} : JSON.parse(body), await answer.text());
      response.writeHead(status === 0 ? answer.status : status, { 'content-type': 'application/json' }).end(text);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => server.close() };
}

describe('an engine that cannot be used', () => {
  it.each([
    [
      'caps prompt_logprobs',
      'start vLLM with --max-logprobs 20',
      2,
      (path: string, body: object, text: string) =>
        'prompt_logprobs' in body && path === '/v1/completions' ? [400, '{}'] : [0, text],
    ],
    [
      'gives fewer of them',
      'gives no 20 log-probabilities',
      2,
      (_path: string, _body: object, text: string) => [
        0,
        text.replace(/"\d+":\{"logprob":[^}]*"rank":1[0-9],[^}]*\},?/g, '').replaceAll(',}', '}'),
      ],
    ],
    [
      'answers NaN',
      'no JSON, such as NaN',
      2,
      (_path: string, _body: object, text: string) => [0, text.replace(/"logprob":-[\d.]+/, '"logprob":NaN')],
    ],
    [
      'answers no number',
      'no finite number',
      2,
      (_path: string, _body: object, text: string) => [0, text.replace(/"logprob":-[\d.]+/, '"logprob":null')],
    ],
    [
      'has no tokenizer',
      '/tokenize answered 404',
      2,
      (path: string, _body: object, text: string) => (path === '/tokenize' ? [404, '{}'] : [0, text]),
    ],
    [
      'has no model',
      'names no model',
      2,
      (path: string, _body: object, text: string) => (path === '/v1/models' ? [200, '{"data":[]}'] : [0, text]),
    ],
    ['fails', '/v1/models answered 500', 2, () => [500, '']],
    [
      'has another tokenizer',
      'do not decode to its text',
      3,
      (path: string, _body: object, text: string) => (path === '/detokenize' ? [0, '{"prompt":"Bonjour"}'] : [0, text]),
    ],
    [
      'has another template',
      'the model read another prompt',
      1,
      (path: string, body: object, text: string) =>
        path === '/tokenize' && 'messages' in body ? [0, text.replace('"tokens":[', '"tokens":[3,')] : [0, text],
    ],
    [
      'refuses a long answer',
      'left out: 1 answer,',
      3,
      (path: string, { prompt }: { prompt?: unknown[] }, text: string) =>
        path === '/v1/completions' && (prompt?.length ?? 0) > 25 ? [400, '{}'] : [0, text],
    ],
  ] as [string, string, number, Parameters<typeof oddEngine>[0]][])('%s: %s', async (_what, words, status, odd) => {
    const engine = await oddEngine(odd);
    const file = join(await answers([1]), '1.json');
    const { code, output } = await audit(file, '--engine', engine.url);
    engine.close();
    expect([code, output]).toEqual([status, expect.stringContaining(words)]);
    expect((await audit(file)).code).toBe(3);
  });

  it('SGLang is asked in its own way', async () => {
    const engine = await sglang();
    const { code, output } = await audit(await answers(upTo(8)), '--engine', engine.url);
    engine.close();
    expect([code, output]).toEqual([0, expect.stringContaining('CONSISTENT: 8 answers')]);
  }, 60_000);
});

/** The demo engine behind SGLang's endpoints. */
async function sglang() {
  const to = async (path: string, body: object) =>
    // biome-ignore lint/suspicious/noExplicitAny: vLLM's members
    (await fetch(service.engine + path, { method: 'POST', body: JSON.stringify(body) })).json() as Promise<any>;
  const work: Readonly<Record<string, (body: Record<string, unknown>) => Promise<unknown>>> = {
    '/v1/models': async () => ({ data: [{ id: 'countersign-demo', owned_by: 'sglang' }] }),
    '/tokenize': ({ prompt }) => to('/tokenize', { prompt }),
    '/detokenize': async ({ tokens }) => ({ text: (await to('/detokenize', { tokens })).prompt }),
    '/v1/chat/completions': async ({ messages }) => {
      const { tokens } = await to('/tokenize', { messages });
      return { choices: [{ prompt_token_ids: tokens }] };
    },
    '/generate': async ({ input_ids, top_logprobs_num }) => {
      const asked = { prompt: input_ids, max_tokens: 1, prompt_logprobs: top_logprobs_num };
      const rows = (await to('/v1/completions', asked)).choices[0].prompt_logprobs as Record<
        string,
        { logprob: number; rank: number }
      >[];
      const best = rows.map((row) => Object.entries(row ?? {}).filter(([, { rank }]) => rank <= 20));
      return {
        meta_info: {
          input_token_logprobs: (input_ids as number[]).map((id, i) => [rows[i]?.[id]?.logprob ?? null, id, null]),
          input_top_logprobs: best.map((row) => row.map(([id, { logprob }]) => [logprob, Number(id), null])),
        },
      };
    },
  };
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', async () => {
      const body = Buffer.concat(parts).toString();
      const answer = await work[request.url ?? '']?.(body === '' ? {} : JSON.parse(body));
      response.writeHead(answer === undefined ? 404 : 200).end(JSON.stringify(answer ?? {}));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => server.close() };
}
