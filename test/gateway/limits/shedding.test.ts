// Past capacity: what was accepted is served as if nothing were wrong, and the rest costs next to nothing.
import { Agent, request } from 'node:http';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { chatStream, DONE, delta, finish, role } from '../../support/backend.ts';
import { CHAT, chat } from '../../support/client.ts';
import { eventually } from '../../support/harness.ts';
import { bearer, type Stage, startStage } from './limits-stage.ts';

vi.setConfig({ testTimeout: 60_000 });

let stage: Stage;

beforeAll(async () => {
  stage = await startStage();
});
afterAll(() => stage.close());

const REFUSALS = 2_000;

describe('a storm past capacity', () => {
  it('leaves accepted streams whole, tee and plain, is refused in words, and asks the backend nothing', async () => {
    const { backend } = stage.service;
    let over = false;
    // A word now and then for as long as the storm lasts.
    backend.script = async (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(role());
      while (!over) {
        response.write(delta('word '));
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      response.end(delta('last') + finish() + DONE);
    };
    const url = await stage.gateway({
      MAX_CONCURRENT_REQUESTS: '10',
      limits: { max_streams: 10, max_connections: 1_000 },
    });
    const accepted = Array.from({ length: 10 }, (_, i) => chat(url, { ...CHAT, stream: true, tee: i % 2 === 0 }));
    await eventually(() => backend.seen.length === 10, 30_000);
    const refused = await storm(url, {}, REFUSALS);
    over = true;
    expect(refused).toEqual(new Map([['503 overloaded', REFUSALS]]));
    for (const [i, one] of (await Promise.all(accepted)).entries()) {
      expect(one.status).toBe(200);
      expect(one.payloads().at(-1)).toBe('[DONE]');
      expect(one.text).toContain('"last"');
      expect(one.text.includes('"attestation":')).toBe(i % 2 === 0);
    }
    expect(backend.seen).toHaveLength(10);
  });

  it('of one key is that key’s own: another is served in the middle of it', async () => {
    const { backend } = stage.service;
    backend.seen.length = 0;
    backend.script = chatStream(['one', ' two', ' three'], 5);
    const url = await stage.gateway({}, ['noisy concurrent=2 rps=5', 'quiet']);
    const noise = storm(url, bearer('noisy'), REFUSALS);
    for (let i = 0; i < 10; i++) {
      const got = await chat(url, { ...CHAT, stream: true, tee: i % 2 === 0 }, bearer('quiet'));
      expect([got.status, got.payloads().at(-1)]).toEqual([200, '[DONE]']);
    }
    const responses = await noise;
    expect(responses.get('429 rate_limit_exceeded') ?? 0).toBeGreaterThan(REFUSALS * 0.9);
    expect([...responses.keys()].filter((answer) => !/^(200|429)/.test(answer))).toEqual([]);
  });
});

/** So many requests over 32 kept connections; how often each answer came. */
async function storm(url: string, headers: Record<string, string>, total: number): Promise<Map<string, number>> {
  const agent = new Agent({ keepAlive: true, maxSockets: 32 });
  const responses = new Map<string, number>();
  const body = JSON.stringify({ ...CHAT, stream: true });
  let sent = 0;
  const one = () =>
    new Promise<void>((resolve, reject) => {
      const outgoing = request(`${url}/v1/chat/completions`, { method: 'POST', agent, headers }, async (incoming) => {
        let text = '';
        for await (const chunk of incoming) text += chunk;
        const code = incoming.statusCode === 200 ? '' : ` ${JSON.parse(text).error.code}`;
        const response = `${incoming.statusCode}${code}`;
        responses.set(response, (responses.get(response) ?? 0) + 1);
        resolve();
      });
      outgoing.on('error', reject).end(body);
    });
  await Promise.all(
    Array.from({ length: 32 }, async () => {
      while (sent++ < total) await one();
    }),
  );
  agent.destroy();
  return responses;
}
