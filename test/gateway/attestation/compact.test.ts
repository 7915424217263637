// Compact attestations from a running gateway: what they leave to their bundle, the bundle's route, and that each is the whole one once
// expanded, to the byte.
import { hash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Attestation, appraiseAttestation, createBundles, verifyAttestation } from '../../../verify/index.ts';
import { chatAnswer, chatStream } from '../../support/backend.ts';
import { ask, CHAT } from '../../support/client.ts';
import { type Service, startService, startServiceWithProcessor } from '../../support/harness.ts';
import { expectError } from '../expect-error.ts';

type Compact = Partial<Attestation> & { readonly bundle?: string };

const tee = (options: object, stream = false) => ({ body: JSON.stringify({ ...CHAT, tee: options, stream }) });

describe.each([true, false])('with a processor: %s', (withProcessor) => {
  let service: Service & { readonly root?: string };
  let simulatedRoot: string;
  const url = (path: string) => `${service.gateway.url}${path}`;
  const get = (path: string) => ask(url(path), { method: 'GET' });
  const load = async (sha256: string) => {
    const got = await get(`/v1/attestation/bundles/${sha256}`);
    return got.status === 200 ? got.text : null;
  };
  const send = async (options: object): Promise<Compact> =>
    (await ask(url('/v1/chat/completions'), tee(options))).json().attestation;

  beforeAll(async () => {
    service = await (withProcessor ? startServiceWithProcessor() : startService());
    simulatedRoot = service.root ?? service.sidecar.attester.simulated?.root ?? '';
    service.backend.script = chatAnswer('Hello.');
  });
  afterAll(() => service.close());

  it('of a batch leaves token, evidence and session to one bundle, and is valid with it only', async () => {
    const [one, other] = await Promise.all([
      send({ compact: true, batch: true }),
      send({ compact: true, batch: true }),
    ]);
    const cpu = withProcessor ? ['cpu'] : [];
    expect(Object.keys(one)).toEqual(['raw', 'nonce', 'batch', ...cpu, 'bundle']);
    if (one.nonce === other.nonce) expect(other.bundle).toBe(one.bundle);
    const text = (await load(one.bundle as string)) as string;
    expect(hash('sha256', text)).toBe(one.bundle);
    expect(Object.keys(JSON.parse(text))).toEqual(['token', 'evidence', ...cpu]);
    const verified = await verifyAttestation(one, { simulatedRoot, bundles: createBundles({ load }) });
    expect(verified.checks.filter(({ status }) => status === 'fail')).toEqual([]);
    expect(verified.claims.cpu === null).toBe(!withProcessor);
    const without = await appraiseAttestation(one, { simulatedRoot });
    expect(without).toMatchObject({ valid: false, incomplete: true });
    expect(without.checks).toContainEqual(expect.objectContaining({ name: 'bundle', code: 'bundle_unavailable' }));
    const { json, raw } = { json: JSON.stringify(one), raw: one.raw as string };
    expect(Buffer.byteLength(json) - Buffer.byteLength(JSON.stringify(raw))).toBeLessThan(1_500);
  });

  it('of its own nonce leaves only its session to a bundle', async () => {
    const attestation = await send({ compact: true });
    expect(Object.keys(attestation)).toEqual([
      ...['raw', 'nonce', 'token', 'evidence'],
      ...(withProcessor ? ['cpu', 'bundle'] : []),
    ]);
    const verified = await verifyAttestation(attestation, { simulatedRoot, bundles: createBundles({ load }) });
    expect(verified.valid).toBe(true);
    if (withProcessor) expect((await send({ compact: true })).bundle).toBe(attestation.bundle);
  });

  it('comes in a stream and by header too, is kept in the same form, and expands to what tee: true gives', async () => {
    service.backend.script = chatStream(['Hel', 'lo.']);
    const { body } = tee({}, true);
    const plain = JSON.stringify({ ...JSON.parse(body), tee: undefined });
    const got = await ask(url('/v1/chat/completions'), { body: plain, headers: { 'x-tee': 'batch, compact' } });
    service.backend.script = chatAnswer('Hello.');
    const kept = (await get(`/v1/chat/completions/${got.headers['x-attestation-id']}/attestation`)).text;
    expect(got.text).toContain(kept);
    const bundles = createBundles({ load });
    const options = { simulatedRoot, bundles, expected: { transcript: Buffer.from(got.text) } };
    const { attestation } = await verifyAttestation(kept, options);
    const whole = { ...(await send({ batch: true })) };
    expect(Object.keys(attestation)).toEqual(Object.keys(whole));
    expect(Object.keys({ ...attestation.cpu }).sort()).toEqual(Object.keys({ ...whole.cpu }).sort());
    expect(await verifyAttestation(attestation, { simulatedRoot })).toMatchObject({ valid: true });
  });

  it('serves a bundle to everybody, for ever, and nothing under another hash', async () => {
    const { bundle } = await send({ compact: true, batch: true });
    const got = await get(`/v1/attestation/bundles/${bundle}`);
    expect(got.headers['cache-control']).toContain('immutable');
    expectError(await get(`/v1/attestation/bundles/${'ab'.repeat(32)}`), 404, 'not_found', 'sha256');
    expectError(await get('/v1/attestation/bundles/AB'), 400, 'invalid_request', 'sha256');
    expectError(await ask(url(`/v1/attestation/bundles/${bundle}`), { body: '{}' }), 405, 'method_not_allowed');
    expect((await get(`/v1/attestation/bundles/${bundle}`)).status).toBe(200);
  });

  it('is refused where compact is no boolean, and the next request is served', async () => {
    const refused = await ask(url('/v1/chat/completions'), tee({ compact: 1 }));
    expectError(refused, 400, 'invalid_request', 'tee');
    expect(await send({ compact: true, batch: true })).toHaveProperty('bundle');
  });
});
