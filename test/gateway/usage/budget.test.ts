// A budget of tokens binds: whatever a client leaves out or leaves early, and however many requests it sends at once.
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it, onTestFinished } from 'vitest';
import { UsageChunkFilter } from '../../../gateway/exchange/usage-chunk.ts';
import { charged, estimateOf, USUAL_OUTPUT, withUsageAsked } from '../../../gateway/usage/budget.ts';
import { NO_TOKENS } from '../../../gateway/usage/llm-tokens.ts';
import { chatAnswer, chatBody, DONE, delta, finish, role, stream, usage } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually } from '../../support/harness.ts';
import { post } from '../../support/raw.ts';
import { expectError } from '../expect-error.ts';
import { bearer, holdResponses, type Stage, startStage } from '../limits/limits-stage.ts';

let stage: Stage;
afterEach(async () => stage?.close());

const spentBy = async (url: string, name: string): Promise<number> =>
  (await ask(`${url}/usage`, { method: 'GET', headers: bearer(name) })).json().tokens_today;
const STREAM = { ...CHAT, stream: true };

describe('requests at once', () => {
  it('reserve what they may cost: 200 of 1,000 tokens do not all pass a budget of 1,000', async () => {
    stage = await startStage();
    const url = await stage.gateway({}, ['a tokens-per-day=1000 concurrent=0', 'b']);
    const held = holdResponses(stage.service);
    const asked = Array.from({ length: 200 }, () => chat(url, { ...CHAT, max_tokens: 990 }, bearer('a')));
    await eventually(() => held.count === 1);
    // Another key is not held up.
    const other = chat(url, CHAT, bearer('b'));
    await eventually(() => held.count === 2);
    held.release();
    const statuses = (await Promise.all(asked)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(1);
    expect(statuses.filter((status) => status === 429)).toHaveLength(199);
    expect((await other).status).toBe(200);
    // It cost 5 of the 993 that were reserved, so that there is room again.
    expect(await spentBy(url, 'a')).toBe(5);
    expect((await chat(url, { ...CHAT, max_tokens: 900 }, bearer('a'))).status).toBe(200);
  });

  it('without a limit of their own reserve what is left, the usual answer at most', async () => {
    stage = await startStage();
    const url = await stage.gateway({}, [`a tokens-per-day=${USUAL_OUTPUT + 10} concurrent=0`]);
    const held = holdResponses(stage.service);
    let refused = 0;
    const asked = Array.from({ length: 20 }, async () => {
      const got = await chat(url, CHAT, bearer('a'));
      if (got.status === 429) refused++;
      return got;
    });
    await eventually(() => held.count === 2 && refused === 18);
    held.release();
    const statuses = (await Promise.all(asked)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(2);
    expect((await chat(url, CHAT, bearer('a'))).status).toBe(200);
  });

  it('that ask for more than is left are told how much that is', async () => {
    stage = await startStage();
    const url = await stage.gateway({}, ['a tokens-per-day=100']);
    const refused = await chat(url, { ...CHAT, max_tokens: 200 }, bearer('a'));
    expectError(refused, 429, 'insufficient_quota');
    expect(refused.json().error.message).toContain('has 100 left');
    expect(stage.service.backend.seen).toHaveLength(0);
    expect((await chat(url, { ...CHAT, max_tokens: 50 }, bearer('a'))).status).toBe(200);
  });
});

describe('streams of a key with a budget', () => {
  it.each([
    ['chat', '/v1/chat/completions', CHAT],
    ['completions', '/v1/completions', { model: 'scripted', prompt: 'Say hello.' }],
  ])(
    'count the prompt although the client did not ask for the usage, whose chunk it does not get: %s',
    async (_name, path, body) => {
      stage = await startStage();
      const url = await stage.gateway({}, ['a tokens-per-day=1000', 'b']);
      const { backend } = stage.service;
      const pieces = [role(), delta('a'), delta('b'), finish(), usage(), DONE];
      backend.script = stream(pieces);
      const got = await ask(url + path, { body: JSON.stringify({ ...body, stream: true }), headers: bearer('a') });
      expect(JSON.parse(backend.seen[0]?.body ?? '')).toEqual({
        ...body,
        stream: true,
        stream_options: { include_usage: true },
      });
      expect(got.text).toBe(pieces.filter((piece) => piece !== usage()).join(''));
      expect(await spentBy(url, 'a')).toBe(5);
      // Nothing is added for a key without a budget, nor taken out.
      const plain = await ask(url + path, { body: JSON.stringify({ ...body, stream: true }), headers: bearer('b') });
      expect(backend.seen[1]?.body).toBe(JSON.stringify({ ...body, stream: true }));
      expect(plain.text).toBe(pieces.join(''));
    },
  );

  it('have no length where their usage is taken out, though the backend names one', async () => {
    stage = await startStage();
    const url = await stage.gateway({}, ['a tokens-per-day=1000']);
    const pieces = [role(), delta('a'), finish(), usage(), DONE];
    stage.service.backend.script = (_request, response) =>
      void response
        .writeHead(200, { 'content-type': 'text/event-stream', 'content-length': pieces.join('').length })
        .end(pieces.join(''));
    const got = await chat(url, STREAM, bearer('a'));
    expect([got.complete, got.headers['content-length']]).toEqual([true, undefined]);
    expect(got.text).toBe(pieces.filter((piece) => piece !== usage()).join(''));
  });

  it('leave the usage in where the client asked for it, and change nothing with tee', async () => {
    stage = await startStage();
    const url = await stage.gateway({}, ['a tokens-per-day=1000']);
    const { backend } = stage.service;
    const pieces = [role(), delta('a'), finish(), usage(), DONE];
    backend.script = stream(pieces);
    const asking = { ...STREAM, stream_options: { include_usage: true } };
    expect((await chat(url, asking, bearer('a'))).text).toBe(pieces.join(''));
    expect(backend.seen[0]?.body).toBe(JSON.stringify(asking));
    backend.script = stream([role(), delta('a'), finish(), DONE]);
    for (const [body, headers] of [
      [{ ...STREAM, tee: true }, {}],
      [STREAM, { 'x-tee': '1' }],
    ] as const) {
      const before = await spentBy(url, 'a');
      const got = await chat(url, body, { ...bearer('a'), ...headers });
      expect(got.text).toContain('"attestation":');
      expect(backend.seen.at(-1)?.body).not.toContain('stream_options');
      // Prompt and events.
      expect((await spentBy(url, 'a')) - before).toBeGreaterThanOrEqual(4);
    }
  });

  it('that are left at their last event count', async () => {
    stage = await startStage();
    const url = await stage.gateway({}, ['a tokens-per-day=100000']);
    const { backend } = stage.service;
    const deltas = Array.from({ length: 500 }, () => delta('x'));
    backend.script = stream([role(), ...deltas, finish(), null]);
    const { port } = new URL(url);
    const request = post('/v1/chat/completions', JSON.stringify(STREAM), ['authorization: Bearer key-a']);
    for (let i = 1; i <= 3; i++) {
      const socket = connect(Number(port), '127.0.0.1', () => socket.write(request));
      let text = '';
      socket.on('data', (bytes) => {
        text += bytes;
        if (text.includes('"stop"')) socket.destroy();
      });
      socket.on('error', () => {});
      await eventually(async () => (await spentBy(url, 'a')) >= i * 500);
    }
  });
});

describe('whole answers', () => {
  it('that are left before their end count as what was reserved', async () => {
    stage = await startStage();
    const url = await stage.gateway({}, ['a tokens-per-day=20000']);
    const { backend } = stage.service;
    for (const [i, end] of [false, true].entries()) {
      backend.script = async (_request, response) => {
        const body = chatBody('x'.repeat(10_000));
        if (end) response.writeHead(200, { 'content-type': 'application/json', 'content-length': body.length });
        if (end) response.write(body.slice(0, -1));
        await sleep(5_000, undefined, { ref: false });
      };
      const leave = new AbortController();
      const left = fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...bearer('a') },
        body: JSON.stringify({ ...CHAT, max_tokens: 5_500 }),
        signal: leave.signal,
      }).then((response) => response.text());
      left.catch(() => {});
      await eventually(() => backend.seen.length === i + 1);
      await sleep(100);
      leave.abort();
      await eventually(async () => (await spentBy(url, 'a')) >= (i + 1) * 5_500);
    }
    backend.script = chatAnswer('Hello.');
    expect((await chat(url, CHAT, bearer('a'))).status).toBe(200);
  });

  it('that the backend refused, or never gave, cost nothing', async () => {
    stage = await startStage();
    const url = await stage.gateway({}, ['a tokens-per-day=1000']);
    const { backend } = stage.service;
    backend.script = (_request, response) =>
      void response.writeHead(500, { 'content-type': 'application/json' }).end('{"error":{"message":"x"}}');
    expect((await chat(url, CHAT, bearer('a'))).status).toBe(500);
    backend.script = (_request, response) => void response.destroy();
    expect((await chat(url, CHAT, bearer('a'))).status).toBe(502);
    expect(await spentBy(url, 'a')).toBe(0);
    backend.script = chatAnswer('Hello.');
    expect((await chat(url, { ...CHAT, max_tokens: 990 }, bearer('a'))).status).toBe(200);
  });
});

describe('a restart', () => {
  it('does not forget what was spent, with a file beside the audit log', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'countersign-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const log = join(folder, 'audit.jsonl');
    stage = await startStage();
    const before = await stage.gateway({ AUDIT_LOG: log }, ['a tokens-per-day=6']);
    expect((await chat(before, CHAT, bearer('a'))).status).toBe(200);
    await eventually(() => statSync(`${log}.usage`, { throwIfNoEntry: false }) !== undefined, 3_000);
    expect(statSync(`${log}.usage`).mode & 0o077).toBe(0);
    expect(readFileSync(`${log}.usage`, 'utf8')).not.toContain('Hello');
    await stage.close();
    stage = await startStage();
    const after = await stage.gateway({ AUDIT_LOG: log }, ['a tokens-per-day=6', 'b']);
    expect(await spentBy(after, 'a')).toBe(5);
    expectError(await chat(after, CHAT, bearer('a')), 429, 'insufficient_quota');
    expect((await chat(after, CHAT, bearer('b'))).status).toBe(200);
  });

  it('with a file that is not what was written stops the start', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'countersign-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    writeFileSync(join(folder, 'audit.jsonl.usage'), '[{"key":1}]');
    stage = await startStage();
    await expect(stage.gateway({ AUDIT_LOG: join(folder, 'audit.jsonl') }, ['a'])).rejects.toThrow(/usage of keys/);
  });
});

describe('an estimate', () => {
  it.each([
    [{ messages: [{ role: 'user', content: 'x'.repeat(400) }] }, { prompt: 100, output: null }],
    [
      { prompt: [1, 2, 3], max_tokens: 7, n: 2 },
      { prompt: 3, output: 14 },
    ],
    [
      { input: 'four', max_output_tokens: 9 },
      { prompt: 1, output: 9 },
    ],
    [
      { messages: [{ content: `data:image/png;base64,${'A'.repeat(9_000)}` }], max_tokens: 1 },
      { prompt: 1_000, output: 1 },
    ],
    [
      { source: { data: 'A'.repeat(9_000) }, max_tokens: -1 },
      { prompt: 1_000, output: null },
    ],
    [[1], { prompt: 0, output: 0 }],
  ])('of request %#', (request, estimate) => {
    expect(estimateOf(request)).toEqual(estimate);
  });

  it('is replaced by the backend’s count where there is one', () => {
    const counted = { input: 3, output: 2, source: 'backend' } as const;
    const seen = { backend_status: 200, stream: false, complete: true, bytes: 400, left: false };
    expect(charged(counted, { prompt: 9, output: null }, 50, seen)).toBe(counted);
    expect(charged(NO_TOKENS, { prompt: 9, output: null }, 50, seen)).toMatchObject({ input: 9, output: 100 });
    expect(charged(NO_TOKENS, { prompt: 9, output: 20 }, 20, seen)).toMatchObject({ input: 9, output: 20 });
  });
});

describe('asking for the usage', () => {
  it.each([
    ['{"a":1}', '{"a":1,"stream_options":{"include_usage":true}}'],
    ['{"stream_options":null ,"a":1.0}', '{"stream_options":{"include_usage":true} ,"a":1.0}'],
    ['{"stream_options":{"x":1}}', '{"stream_options":{"x":1,"include_usage":true}}'],
    ['{"stream_options":{"include_usage":false}}', '{"stream_options":{"include_usage":true}}'],
    ['{"stream_options":{"include_usage":true}}', null],
    ['{"stream_options":3}', null],
    ['{"stream_options":{},"stream_options":{}}', null],
  ])('of %s', (text, asked) => {
    expect(withUsageAsked(text, JSON.parse(text))).toBe(asked);
  });
});

describe('taking the usage out', () => {
  const last = 'data: {"choices":[],"usage":{"prompt_tokens":1}}';
  const filtered = (chunks: readonly (string | Buffer)[]) => {
    const filter = new UsageChunkFilter();
    return Buffer.concat([...chunks.map((chunk) => filter.take(Buffer.from(chunk))), filter.end()]).toString('utf8');
  };

  it.each(['\n\n', '\r\n\r\n', '\r\r'])(
    'leaves every other byte as it is, however the stream is cut: lines end in %j',
    (end) => {
      const others = [
        'data: {"choices":[{"delta":{"content":"\\"usage\\""}}],"usage":null}',
        ': comment',
        'data: [DONE]',
      ];
      const whole = [others[0], others[1], last, others[2]].map((event) => event + end).join('');
      const rest = others.map((event) => event + end).join('');
      for (let size = 1; size <= whole.length; size++) {
        const chunks = Array.from({ length: Math.ceil(whole.length / size) }, (_, i) =>
          whole.slice(i * size, (i + 1) * size),
        );
        expect(filtered(chunks)).toBe(rest);
      }
    },
  );

  it('passes a long event on as it comes, and an unfinished one at the end', () => {
    const long = `data: {"choices":[],"usage":{"x":"${'y'.repeat(40_000)}"}}\n\n`;
    expect(filtered([long.slice(0, 20_000), long.slice(20_000), `${last}\n\n`, 'data: {"cut'])).toBe(
      `${long}data: {"cut`,
    );
    expect(filtered([last])).toBe('');
  });
});
