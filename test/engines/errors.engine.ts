// llama-server's own errors, `{"error": {"code": 400, "message", "type"}}`, leave the gateway in OpenAI's shape with their status.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ask } from '../support/client.ts';
import { eventually } from '../support/harness.ts';
import { errorBodySchema } from './error-body.ts';
import { MODEL, missing } from './llama-server.ts';
import { type Stage, startStage } from './stage.ts';

const CHAT = { model: MODEL, max_tokens: 4, messages: [{ role: 'user', content: 'Hi' }] };
const LONG = 'word '.repeat(5_000);

const WRONG: Record<string, { path?: string; body: object; status: number; says: RegExp }> = {
  'a grammar that cannot be parsed': { body: { ...CHAT, grammar: 'root ::= (' }, status: 400, says: /grammar/ },
  'a temperature in words': { body: { ...CHAT, temperature: 'hot' }, status: 400, says: /temperature/ },
  'more choices than it has slots': { body: { ...CHAT, n: 9 }, status: 400, says: /'n'/ },
  'content that is a number': {
    body: { ...CHAT, messages: [{ role: 'user', content: 5 }] },
    status: 400,
    says: /content/,
  },
  'a prompt longer than its context': {
    body: { ...CHAT, messages: [{ role: 'user', content: LONG }] },
    status: 400,
    says: /context size/,
  },
  'a completion without a prompt': { path: '/completions', body: { max_tokens: 4 }, status: 400, says: /prompt/ },
};

describe.skipIf(missing !== null)(`errors of llama-server${missing === null ? '' : ` (no ${missing})`}`, () => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await startStage();
  });
  afterAll(() => stage?.close());

  for (const [name, { path = '/chat/completions', body, status, says }] of Object.entries(WRONG)) {
    for (const more of [{}, { stream: true }, { tee: true }, { stream: true, tee: true }]) {
      it(`${name} is told in OpenAI's shape, ${JSON.stringify(more)}`, async () => {
        const answer = await ask(`${stage.gateway.url}/v1${path}`, { body: JSON.stringify({ ...body, ...more }) });
        expect(answer.status, answer.text).toBe(status);
        expect(answer.headers['content-type']).toBe('application/json');
        const { error } = errorBodySchema.parse(answer.json());
        expect(error.message).toMatch(says);
        expect(error.code).toMatch(/^[a-z_]+$/);
        const id = answer.headers['x-attestation-id'];
        if (!('tee' in more)) return expect(id).toBeUndefined();
        const kept = await ask(`${stage.gateway.url}/v1${path}/${id}/attestation`, { method: 'GET' });
        expect(kept.status).toBe(404);
      });
    }
  }

  it('what it was not started for keeps its 501', async () => {
    const answer = await ask(`${stage.gateway.url}/v1/embeddings`, { body: JSON.stringify({ input: 'x' }) });
    expect(answer.status).toBe(501);
    expect(errorBodySchema.parse(answer.json()).error.message).toMatch(/embeddings/);
  });

  it('a path it does not have keeps its 404', async () => {
    const answer = await ask(`${stage.gateway.url}/v1/nothing`, { body: '{}' });
    expect(answer.status).toBe(404);
    errorBodySchema.parse(answer.json());
  });

  it('leaves no slot busy', async () => {
    await eventually(async () => (await stage.engine.busySlots()) === 0);
  });
});
