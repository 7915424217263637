import { describe, expect, inject, it } from 'vitest';
import { ask } from '../support/client.ts';
import { eventually } from '../support/harness.ts';
import { startLoad } from './load.ts';
import { type Made, stageOf } from './stage.ts';

const made = inject('containers');
const MB = 1e6;
const GATEWAY_LAYER_BYTES = 60 * MB;
const FIRST_ANSWER_MS = 15_000;

describe.skipIf('missing' in made)('the demo profile', () => {
  const { sizes, first_answer_ms } = made as Made;
  const stage = stageOf(made as Made);
  const chat = (body: object) =>
    ask(`${stage.url}/v1/chat/completions`, { headers: stage.headers, body: JSON.stringify(body) });
  const HELLO = [{ role: 'user', content: 'Hello' }];

  it('gives its first verified answer within 15 s of compose up', () => {
    console.log(`compose up to the first verified answer: ${(first_answer_ms / 1000).toFixed(1)} s`);
    expect(first_answer_ms).toBeLessThan(FIRST_ANSWER_MS);
  });

  it('is of images whose own layers are small', () => {
    for (const [name, { total, own }] of Object.entries(sizes))
      console.log(`image ${name}: ${(total / MB).toFixed(0)} MB, ${(own / MB).toFixed(1)} MB of them over its base`);
    expect(sizes.gateway.own).toBeLessThan(GATEWAY_LAYER_BYTES);
  });

  it('refuses anybody who has no key, and answers without tee as without a sidecar', async () => {
    const refused = await ask(`${stage.url}/v1/models`, { method: 'GET' });
    expect([refused.status, refused.json().error.code]).toEqual([401, 'invalid_api_key']);
    const plain = await chat({ messages: HELLO, max_tokens: 4 });
    expect([plain.status, plain.json().attestation]).toEqual([200, undefined]);
  });

  it('proves a stream under load', async () => {
    const load = startLoad(stage, 10);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    const outcomes = await load.stop();
    expect(outcomes.length).toBeGreaterThan(5);
    expect(outcomes.filter(({ wrong }) => wrong !== null)).toEqual([]);
  });

  it('says healthy of every container', async () => {
    for (const service of ['demo-backend', 'demo-sidecar', 'demo-gateway'])
      await eventually(
        async () =>
          (await stage.docker('inspect', '-f', '{{.State.Health.Status}}', stage.container(service))).trim() ===
          'healthy',
        60_000,
      );
    const said = await stage.docker('inspect', '-f', '{{json .State.Health.Log}}', stage.container('demo-sidecar'));
    // Before it is ready there may be others.
    expect(JSON.parse(said).at(-1).Output).toBe('simulated: ready\n');
  });

  it('chats without tee while the sidecar is away, and refuses tee in words', async () => {
    await stage.compose('stop', 'demo-sidecar');
    const ended = await stage.docker('inspect', '-f', '{{.State.ExitCode}}', stage.container('demo-sidecar'));
    expect(ended.trim()).toBe('0');
    const plain = await chat({ messages: HELLO, max_tokens: 4 });
    expect(plain.status).toBe(200);
    const waiting = chat({ messages: HELLO, max_tokens: 4, tee: true });
    expect((await ask(`${stage.url}/health`, { method: 'GET' })).json().status).toBe('degraded');
    await stage.compose('start', 'demo-sidecar');
    expect((await waiting).json().attestation.nonce).toMatch(/^[0-9a-f]{64}$/);
  });

  it('is there while its backend is not, says so, and serves once it is', async () => {
    const health = () => ask(`${stage.url}/health`, { method: 'GET' });
    await stage.compose('stop', 'demo-backend');
    await stage.compose('up', '--detach', '--no-build', '--no-deps', '--force-recreate', 'demo-gateway');
    await eventually(
      () =>
        health().then(
          ({ status }) => status === 503,
          () => false,
        ),
      30_000,
    );
    expect((await health()).json()).toMatchObject({ status: 'down' });
    const refused = await chat({ messages: HELLO, max_tokens: 4 });
    expect([refused.status, refused.json().error.code]).toEqual([502, 'backend_unreachable']);
    await stage.compose('start', 'demo-backend');
    await eventually(() => chat({ messages: HELLO, max_tokens: 4 }).then(({ status }) => status === 200), 30_000);
  });

  it('lets a running stream end, proven, when the gateway is told to stop', async () => {
    let stopped: Promise<string> | null = null;
    const answer = await ask(`${stage.url}/v1/chat/completions`, {
      headers: stage.headers,
      body: JSON.stringify({ messages: HELLO, max_tokens: 600, ignore_eos: true, stream: true, tee: true }),
      onData: () => {
        stopped ??= stage.compose('stop', 'demo-gateway');
      },
    });
    await stopped;
    const ended = await stage.docker('inspect', '-f', '{{.State.ExitCode}}', stage.container('demo-gateway'));
    await stage.compose('start', 'demo-gateway');
    expect(answer.complete).toBe(true);
    const payloads = answer.payloads();
    expect(payloads.at(-1)).toBe('[DONE]');
    expect(payloads.filter((one) => one.includes('"attestation":'))).toHaveLength(1);
    expect(ended.trim()).toBe('0');
  });
});
