// Sealed requests through an nginx that nobody trusts: it counts, limits and balances by what is outside, and learns nothing of what is inside.
import { writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import OpenAI from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createSimulatedCpu } from '../../demo/twin/cpu.ts';
import type { SealedRequest, SealingKey } from '../../sealed/index.ts';
import { verifyingFetch } from '../../verify/clients/fetch.ts';
import { sealedFetch } from '../../verify/clients/sealed.ts';
import { appraiseAttestation, type Verified } from '../../verify/index.ts';
import { chatBody, chatStream, answer as respondWith } from '../support/backend.ts';
import { CHAT } from '../support/client.ts';
import { type Folder, type Service, startService, temporaryFolder } from '../support/harness.ts';
import {
  currentKey,
  type Inner,
  messageOf,
  type Outer,
  open,
  post,
  sealMessage,
  textOf,
} from '../support/sealed-client.ts';
import { BURST, EDGE_KEY, type Edge, nginxProgram, startEdge } from './nginx.ts';

const PROMPT = 'CANARY-prompt-8c1d5e';
const ANSWER = 'CANARY-answer-27ab90';
const MODEL = 'CANARY-model-4f3e11';
const INNER_KEY = 'CANARY-inner-key-d00d77';
const CANARIES = [PROMPT, ANSWER, MODEL, INNER_KEY];
/** Sent in the clear, to show that the search finds what is there. */
const PLAIN = 'CONTROL-plain-51c0ff';

const program = nginxProgram();
const asRoot = process.getuid?.() === 0;
if (!asRoot) console.log('SKIPPED: the memory of nginx is read as root alone');

describe.skipIf(program === null)('an edge in front of the gateway', () => {
  let folder: Folder;
  let service: Service;
  let edge: Edge;
  let key: SealingKey;
  let simulatedRoot: string;
  const body = JSON.stringify({ ...CHAT, model: MODEL, messages: [{ role: 'user', content: PROMPT }], tee: true });
  const inner = (overrides: Inner = {}): Inner => ({
    body,
    ...overrides,
    headers: { authorization: `Bearer ${INNER_KEY}`, ...overrides.headers },
  });

  beforeAll(async () => {
    folder = temporaryFolder();
    const collector = await createSimulatedCpu({ type: 'TDX', rootDir: folder.path });
    writeFileSync(join(folder.path, 'keys'), `${INNER_KEY}\n${PLAIN}\n`);
    service = await startService({ API_KEYS_FILE: join(folder.path, 'keys') }, { cpu: { collector, required: true } });
    simulatedRoot = (service.sidecar.attester.simulated?.root ?? '') + (collector.simulated?.root ?? '');
    edge = await startEdge(program as string, join(folder.path, 'edge'), service.gateway.url);
    key = await sealingKey();
  });
  beforeEach(() => {
    service.backend.script = respondWith(chatBody(ANSWER));
  });
  afterAll(async () => {
    await edge?.close();
    await service?.close();
    folder?.remove();
  });

  /** From the gateway itself: its session is what a client verifies before it seals. */
  const sealingKey = () => currentKey(service.gateway.url, { authorization: `Bearer ${INNER_KEY}` });
  async function through(
    given: Inner,
    edgeKey: string = EDGE_KEY,
  ): Promise<{ outer: Outer; sealed: SealedRequest; chunks: Uint8Array[] }> {
    const { request: sealed, chunks } = await sealMessage(key, messageOf(given));
    const outer = await post(edge.url, chunks, { 'x-edge-key': edgeKey });
    return { outer, sealed, chunks };
  }

  it('passes sealed requests on, whatever it does to their headers, and the proof holds what was asked inside', async () => {
    const { outer, sealed } = await through(inner());
    expect([outer.status, outer.headers.via]).toEqual([200, '1.1 edge']);
    const got = await open(sealed, outer.body);
    expect(got.status).toBe(200);
    const report = await appraiseAttestation(got.text, { simulatedRoot, expected: { request: body } });
    expect(report.checks.filter(({ status }) => status === 'fail')).toEqual([]);
  });

  it('streams as the backend writes', async () => {
    service.backend.script = chatStream([ANSWER, ' and ', 'more.'], 150);
    const { outer, sealed } = await through(inner({ body: body.replace('"tee"', '"stream":true,"tee"') }));
    const arrivals: number[] = [];
    async function* timed() {
      for await (const chunk of outer.body) {
        arrivals.push(performance.now());
        yield chunk as Buffer;
      }
    }
    const got = await open(sealed, timed());
    expect(got.text).toContain('"attestation"');
    expect((arrivals.at(-1) ?? 0) - (arrivals[0] ?? 0)).toBeGreaterThan(300);
  });

  it('a key of the edge opens nothing inside, and one of the inside nothing at the edge', async () => {
    const without = await through(inner({ headers: { authorization: 'Bearer written-by-the-edge' } }));
    const refused = await open(without.sealed, without.outer.body);
    expect([refused.status, refused.json().error.code]).toEqual([401, 'invalid_api_key']);
    const { outer } = await through(inner(), PLAIN);
    expect([outer.status, JSON.parse(await textOf(outer)).error.code]).toEqual([401, 'edge_key']);
  });

  it('replayed by the edge, a request is refused', async () => {
    const { outer, sealed, chunks } = await through(inner());
    await open(sealed, outer.body);
    const again = await post(service.gateway.url, chunks);
    expect([again.status, JSON.parse(await textOf(again)).error.code]).toEqual([409, 'sealed_replayed']);
  });

  it('limits by its own key, before anything is opened', async () => {
    const asked = service.backend.seen.length;
    const statuses = await Promise.all(
      Array.from({ length: BURST + 5 }, async () => {
        const { outer, sealed } = await through(inner(), 'another-edge-key');
        if (outer.status === 200) await open(sealed, outer.body);
        else outer.body.resume();
        return outer.status;
      }),
    );
    const refused = statuses.filter((status) => status === 429).length;
    expect(refused).toBeGreaterThanOrEqual(3);
    expect(statuses.filter((status) => status === 200).length).toBe(statuses.length - refused);
    expect(service.backend.seen.length - asked).toBe(statuses.length - refused);
  });

  /** A key in `authorization` gets the session, in the clear, so it is another than the inner one. */
  const client = (edgeKey: string) => {
    const options = { simulatedRoot, policy: { minLevel: 'none' } } as const;
    const edgeHeaders = { 'x-edge-key': edgeKey, authorization: `Bearer ${PLAIN}` };
    const sealed = sealedFetch({ ...options, url: edge.url, edgeHeaders });
    const proofs: Verified[] = [];
    const fetch = verifyingFetch({ ...options, fetch: sealed, onVerified: (proof) => void proofs.push(proof) });
    return { openai: new OpenAI({ baseURL: `${edge.url}/v1`, apiKey: INNER_KEY, maxRetries: 0, fetch }), proofs };
  };
  const question = { model: MODEL, messages: [{ role: 'user' as const, content: PROMPT }] };

  it('serves openai over the sealed fetch: session, answers and proofs pass through it', async () => {
    const { openai, proofs } = client(EDGE_KEY);
    expect((await openai.chat.completions.create(question)).choices[0]?.message.content).toBe(ANSWER);
    service.backend.script = chatStream([ANSWER, ' and ', 'more.']);
    let text = '';
    for await (const chunk of await openai.chat.completions.create({ ...question, stream: true }))
      text += chunk.choices[0]?.delta.content ?? '';
    expect(text).toBe(`${ANSWER} and more.`);
    expect(proofs).toHaveLength(2);
  });

  it('has its own refusals shown as its own', async () => {
    const unknown = client('nobody').openai.chat.completions.create(question);
    await expect(unknown).rejects.toMatchObject({ status: 401, type: 'edge_refused', code: 'edge_refused' });
    // What another test has left of this customer's burst is used up.
    const { openai } = client('another-edge-key');
    const asked = Array.from({ length: BURST + 1 }, () => openai.chat.completions.create(question).catch((one) => one));
    const limited = (await Promise.all(asked)).find((one) => one instanceof OpenAI.RateLimitError);
    expect(limited).toMatchObject({ status: 429, type: 'edge_refused', code: 'edge_refused' });
  });

  it('sees no prompt, answer, model or inner key: not on the wire, in its logs, nor in its memory', async () => {
    await plain();
    const places = { wire: edge.wire(), logs: edge.logs(), ...(asRoot ? { memory: edge.memory() } : {}) };
    for (const [place, bytes] of Object.entries(places)) {
      console.log(`${place} of the edge: ${bytes.length} bytes`);
      // What came in the clear is there: the search finds what can be found.
      expect(bytes.includes(PLAIN), `${place} holds what came in the clear`).toBe(true);
      for (const canary of CANARIES)
        for (const form of [
          canary,
          Buffer.from(canary).toString('base64').slice(0, -4),
          Buffer.from(canary).toString('hex'),
        ])
          expect(bytes.includes(form), `${place} holds ${canary}`).toBe(false);
    }
  });

  /** A request in the clear through the same edge. */
  const plain = () =>
    new Promise<void>((resolve, reject) => {
      const sent = request(
        `${edge.url}/v1/chat/completions?${PLAIN}`,
        { method: 'POST', headers: { authorization: `Bearer ${PLAIN}`, 'content-type': 'application/json' } },
        (response) => response.resume().on('end', resolve),
      );
      service.backend.script = respondWith(chatBody(PLAIN));
      sent.on('error', reject).end(JSON.stringify({ ...CHAT, messages: [{ role: 'user', content: PLAIN }] }));
    });
});
