import { beforeAll, describe, expect, it } from 'vitest';
import { CHECKS } from '../../../verify/common/checks.ts';
import { answer } from '../../support/backend.ts';
import { type Answer, ask, CHAT, chat } from '../../support/client.ts';
import { startGateway } from '../../support/harness.ts';
import { useService } from '../../support/service.ts';

interface Attestation {
  raw: string;
  nonce: string;
  token: string;
  evidence: { arch: string; report: string; certificate_chain: string }[];
}

const service = useService();
let answered: Answer;
let attestation: Attestation;
let other: Attestation;

beforeAll(async () => {
  answered = await chat(service.url, { ...CHAT, tee: true });
  attestation = answered.json().attestation;
  other = (await chat(service.url, { ...CHAT, tee: true, seed: 2 })).json().attestation;
});

const verify = (body: string | Buffer | undefined, path = '/~sev_gpu@1.0/verify', method = 'POST') =>
  ask(service.url + path, { method, ...(body === undefined ? {} : { body }) });

function flipped(bytes: Buffer, at: number): Buffer {
  bytes.writeUInt8(bytes.readUInt8(at) ^ 1, at);
  return bytes;
}

async function expectRefused(body: string, status: number, code: string): Promise<void> {
  const got = await verify(body);
  expect([got.status, got.json().error.code]).toEqual([status, code]);
  expect(Object.keys(got.json().error)).toEqual(['message', 'type', 'param', 'code']);
  if (status === 422) expect(got.json().error.type).toBe('attestation_invalid');
}

describe('the verify endpoint', () => {
  it('says true to an attestation, its JSON string and the whole response, by GET with a body and by POST', async () => {
    const object = JSON.stringify(attestation);
    for (const body of [object, JSON.stringify(object), answered.text])
      for (const method of ['GET', 'POST'])
        for (const path of ['/~sev_gpu@1.0/verify', '/%7Esev_gpu%401.0/verify', '/~sev_gpu%401.0/verify']) {
          const got = await verify(body, path, method);
          expect([got.status, got.text]).toEqual([200, 'true']);
          expect(got.headers['content-type']).toMatch(/^application\/json/);
        }
  });

  it('lists every check when the report is asked for', async () => {
    const got = (await verify(JSON.stringify(attestation), '/~sev_gpu@1.0/verify?report=1')).json();
    expect(got.valid).toBe(true);
    const order: string[] = got.checks.map((check: { name: string }) => check.name);
    expect(order).toEqual([...order].sort((a, b) => CHECKS.indexOf(a as never) - CHECKS.indexOf(b as never)));
    for (const name of CHECKS) expect(order).toContain(name);
    for (const check of got.checks) expect(['pass', 'skip']).toContain(check.status);
    // What a simulated GPU shows is never dressed up as more.
    expect(got.level).toBe('none');
    expect(got.claims.simulated).toBe(true);
    expect(JSON.stringify(got.proven)).not.toMatch(/genuine/i);
    expect(got.not_proven.length).toBeGreaterThan(0);
    const bad = (
      await verify(JSON.stringify({ ...attestation, nonce: other.nonce }), '/~sev_gpu@1.0/verify?report=1')
    ).json();
    expect(bad.valid).toBe(false);
    for (const report of ['2', 'ear', '0,1', '']) {
      const refused = await verify('{}', `/~sev_gpu@1.0/verify?report=${report}`);
      expect([refused.status, refused.json().error]).toMatchObject([
        400,
        { code: 'invalid_request', param: 'report', message: 'report: must be one of 0, 1.' },
      ]);
    }
    const asBefore = await verify(JSON.stringify(attestation), '/~sev_gpu@1.0/verify?report=0');
    expect([asBefore.status, asBefore.text]).toEqual([200, 'true']);
  });

  it.each([
    ['nothing', ''],
    ['only space', '  \n'],
    ['no JSON', '{"raw":'],
    ['half an attestation', JSON.stringify({ raw: 'x' })],
    ['a number', '17'],
    ['null', 'null'],
    ['an array', '[]'],
    ['a response without one', '{"id":"x","choices":[]}'],
    ['a string that holds no JSON', '"hello"'],
  ])('answers 400 to %s', async (_name, body) => {
    const got = await verify(body);
    expect(got.status).toBe(400);
    expect(Object.keys(got.json().error)).toEqual(['message', 'type', 'param', 'code']);
  });

  it.each(['\n', ' \r\n\t'])(
    'says true of an answer whose backend ends it with %j, byte for byte as it came',
    async (space) => {
      service.backend.script = answer(`${space}{"id":"c","object":"chat.completion","choices":[]}${space}`);
      const got = await chat(service.url, { ...CHAT, tee: true });
      expect(got.text.endsWith(`}${space}`)).toBe(true);
      expect(await verify(got.text)).toMatchObject({ status: 200, text: 'true' });
    },
  );

  it('answers 400 to no body at all', async () => {
    expect((await verify(undefined, undefined, 'GET')).status).toBe(400);
  });

  it('answers 413 to 20 MB, and stays', async () => {
    expect((await verify(Buffer.alloc(20_000_000, 0x20))).status).toBe(413);
    expect((await verify(JSON.stringify(attestation))).text).toBe('true');
  });

  it('answers in time to deep nesting', async () => {
    for (const body of [
      '['.repeat(1_000_000),
      '{"a":'.repeat(200_000),
      `{"raw":${'['.repeat(100_000)}${']'.repeat(100_000)}}`,
    ]) {
      const got = await verify(body);
      expect(got.status).toBe(400);
    }
  });

  it('refuses members given twice', async () => {
    const text = JSON.stringify(attestation);
    await expectRefused(`{"raw":"{}",${text.slice(1)}`, 400, 'not_an_attestation');
    await expectRefused(`{"n\\u006fnce":"${attestation.nonce}",${text.slice(1)}`, 400, 'not_an_attestation');
  });

  it('names the check that a changed byte breaks', async () => {
    const flip = (text: string, at: number) =>
      text.slice(0, at) + String.fromCharCode(text.charCodeAt(at) ^ 1) + text.slice(at + 1);
    const with_ = (change: Partial<Attestation>) => JSON.stringify({ ...attestation, ...change });
    const evidence = (report: (bytes: Buffer) => Buffer) =>
      attestation.evidence.map((one) => ({
        ...one,
        report: report(Buffer.from(one.report, 'base64')).toString('base64'),
      }));
    const content = attestation.raw.indexOf('Hello');
    await expectRefused(with_({ raw: flip(attestation.raw, content) }), 422, 'raw_hash_mismatch');
    await expectRefused(with_({ nonce: other.nonce }), 422, 'raw_hash_mismatch');
    await expectRefused(with_({ token: other.token }), 422, 'token_nonce_mismatch');
    await expectRefused(with_({ token: 'nonsense' }), 422, 'token_malformed');
    await expectRefused(with_({ evidence: other.evidence }), 422, 'report_nonce_mismatch');
    await expectRefused(with_({ evidence: [] }), 400, 'not_an_attestation');
    const { evidence: _none, ...bare } = attestation;
    await expectRefused(JSON.stringify(bare), 422, 'evidence_missing');
    await expectRefused(
      with_({ evidence: evidence((bytes) => flipped(bytes, bytes.length - 1)) }),
      422,
      'report_signature_invalid',
    );
    // A measurement changed: the signature no longer holds.
    await expectRefused(with_({ evidence: evidence((bytes) => flipped(bytes, 200)) }), 422, 'report_signature_invalid');
    await expectRefused(with_({ evidence: evidence((bytes) => bytes.subarray(0, 100)) }), 422, 'report_malformed');
    // A consistent forgery of raw and nonce still lacks a signature over it.
    await expectRefused(
      with_({ raw: other.raw, nonce: other.nonce, token: other.token }),
      422,
      'report_nonce_mismatch',
    );
    const chain = Buffer.from(attestation.evidence[0]?.certificate_chain ?? '', 'base64').toString();
    const certificates = chain.split(/(?<=-----END CERTIFICATE-----\n)/);
    const shorter = Buffer.from(certificates.slice(1).join('')).toString('base64');
    const chained = await verify(
      with_({ evidence: attestation.evidence.map((one) => ({ ...one, certificate_chain: shorter })) }),
    );
    expect(chained.status).toBe(422);
  });

  it('refuses every single flipped character of the token, or never calls the result signed', async () => {
    for (let at = 0; at < attestation.token.length; at += 97) {
      const token = `${attestation.token.slice(0, at)}~${attestation.token.slice(at + 1)}`;
      const got = await verify(JSON.stringify({ ...attestation, token }));
      expect([at, got.status]).toEqual([at, 422]);
    }
  });

  it('refuses a whole response whose answer was changed after it was signed', async () => {
    await expectRefused(answered.text.replace('"content":"Hello."', '"content":"Goodbye."'), 422, 'response_mismatch');
  });

  it('does not know the simulated root where simulation is not allowed', async () => {
    const strict = await startGateway({
      BACKEND_URL: service.backend.url,
      SIDECAR_SOCKET: service.sidecar.socket,
      ALLOW_SIMULATED: '0',
    });
    const got = await ask(`${strict.url}/~sev_gpu@1.0/verify`, { body: JSON.stringify(attestation) });
    expect([got.status, got.json().error.code]).toEqual([422, 'simulated_root_refused']);
    await strict.close();
  });
});
