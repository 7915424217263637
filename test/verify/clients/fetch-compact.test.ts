// A verifying fetch that asks for compact attestations: it fetches their bundles itself, keeps them, and refuses what has none.
import { hash } from 'node:crypto';
import { generateText } from 'ai';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { withLastMember } from '../../../proto/json.ts';
import { createCountersign } from '../../../verify/clients/ai-sdk.ts';
import { UnprovenAnswerError, type VerifyingFetchOptions, verifyingFetch } from '../../../verify/clients/fetch.ts';
import { ChatCountersign } from '../../../verify/clients/langchain.ts';
import { sealedFetch } from '../../../verify/clients/sealed.ts';
import { createBundles, type Verified, verifyAttestation } from '../../../verify/index.ts';
import { chatAnswer, chatStream } from '../../support/backend.ts';
import { type Service, startServiceWithProcessor } from '../../support/harness.ts';
import { currentKeys } from '../../support/sealed-client.ts';
import { readProven } from '../attacks/refusal.ts';
import { AT, attestInBatch, type Made, RESPONSE, SECONDS, simulatedRoot } from '../maker.ts';

type Fetch = typeof globalThis.fetch;

const BUNDLE = /^(.*)\/attestation\/bundles\/([0-9a-f]{64})$/;
const BODY = { model: 'm', messages: [{ role: 'user', content: 'Hi' }] };

function post(send: Fetch, url: string, more: object = {}) {
  const body = JSON.stringify({ ...BODY, ...more });
  return send(url, { method: 'POST', headers: { 'content-type': 'application/json', 'x-key': 'k' }, body });
}

describe('before a gateway whose processor signs', () => {
  let service: Service & { readonly root: string };
  let proofs: Verified[];
  let urls: string[];
  const network: Fetch = (input, init) => {
    urls.push(String(input));
    return fetch(input, init);
  };
  const options = (): VerifyingFetchOptions => ({
    fetch: network,
    compact: true,
    simulatedRoot: service.root,
    policy: { minLevel: 'none' },
    onVerified: (proof) => void proofs.push(proof),
  });
  const chat = () => `${service.gateway.url}/v1/chat/completions`;
  const bundlesAsked = () => urls.filter((url) => BUNDLE.test(url));

  beforeAll(async () => {
    service = await startServiceWithProcessor();
    await currentKeys(service.gateway.url);
  });
  beforeEach(() => {
    [proofs, urls] = [[], []];
    service.backend.script = chatAnswer('Hello.');
  });
  afterAll(() => service.close());

  it.each([false, true])('its answers are proven by bundles that it asks for once; strict: %s', async (strict) => {
    const send = verifyingFetch({ ...options(), strict });
    expect(await readProven(post(send, chat()))).toMatchObject({ refused: null });
    service.backend.script = chatStream(['Hel', 'lo.']);
    expect(await readProven(post(send, chat(), { stream: true }))).toMatchObject({ refused: null });
    expect(proofs.map(({ claims }) => claims.cpu === null)).toEqual([false, false]);
    for (const { exchange, attestation } of proofs) {
      expect(JSON.parse(exchange.request).tee).toMatchObject({ compact: true });
      const whole = await verifyAttestation(attestation, { simulatedRoot: service.root });
      expect(whole).toMatchObject({ valid: true });
    }
    // Of its own nonce an answer shares its session only; two batches have a bundle each.
    expect(bundlesAsked()).toHaveLength(strict ? 1 : 2);
    expect(new Set(bundlesAsked().map((url) => BUNDLE.exec(url)?.[1]))).toEqual(new Set([`${service.gateway.url}/v1`]));
  });

  it('fetches the bundle where the caller asked for compact itself, and uses bundles that the caller holds', async () => {
    const send = verifyingFetch({ ...options(), compact: false });
    expect(await readProven(post(send, chat(), { tee: { compact: true } }))).toMatchObject({ refused: null });
    expect(bundlesAsked()).toHaveLength(1);
    const [url = ''] = bundlesAsked();
    const bundles = createBundles();
    await bundles.add(await (await fetch(url)).text());
    const holding = verifyingFetch({ ...options(), compact: false, bundles });
    expect(await readProven(post(holding, chat(), { tee: { compact: true } }))).toMatchObject({ refused: null });
    expect(bundlesAsked()).toHaveLength(1);
  });

  it('LangChain and the AI SDK have the whole attestation', async () => {
    const verify = options();
    const baseURL = `${service.gateway.url}/v1`;
    const chain = new ChatCountersign({ model: 'm', apiKey: 'k', configuration: { baseURL }, verify });
    const message = await chain.invoke('Hi');
    const model = createCountersign({ baseURL, verify })('m');
    const { providerMetadata } = await generateText({ model, prompt: 'Hi' });
    const chained = message.response_metadata.countersign as { attestation: unknown };
    for (const attestation of [chained.attestation, providerMetadata?.countersign?.attestation])
      expect(await verifyAttestation(attestation, { simulatedRoot: service.root })).toMatchObject({ valid: true });
    expect(bundlesAsked()).toHaveLength(2);
  });

  it('over a sealed fetch bundles are asked for sealed too', async () => {
    const { gateway, root } = service;
    const policy = { minLevel: 'none' } as const;
    const sealed = sealedFetch({ url: gateway.url, simulatedRoot: root, policy, fetch: network });
    const send = verifyingFetch({ ...options(), fetch: sealed });
    expect(await readProven(post(send, chat()))).toMatchObject({ refused: null });
    expect(proofs).toHaveLength(1);
    expect(urls.map((url) => new URL(url).pathname)).toEqual(['/v1/attestation/session', '/ohttp', '/ohttp']);
  });
});

describe('of a service that is not what it should be', () => {
  /** Compact answers of its own making; `serve` gives what is served for a bundle, null: 404. */
  function serviceOf(serve: (bundle: string) => string | null | Promise<never>) {
    const asked: { url: string; key: string | null }[] = [];
    const kept = new Map<string, string>();
    const fetch: Fetch = async (input, init) => {
      const [, base = '', sha256 = ''] = BUNDLE.exec(String(input)) ?? [];
      if (sha256 !== '') {
        asked.push({ url: base, key: new Headers(init?.headers).get('x-key') });
        const text = await serve(kept.get(sha256) ?? '');
        return new Response(text, { status: text === null ? 404 : 200 });
      }
      const parts = { request: String(init?.body), response: RESPONSE, timestamp: SECONDS };
      const { token, evidence, ...own } = (await attestInBatch(2, 0, parts)) as Made;
      const bundle = JSON.stringify({ token, evidence });
      kept.set(hash('sha256', bundle), bundle);
      const attestation = JSON.stringify({ ...own, bundle: hash('sha256', bundle) });
      const text = withLastMember(RESPONSE, 'attestation', attestation);
      return new Response(text, { headers: { 'content-type': 'application/json' } });
    };
    return { asked, fetch };
  }
  const URL = 'http://127.0.0.1/prefix/v1/chat/completions';
  const at = { simulatedRoot, at: AT, compact: true };

  it.each([
    ['has no bundle', () => null, 'bundle_unavailable'],
    ['breaks the connection', () => Promise.reject(new TypeError('broken')), 'bundle_unavailable'],
    ['serves more than a bundle has', () => ' '.repeat(2 ** 21 + 1), 'bundle_unavailable'],
    ['serves another bundle', () => '{"cpu":{}}', 'bundle_mismatch'],
    ['serves its bundle with a line end more', (bundle: string) => `${bundle}\n`, 'bundle_mismatch'],
  ])('one that %s is refused, and the next answer is served', async (_name, serve, code) => {
    let good = false;
    const { asked, fetch } = serviceOf((bundle) => (good ? bundle : serve(bundle)));
    const errors: unknown[] = [];
    const send = verifyingFetch({ ...at, fetch, onUnproven: (error) => void errors.push(error) });
    expect((await readProven(post(send, URL))).refused).toBe(code);
    expect(errors).toEqual([expect.any(UnprovenAnswerError)]);
    expect(asked).toEqual([{ url: 'http://127.0.0.1/prefix/v1', key: 'k' }]);
    good = true;
    expect((await readProven(post(send, URL))).refused).toBeNull();
    expect(asked).toHaveLength(2);
  });

  it('asks where the request went, where a proxy leaves out /v1 too, and never another service', async () => {
    const { asked, fetch } = serviceOf((bundle) => bundle);
    const send = verifyingFetch({ ...at, fetch });
    const places = ['http://127.0.0.1/api/chat/completions', 'http://127.0.0.1:81/v1/chat/completions'];
    for (const place of places) expect((await readProven(post(send, place))).refused).toBeNull();
    expect(asked.map(({ url }) => url)).toEqual(['http://127.0.0.1/api', 'http://127.0.0.1:81/v1']);
  });
});
