// What every client is held to: the same behaviours, whatever its API looks like.
import { expect, it } from 'vitest';
import { MODEL_ID } from '../../demo/engine/engine.ts';
import type { Client, Outcome, Question } from './driver.ts';
import type { Matrix } from './matrix.ts';
import { expectProof } from './proof.ts';
import { ANSWER, MODELS } from './scripts.ts';
import type { Service } from './service.ts';

const DELIVERIES = ['whole', 'stream'] as const;
const LEFT_WITHIN_MS = 1_000;

/** @param service called when a test runs: it starts in beforeAll */
export function suite(client: Client, matrix: Matrix, service: () => Service): void {
  let number = 0;
  const ask = (given: Partial<Question> = {}) => {
    const { url, key } = service();
    return client.ask({
      baseURL: url,
      apiKey: key,
      model: 'hello',
      content: `Good day. (${++number})`,
      delivery: 'whole',
      tee: 'off',
      tools: false,
      endpoint: 'chat',
      leave: false,
      ...given,
    });
  };
  const proven = async (outcome: Outcome) => {
    for (const attestation of Object.values(outcome.found)) await expectProof(service(), attestation, outcome);
    expect(Object.keys(outcome.found).length).toBeGreaterThan(0);
  };
  const answered = (outcome: Outcome, text: string, finish = 'stop') =>
    expect([outcome.failure, outcome.text, outcome.finish]).toEqual([null, text, finish]);

  for (const delivery of DELIVERIES) {
    it(`has its ${delivery} answer without tee, and finds no attestation`, async () => {
      const got = await ask({ delivery });
      answered(got, ANSWER);
      expect(Object.values(got.found).filter((one) => one !== undefined)).toEqual([]);
      expect(service().seen.at(-1)?.body).toBe(got.sent);
      matrix.passed(client.name, delivery, null);
    });

    for (const tee of ['body', 'header'] as const)
      it(`finds the proof of its ${delivery} answer when it asks for tee by ${tee}`, async () => {
        const got = await ask({ delivery, tee });
        answered(got, ANSWER);
        await proven(got);
        const { tee: asked, ...rest } = JSON.parse(got.sent);
        expect(asked).toBe(tee === 'body' ? true : undefined);
        expect(JSON.parse(service().seen.at(-1)?.body ?? '')).toEqual(rest);
        for (const found of Object.keys(got.found))
          matrix.passed(client.name, delivery, { asked: client.asks[tee], found });
      });

    it(`has its tool call ${delivery}, with and without tee`, async () => {
      for (const tee of ['off', 'body'] as const) {
        const got = await ask({ delivery, tee, model: 'tools', tools: true });
        expect(got.failure).toBeNull();
        expect(JSON.parse(got.text)).toEqual({ city: 'Paris' });
        expect(got.finish).toMatch(/^tool[_-]calls$/);
        if (tee === 'body') await proven(got);
      }
    });

    if (client.endpoints.includes('text'))
      it(`has a text completion ${delivery}, with and without tee`, async () => {
        for (const tee of ['off', 'body'] as const) {
          const got = await ask({ delivery, tee, endpoint: 'text' });
          answered(got, ANSWER);
          if (tee === 'body') await proven(got);
        }
      });

    it(`has the proof of what the demo engine says, ${delivery}`, async () => {
      const got = await ask({ delivery, tee: 'body', baseURL: service().demoUrl, model: MODEL_ID });
      expect([got.failure, got.finish]).toEqual([null, expect.stringMatching(/^(stop|length)$/)]);
      expect(got.text.length).toBeGreaterThan(0);
      await proven(got);
    });

    it(`throws when the backend dies under its ${delivery} answer, with and without tee`, async () => {
      for (const tee of ['off', 'body'] as const) {
        const got = await ask({ delivery, tee, model: 'dies' });
        expect(got.failure?.code).toMatch(/^backend_(bad_response|unreachable)$/);
        expect(got.finish).not.toBe('stop');
        expect(ANSWER.startsWith(got.text) && (got.text === '') === (delivery === 'whole')).toBe(true);
      }
    });
  }

  it('throws when the connection breaks under its stream', async () => {
    const got = await ask({ delivery: 'stream', model: 'tears' });
    expect(got.failure).not.toBeNull();
    expect([got.text !== '', got.finish === 'stop']).toEqual([true, false]);
  });

  it('throws its own error for a bad request, with the message and the code of the gateway', async () => {
    const { failure } = await ask({ tee: 'wrong' });
    expect(failure).toEqual({
      type: client.errors[400],
      status: 400,
      code: 'invalid_request',
      message: expect.stringContaining('tee: '),
    });
  });

  it('throws its own error for a wrong key', async () => {
    for (const delivery of DELIVERIES) {
      const { failure } = await ask({ apiKey: 'sk-wrong', delivery });
      expect(failure).toEqual({
        type: client.errors[401],
        status: 401,
        code: 'invalid_api_key',
        message: expect.stringContaining('Send a valid API key'),
      });
    }
  });

  it("throws its own error for the backend's rate limit, in the backend's words", async () => {
    const { failure } = await ask({ model: 'limited' });
    expect(failure).toEqual({
      type: client.errors[429],
      status: 429,
      code: 'slow_down',
      message: expect.stringContaining('Too many.'),
    });
  });

  it('throws its own error for a whole answer that the GPU did not prove', async () => {
    const got = await ask({ tee: 'body', baseURL: service().unprovenUrl });
    expect(got).toMatchObject({ text: '', finish: null });
    expect(got.failure).toMatchObject({ type: client.errors[503], status: 503, code: 'attestation_unavailable' });
  });

  it('throws at the end of a stream that the GPU did not prove, and never hears "stop"', async () => {
    const got = await ask({ tee: 'body', delivery: 'stream', baseURL: service().unprovenUrl });
    expect([got.text, got.failure?.code]).toEqual([ANSWER, 'attestation_unavailable']);
    expect(got.finish).not.toBe('stop');
  });

  it('leaves in the middle of a stream, and the backend sees it', async () => {
    for (const tee of ['off', 'body'] as const) {
      const content = `Never end. (${client.name} ${tee})`;
      const got = await ask({ model: 'endless', delivery: 'stream', tee, content, leave: true });
      expect([got.text !== '', got.finish]).toEqual([true, null]);
      await service().left(content, LEFT_WITHIN_MS);
    }
  });

  const { models } = client;
  if (models !== undefined)
    it('lists the models', async () => {
      expect(await models(service().url, service().key)).toEqual([...MODELS]);
    });
}
