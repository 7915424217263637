// The demo engine's /v1/responses, asked by OpenAI's client: directly, and with every answer proven.
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createEngine } from '../../demo/engine/engine.ts';
import { type RunningEngine, startEngine } from '../../demo/engine/server.ts';
import { verifyingFetch } from '../../verify/clients/fetch.ts';
import type { Verified } from '../../verify/index.ts';
import {
  type RunningGateway,
  type RunningSidecar,
  startGateway,
  startSidecar,
  temporaryFolder,
} from '../support/harness.ts';

const SAME = { model: 'any', temperature: 0, max_output_tokens: 12 };

describe('the demo engine, asked for responses', () => {
  const folder = temporaryFolder();
  let engine: RunningEngine;
  let sidecar: RunningSidecar;
  let gateway: RunningGateway;
  beforeAll(async () => {
    engine = await startEngine({ engine: createEngine() });
    sidecar = await startSidecar(folder);
    gateway = await startGateway({ BACKEND_URL: `${engine.url}/v1`, SIDECAR_SOCKET: sidecar.socket });
  });
  afterAll(async () => {
    await gateway.close();
    await sidecar.close();
    await engine.close();
    folder.remove();
  });

  const client = (url: string, fetch?: typeof globalThis.fetch) =>
    new OpenAI({ baseURL: `${url}/v1`, apiKey: 'any', maxRetries: 0, ...(fetch === undefined ? {} : { fetch }) });

  it.each([
    ['a text', 'Good day'],
    ['messages', [{ role: 'user' as const, content: [{ type: 'input_text' as const, text: 'Good day' }] }]],
  ])('says the same whole and streamed, as it does in a chat: %s', async (_name, input) => {
    const { responses, chat } = client(engine.url);
    const whole = await responses.create({ ...SAME, input });
    expect(whole).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } });
    expect(whole.usage).toMatchObject({ output_tokens: 12 });
    const stream = responses.stream({ ...SAME, input });
    let text = '';
    const types: string[] = [];
    for await (const event of stream) {
      types.push(event.type);
      if (event.type === 'response.output_text.delta') text += event.delta;
    }
    expect([types[0], types.at(-1)]).toEqual(['response.created', 'response.incomplete']);
    const messages = [{ role: 'user' as const, content: 'Good day' }];
    const said = await chat.completions.create({ model: 'any', temperature: 0, max_completion_tokens: 12, messages });
    expect([whole.output_text, text]).toEqual([said.choices[0]?.message.content, said.choices[0]?.message.content]);
    expect(text.length).toBeGreaterThan(10);
  });

  it('heeds instructions, and says what is wrong with a request', async () => {
    const { responses } = client(engine.url);
    const { usage } = await responses.create({ ...SAME, input: 'Hi' });
    const instructed = await responses.create({ ...SAME, input: 'Hi', instructions: 'Be brief.' });
    expect(instructed.usage?.input_tokens).toBeGreaterThan(usage?.input_tokens ?? 0);
    await expect(responses.create({ ...SAME, input: [] })).rejects.toMatchObject({ status: 400, param: 'input' });
  });

  it('is proven, whole and streamed, for a client with a verifying fetch', async () => {
    const proofs: Verified[] = [];
    const simulatedRoot = sidecar.attester.simulated?.root;
    const { responses } = client(
      gateway.url,
      verifyingFetch({ simulatedRoot, onVerified: (one) => void proofs.push(one) }),
    );
    const whole = await responses.create({ ...SAME, input: 'Good day' });
    const final = await responses.stream({ ...SAME, input: 'Good day' }).finalResponse();
    expect(final.output_text).toBe(whole.output_text);
    expect(proofs.map(({ exchange }) => [exchange.endpoint, exchange.stream === null])).toEqual([
      ['/v1/responses', true],
      ['/v1/responses', false],
    ]);
  });
});
