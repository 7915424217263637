// The judge itself: what must never happen is called so when it happens.
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { chatBody, DONE, delta, event, finish } from '../support/backend.ts';
import { chat } from '../support/client.ts';
import { see } from './seen.ts';
import { Stage } from './stage.ts';
import { answerTo, eventsFor } from './words.ts';

let stage: Stage;
let impostor: Server | null = null;
beforeAll(async () => {
  stage = await Stage.start();
}, 60_000);
afterAll(() => stage?.close());
afterEach(() => {
  impostor?.closeAllConnections();
  impostor?.close();
});

const asked = { question: 'mine', stream: true, tee: true, hang_ms: 3_000 };
const FINISH = { id: 'chatcmpl-1', choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] };

/** In the gateway's place. */
async function instead(listener: RequestListener, question: object = {}): Promise<string> {
  const server = createServer(listener);
  impostor = server;
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return see(url, { ...asked, ...question }, () => stage.root);
}

const says =
  (text: string): RequestListener =>
  (_request, response) =>
    void response.writeHead(200).end(text);

const body = (question: string) => ({ model: 'scripted', messages: [{ role: 'user', content: question }] });

describe('the judge of what clients saw', () => {
  it('knows a right answer', async () => {
    expect(await see(stage.url, asked, () => stage.root)).toBe('stop with its proof');
    expect(await see(stage.url, { ...asked, stream: false }, () => stage.root)).toBe('the answer with its proof');
  });

  it.each([
    ['stop without proof', eventsFor('mine').join('')],
    ["another's answer", eventsFor('yours').join('')],
    ["another's answer", delta('answer ') + delta('to ') + delta('yours')],
    ["stop before the answer's end", delta('answer ') + finish() + DONE],
    ['an end without stop or error', delta('answer ')],
    ['[DONE] without stop', delta('answer ') + DONE],
    ['stop twice', finish() + finish()],
  ])('calls it by its name: %s', async (name, text) => {
    expect(await instead(says(text))).toBe(`NEVER: ${name}`);
  });

  it("calls another's proof wrong, and one over other bytes", async () => {
    const other = (await chat(stage.url, { ...body('yours'), stream: true, tee: true })).payloads();
    const theirs = other.map((one) => (one.startsWith('{') ? JSON.parse(one).attestation : undefined)).find(Boolean);
    const words = delta(answerTo('mine'));
    const crossed = words + event({ ...FINISH, attestation: theirs }) + DONE;
    expect(await instead(says(crossed))).toBe('NEVER: a proof that is wrong: request_mismatch');

    const own = await chat(stage.url, { ...body('mine'), stream: true, tee: true });
    const cutShort = own.text.replace(delta('answer '), '').replace(delta('to '), delta('answer to '));
    expect(await instead(says(cutShort))).toBe('NEVER: a proof that is wrong: stream_mismatch');
    const forged = own.text.replace(/"nonce":"[0-9a-f]{8}/, '"nonce":"00000000');
    expect(await instead(says(forged))).toMatch(/^NEVER: a proof that is wrong: /);
  });

  it('calls a whole answer without proof, or of another, by its name', async () => {
    const whole = { stream: false };
    expect(await instead(says(chatBody(answerTo('mine'))), whole)).toMatch(/^NEVER: a proof that is wrong/);
    expect(await instead(says(chatBody(answerTo('yours'))), whole)).toBe("NEVER: another's answer");
  });

  it('calls a hang a hang', async () => {
    expect(await instead(() => {})).toBe('NEVER: hung');
    expect(await instead((_request, response) => void response.write(delta('answer ')))).toBe('NEVER: hung');
  });
});
