// The sealed fetch before a real gateway, and the verifying fetch over it: what an OpenAI client gets, and whose session its proof is of.
import { generateText } from 'ai';
import OpenAI from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createSimulatedCpu } from '../../../demo/twin/cpu.ts';
import { createCountersign } from '../../../verify/clients/ai-sdk.ts';
import { type VerifyingFetchOptions, verifyingFetch } from '../../../verify/clients/fetch.ts';
import { ChatCountersign } from '../../../verify/clients/langchain.ts';
import { type SealedFetchOptions, type SealedSession, sealedFetch } from '../../../verify/clients/sealed.ts';
import type { Verified } from '../../../verify/index.ts';
import { answer, chatAnswer, chatStream, DONE, delta, finish, role } from '../../support/backend.ts';
import {
  type Folder,
  type RunningSidecar,
  type Service,
  startService,
  startSidecar,
  temporaryFolder,
} from '../../support/harness.ts';
import { messageBody, messageEvents, namedStream, responseBody, responseEvents } from '../../support/named-streams.ts';
import { currentKeys } from '../../support/sealed-client.ts';
import { readProven } from '../attacks/refusal.ts';

type Fetch = typeof globalThis.fetch;

let folder: Folder;
let service: Service;
let again: RunningSidecar | null = null;
let url: string;
let simulatedRoot: string;

const collector = () => createSimulatedCpu({ type: 'SEV_SNP', rootDir: folder.path });

beforeAll(async () => {
  folder = temporaryFolder();
  const cpu = { collector: await collector(), required: true };
  service = await startService({ SEALED: 'required' }, { cpu });
  url = service.gateway.url;
  simulatedRoot = (service.sidecar.attester.simulated?.root ?? '') + (cpu.collector.simulated?.root ?? '');
  await currentKeys(url);
});
beforeEach(() => {
  service.backend.script = chatAnswer('Hello.');
  service.backend.seen.length = 0;
});
afterAll(async () => {
  await again?.close();
  await service.close();
  folder.remove();
});

/** A verifying fetch over a sealed one, and what passes between them and the gateway. */
function client(options: Partial<SealedFetchOptions> = {}, verify: VerifyingFetchOptions = {}) {
  const sent: string[] = [];
  const proofs: Verified[] = [];
  const sessions: SealedSession[] = [];
  const network: Fetch = async (input, init) => {
    sent.push(`${String(input)} ${JSON.stringify([...new Headers(init?.headers)])} ${latin1(init?.body)}`);
    return fetch(input, init);
  };
  const shared = { simulatedRoot, policy: { minLevel: 'none' } } as const;
  const onSession = (session: SealedSession) => void sessions.push(session);
  const sealed = sealedFetch({ ...shared, url, fetch: network, onSession, ...options });
  const onVerified = (verified: Verified) => void proofs.push(verified);
  const send = verifyingFetch({ ...shared, fetch: sealed, onVerified, ...verify });
  const post = (path: string, body: object, init: RequestInit = {}) =>
    send(url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      ...init,
    });
  return { sealed, send, post, sent, proofs, sessions };
}

const latin1 = (body: unknown) => (body instanceof Uint8Array ? Buffer.from(body).toString('latin1') : String(body));

const CHAT = { model: 'm', messages: [{ role: 'user' as const, content: 'canary-prompt' }] };

describe('over a gateway that takes sealed requests alone', () => {
  it('openai has its answers, whole and streamed, each proven in the session that was sealed to', async () => {
    const { send, sent, proofs, sessions } = client();
    const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'inner-key', fetch: send });
    expect((await openai.chat.completions.create(CHAT)).choices[0]?.message.content).toBe('Hello.');
    service.backend.script = chatStream(['Hel', 'lo.']);
    let text = '';
    for await (const chunk of await openai.chat.completions.create({ ...CHAT, stream: true }))
      text += chunk.choices[0]?.delta.content ?? '';
    expect(text).toBe('Hello.');
    expect(proofs).toHaveLength(2);
    expect(sessions).toHaveLength(1);
    const { key } = JSON.parse(sessions[0]?.statement ?? '') as { key: string };
    for (const { attestation } of proofs)
      expect(JSON.parse(String(attestation.cpu?.statement))).toMatchObject({ key, challenge: null });
    expect(service.backend.seen.map(({ body }) => body.includes('canary-prompt'))).toEqual([true, true]);
    for (const one of sent)
      for (const canary of ['canary-prompt', 'inner-key', 'completions', '"m"']) expect(one).not.toContain(canary);
    expect(sent).toHaveLength(3);
    for await (const model of openai.models.list()) expect(model.id).toBe('scripted');
  });

  it('LangChain and the AI SDK have theirs', async () => {
    const { sealed, sessions } = client();
    const verify = { fetch: sealed, simulatedRoot };
    const configuration = { baseURL: `${url}/v1` };
    const message = await new ChatCountersign({ model: 'm', apiKey: 'any', configuration, verify }).invoke('Hi');
    expect([message.text, message.response_metadata.countersign]).toEqual([
      'Hello.',
      expect.objectContaining({ level: 'none' }),
    ]);
    const { text, providerMetadata } = await generateText({
      model: createCountersign({ baseURL: `${url}/v1`, verify })('m'),
      prompt: 'Hi',
    });
    expect([text, Object.keys(providerMetadata ?? {})]).toEqual(['Hello.', ['countersign']]);
    expect(sessions).toHaveLength(1);
  });

  it.each([
    ['/v1/responses', { model: 'm', input: 'Hi' }, responseBody('Hello.')],
    ['/v1/messages', { model: 'm', max_tokens: 5, messages: [] }, messageBody([{ type: 'text', text: 'Hello.' }])],
    ['/v1/embeddings', { model: 'm', input: 'Hi' }, { object: 'list', data: [{ embedding: [0.25], index: 0 }] }],
  ])('an answer of %s is proven', async (path, request, response) => {
    service.backend.script = answer(JSON.stringify(response));
    const { post, proofs } = client();
    expect(await (await post(path, request)).json()).toMatchObject(response);
    expect(proofs.map(({ exchange }) => exchange.endpoint)).toEqual([path]);
  });

  it.each([
    ['/v1/responses', { model: 'm', input: 'Hi' }, responseEvents(['Hel', 'lo'])],
    ['/v1/messages', { model: 'm', max_tokens: 5, messages: [] }, messageEvents(['Hel', 'lo'])],
  ])('a stream of %s is proven', async (path, request, events) => {
    service.backend.script = namedStream(events);
    const { post, proofs } = client();
    const { text, refused } = await readProven(post(path, { ...request, stream: true }));
    expect([refused, proofs.length]).toEqual([null, 1]);
    for (const { type } of events) expect(text).toContain(`event: ${type}\n`);
  });

  it('a stream is handed on as it comes', async () => {
    const gate = Promise.withResolvers<void>();
    service.backend.script = async (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(role() + delta('first'));
      await gate.promise;
      response.end(delta('last') + finish() + DONE);
    };
    const { post } = client();
    const response = await post('/v1/chat/completions', { ...CHAT, stream: true });
    let text = '';
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
      text += Buffer.from(chunk).toString();
      if (text.includes('first')) gate.resolve();
    }
    expect(text).toMatch(/first.*last.*\[DONE\]/s);
  });

  it('takes bodies and answers of megabytes, padded or not', async () => {
    const large = 'x'.repeat(3 * 1024 * 1024);
    service.backend.script = chatAnswer(large);
    for (const padding of [false, true]) {
      const { post, proofs } = client({ padding });
      const response = await post('/v1/chat/completions', { ...CHAT, messages: [{ role: 'user', content: large }] });
      const body = (await response.json()) as { choices: { message: { content: string } }[] };
      expect(body.choices[0]?.message.content).toHaveLength(large.length);
      expect(proofs).toHaveLength(1);
    }
  });

  it('a caller that leaves ends the request of the backend', async () => {
    service.backend.script = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(role() + delta('one'));
    };
    const { post } = client();
    const leaving = new AbortController();
    const body = { ...CHAT, stream: true };
    const response = await post('/v1/chat/completions', body, { signal: leaving.signal });
    const reader = response.body?.getReader();
    await reader?.read();
    leaving.abort();
    await expect(
      (async () => {
        for (;;) if ((await reader?.read())?.done) return;
      })(),
    ).rejects.toMatchObject({ name: 'AbortError' });
    await expect.poll(() => service.backend.seen.at(-1)?.aborted_ms).not.toBeNull();
  });

  it('an error of the gateway comes sealed, and keeps its status', async () => {
    const { post, sealed } = client();
    const response = await post('/v1/chat/completions', { ...CHAT, n: 'x', stream: 'yes' });
    expect([response.status, (await response.json()) as object]).toEqual([
      400,
      { error: expect.objectContaining({ code: 'invalid_request', type: 'invalid_request_error' }) },
    ]);
    expect((await sealed(`${url}/health`)).status).toBe(404);
  });

  it('an answer without a proof is refused, and one of a level that is too low', async () => {
    const { sealed } = client();
    const stripped: Fetch = async (input, init) => {
      const response = await sealed(input, init);
      const text = (await response.text()).replace(/,"attestation":.*\}$/s, '}');
      return new Response(text, { headers: { 'content-type': 'application/json' } });
    };
    const { post } = client({}, { fetch: stripped });
    expect(await readProven(post('/v1/chat/completions', CHAT))).toEqual({ text: '', refused: 'attestation_missing' });
    const { post: strict } = client({}, { policy: { minLevel: 'gpu' } });
    expect(await readProven(strict('/v1/chat/completions', CHAT))).toEqual({ text: '', refused: 'policy_refused' });
  });

  it('goes on when the sidecar restarts: the session after it is verified too', async () => {
    const { post, sessions, proofs } = client();
    expect((await post('/v1/chat/completions', CHAT)).status).toBe(200);
    await service.sidecar.close();
    again = await startSidecar(service.folder, { cpu: { collector: await collector(), required: true } });
    await expect.poll(async () => (await fetch(`${url}/v1/attestation/session`)).status, { timeout: 10_000 }).toBe(200);
    const response = await post('/v1/chat/completions', CHAT);
    expect([response.status, sessions.length, proofs.length]).toEqual([200, 2, 2]);
    const keys = proofs.map(({ attestation }) => JSON.parse(String(attestation.cpu?.statement)).key);
    expect(keys[0]).not.toBe(keys[1]);
  });
});
