// The sidecar as a process that is killed and started again while requests run.
import { createHash } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { splitRaw } from '../../../proto/attestation/raw.ts';
import { answer, chatBody, chatStream } from '../../support/backend.ts';
import { type Answer, ask, chat } from '../../support/client.ts';
import { type Restartable, startRestartable } from '../../support/sidecar-process.ts';

let service: Restartable;

beforeEach(async () => {
  service = await startRestartable();
});
afterEach(() => service.close());

describe('the sidecar killed and started again under a steady stream of requests', () => {
  it.each([
    ['', 'off'],
    [', each in the session that its raw names', 'required'],
  ])(
    'loses no answer, crosses none, and leaves none without proof%s',
    async (_, cpu) => {
      let sidecar = service.startSidecar(cpu);
      await service.healthy();
      let number = 0;
      service.backend.script = (request, response) => {
        const { stream, messages } = JSON.parse(request.body);
        if (stream) void chatStream(['answer to ', messages[0].content], 2)(request, response);
        else void answer(chatBody(`answer to ${messages[0].content}`))(request, response);
      };
      const asked: { tee: boolean; stream: boolean; text: string; got: Promise<Answer>; ms: number }[] = [];
      const send = () => {
        const n = number++;
        const one = { tee: n % 4 !== 3, stream: n % 2 === 0, text: `question ${n}` };
        const started = performance.now();
        const record = {
          ...one,
          ms: 0,
          got: chat(service.gateway.url, {
            messages: [{ role: 'user', content: one.text }],
            stream: one.stream,
            ...(one.tee ? { tee: true } : {}),
          }),
        };
        void record.got.then(() => {
          record.ms = performance.now() - started;
        });
        asked.push(record);
      };
      const timer = setInterval(send, 30);
      for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
        await new Promise((resolve) => setTimeout(resolve, 700));
        await sidecar.kill(signal);
        sidecar = service.startSidecar(cpu);
        await service.healthy();
      }
      await new Promise((resolve) => setTimeout(resolve, 500));
      clearInterval(timer);

      let proven = 0;
      for (const { tee, stream, text, got } of asked) {
        const answered = await got;
        expect([text, answered.status, answered.complete]).toEqual([text, 200, true]);
        if (!tee) {
          expect(answered.text).not.toContain('attestation');
          continue;
        }
        const attestation = stream
          ? answered
              .payloads()
              .map((one) => (one.startsWith('{') ? JSON.parse(one).attestation : undefined))
              .find((one) => one !== undefined)
          : answered.json().attestation;
        expect(attestation.nonce).toBe(createHash('sha256').update(attestation.raw).digest('hex'));
        const { statement } = attestation.cpu ?? {};
        expect(statement !== undefined).toBe(cpu === 'required');
        const session = statement === undefined ? undefined : createHash('sha256').update(statement).digest('hex');
        expect(splitRaw(attestation.raw).session).toBe(session);
        expect(JSON.parse(splitRaw(attestation.raw).request).messages[0].content).toBe(text);
        expect(JSON.parse(splitRaw(attestation.raw).response).choices[0].message.content).toBe(`answer to ${text}`);
        // The root is kept: what was signed before a restart verifies after it.
        const verdict = await ask(`${service.gateway.url}/~sev_gpu@1.0/verify`, { body: JSON.stringify(attestation) });
        expect(verdict.text).toBe('true');
        proven++;
      }
      expect(proven).toBeGreaterThan(30);
      const untouched = asked
        .filter((one) => !one.tee)
        .map((one) => one.ms)
        .sort((a, b) => a - b);
      // Requests without tee never notice: none waited for a restart, which takes hundreds of milliseconds.
      expect(untouched[Math.floor(untouched.length / 2)]).toBeLessThan(200);
    },
    60_000,
  );
});
