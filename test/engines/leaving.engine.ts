// Somebody leaves in the middle: a client, and its slot is free within a second; the engine, and nobody is told "stop".
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ask } from '../support/client.ts';
import { eventually } from '../support/harness.ts';
import { errorBodySchema } from './error-body.ts';
import { MODEL, missing } from './llama-server.ts';
import { type Stage, startStage } from './stage.ts';

/** Minutes of work. */
const ENDLESS = {
  model: MODEL,
  max_tokens: 1_000_000,
  ignore_eos: true,
  messages: [{ role: 'user', content: 'Tell me everything.' }],
};
const WITHIN_MS = 1_000;
/** llama-server looks once a second whether the client of a whole answer is still there. */
const NOTICED_WITHIN_MS = 1_000 + WITHIN_MS;

describe.skipIf(missing !== null)(`leaving llama-server${missing === null ? '' : ` (no ${missing})`}`, () => {
  let stage: Stage;
  beforeEach(async () => {
    stage = await startStage();
  });
  afterEach(() => stage?.close());

  for (const tee of [false, true]) {
    it(`a client that leaves its stream frees the slot, tee: ${tee}`, async () => {
      const answer = await chat({ ...ENDLESS, stream: true, tee }, (_chunk, bytes) => bytes < 20_000);
      expect(answer.complete).toBe(false);
      await eventually(idle, WITHIN_MS);
      expect(answer.text).not.toContain('attestation":');
    });

    it(`a client that leaves before its whole answer frees the slot, tee: ${tee}`, async () => {
      const leave = new AbortController();
      const asked = fetch(`${stage.gateway.url}/v1/chat/completions`, {
        method: 'POST',
        body: JSON.stringify({ ...ENDLESS, tee }),
        signal: leave.signal,
      });
      await eventually(async () => (await stage.engine.busySlots()) === 1);
      leave.abort();
      await expect(asked).rejects.toMatchObject({ name: 'AbortError' });
      await eventually(() => stage.engine.cancelled() === 1, NOTICED_WITHIN_MS);
      await eventually(idle, WITHIN_MS);
    });

    it(`an engine that dies in its stream gives an error and no finish chunk, tee: ${tee}`, async () => {
      const answer = await chat({ ...ENDLESS, stream: true, tee }, (_chunk, bytes) => {
        if (bytes > 20_000) stage.engine.kill();
        return true;
      });
      const last = answer.payloads().at(-1) as string;
      expect(errorBodySchema.parse(JSON.parse(last)).error.code).toBe('backend_bad_response');
      expect(answer.text).not.toMatch(/"finish_reason":"/);
      expect(answer.text).not.toContain('[DONE]');
      const next = await chat({ ...ENDLESS, tee });
      expect(next.status).toBe(502);
      expect(next.json().error.code).toBe('backend_unreachable');
    });
  }

  it('a third client waits its turn and gets its answer when one of two leaves', async () => {
    const leavers = [0, 1].map(() => {
      const leave = new AbortController();
      const asked = fetch(`${stage.gateway.url}/v1/chat/completions`, {
        method: 'POST',
        body: JSON.stringify(ENDLESS),
        signal: leave.signal,
      }).catch(() => 'left');
      return { leave, asked };
    });
    await eventually(async () => (await stage.engine.busySlots()) === 2);
    const third = chat({ ...ENDLESS, max_tokens: 4, tee: true });
    leavers[0]?.leave.abort();
    expect((await third).status).toBe(200);
    leavers[1]?.leave.abort();
    expect(await Promise.all(leavers.map((one) => one.asked))).toEqual(['left', 'left']);
    await eventually(() => stage.engine.cancelled() === 2, NOTICED_WITHIN_MS);
    await eventually(idle, WITHIN_MS);
  });

  const idle = async () => (await stage.engine.busySlots()) === 0;

  function chat(body: object, stay: (chunk: Buffer, bytes: number) => boolean = () => true) {
    let bytes = 0;
    return ask(`${stage.gateway.url}/v1/chat/completions`, {
      body: JSON.stringify(body),
      onData: (chunk) => {
        bytes += chunk.length;
        return stay(chunk, bytes);
      },
    });
  }
});
