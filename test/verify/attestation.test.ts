// An attestation, whole: what passes, and by which check each lie fails.
import { describe, expect, test } from 'vitest';
import { DEVICE_ROOT, makeDevice, makeIssuers, makeRoot } from '../../demo/twin/pki.ts';
import { makeToken } from '../../demo/twin/token.ts';
import { withLastMember } from '../../proto/json.ts';
import { CHECKS } from '../../verify/common/checks.ts';
import {
  appraiseAttestation,
  createCollateral,
  VerificationError,
  type VerifyOptions,
  verifyAttestation,
} from '../../verify/index.ts';
import { vectorsPresent } from '../support/vectors.ts';
import { makeReport } from '../twin/report.ts';
import { RIM_ROOT } from '../twin/rim-signer.ts';
import { text } from './gpu/genuine.ts';
import {
  AT,
  a,
  attest,
  b,
  EXCHANGE,
  evidenceOf,
  issuers,
  PAYLOADS,
  REQUEST,
  RESPONSE,
  SECONDS,
  simulatedRoot,
  streamed,
  transcript,
} from './maker.ts';

const OPTIONS: VerifyOptions = { simulatedRoot, at: AT };

async function code(input: unknown, options: VerifyOptions = {}): Promise<string> {
  try {
    const verified = await verifyAttestation(input, { ...OPTIONS, ...options });
    return verified.valid ? 'valid' : 'neither';
  } catch (error) {
    if (!(error instanceof VerificationError)) throw error;
    return error.code;
  }
}

const good = await attest();
const other = await attest({ ...EXCHANGE, response: RESPONSE.replace('Hello', 'Goodbye') });
const two = await attest(EXCHANGE, [a, b]);
const firmwares = await attest(EXCHANGE, [a, makeDevice(issuers, a)]);

test('the first check that fails is the last, where the caller asks for that', async () => {
  const options = { ...OPTIONS, stopAtFailure: true };
  const { checks } = await appraiseAttestation({ ...good, nonce: other.nonce }, options);
  expect(checks.map(({ name, status }) => [name, status])).toEqual(
    CHECKS.map((name) => [name, name === 'form' ? 'pass' : name === 'raw_hash' ? 'fail' : 'skip']),
  );
  for (const { detail } of checks.slice(2)) expect(detail).toMatch(/^not run: /);
  expect((await appraiseAttestation(two, options)).valid).toBe(true);
  const all = await appraiseAttestation({ ...good, nonce: other.nonce }, OPTIONS);
  expect(all.checks.filter(({ status }) => status === 'fail').length).toBeGreaterThan(1);
});

describe('what passes', () => {
  test('gives the signed texts, exactly', async () => {
    const { exchange, claims, level, checks } = await verifyAttestation(good, OPTIONS);
    expect(exchange).toEqual({
      endpoint: '/v1/chat/completions',
      request: REQUEST,
      response: RESPONSE,
      stream: null,
      timestamp: SECONDS - 10,
    });
    expect([level, claims.simulated, claims.time]).toEqual(['none', true, '2025-06-01T11:59:50.000Z']);
    expect(checks.map(({ name }) => name)).toEqual([...CHECKS]);
    const skips = checks.filter(({ status }) => status === 'skip').map(({ name }) => name);
    expect(skips).toEqual(['expected_exchange', 'token_signature', 'revocation', 'reference_values', 'device_mode']);
  });

  test('as an object, as text, as a JSON string, in a response, in a response as an object', async () => {
    const json = JSON.stringify(good);
    const whole = withLastMember(RESPONSE, 'attestation', json);
    const parsed: object = JSON.parse(RESPONSE);
    for (const input of [good, json, JSON.stringify(json), ` \n${json}`, `\ufeff${json}`])
      expect(await code(input)).toBe('valid');
    for (const input of [whole, JSON.stringify(whole), JSON.parse(whole), { ...parsed, attestation: json }])
      expect(await code(input)).toBe('valid');
  });

  test('with several devices', async () => {
    const { claims } = await verifyAttestation(two, OPTIONS);
    expect(claims.devices.map(({ ueid }) => ueid)).toEqual([a.ueid, b.ueid]);
  });

  test('claims nothing about hardware for a simulated device, in any word', async () => {
    const { proven, not_proven, claims } = await appraiseAttestation(good, OPTIONS);
    expect(proven.join(' ')).not.toMatch(/genuine|NVIDIA/i);
    expect(not_proven.join(' ')).toMatch(/simulated/);
    expect(claims.token?.signature).toBe('self-asserted');
  });
});

describe('what is refused, and by which check', () => {
  const flip = (base64: string, at: number) => {
    const bytes = Buffer.from(base64, 'base64');
    const index = at < 0 ? bytes.length + at : at;
    bytes.writeUInt8(bytes.readUInt8(index) ^ 1, index);
    return bytes.toString('base64');
  };
  const report = (change: (base64: string) => string, attestation = good, device = 0) => ({
    ...attestation,
    evidence: attestation.evidence.map((one, i) => (i === device ? { ...one, report: change(one.report) } : one)),
  });
  const stranger = makeDevice(makeIssuers(makeRoot(DEVICE_ROOT)));

  test.each<[string, unknown, string]>([
    ['no JSON', '{', 'not_json'],
    ['no object', '17', 'not_an_attestation'],
    ['an object of another kind', {}, 'not_an_attestation'],
    ['members that are inherited', Object.create(good), 'not_an_attestation'],
    ['evidence that is an empty list', { ...good, evidence: [] }, 'not_an_attestation'],
    ['a nonce in capitals', { ...good, nonce: good.nonce.toUpperCase() }, 'not_an_attestation'],
    ['a member given twice', `{"raw":"{}",${JSON.stringify(good).slice(1)}`, 'not_an_attestation'],
    [
      'a member given twice in another writing',
      `{"r\\u0061w":"{}",${JSON.stringify(good).slice(1)}`,
      'not_an_attestation',
    ],
    [
      'a member of the evidence given twice',
      JSON.stringify(good).replace('"arch":', '"arch":"X","arch":'),
      'not_an_attestation',
    ],
    [
      'two attestations in one response',
      withLastMember(withLastMember(RESPONSE, 'attestation', '{}'), 'attestation', JSON.stringify(good)),
      'not_an_attestation',
    ],
    ['raw changed', { ...good, raw: good.raw.replace('Hello', 'Jello') }, 'raw_hash_mismatch'],
    ["another answer's nonce", { ...good, nonce: other.nonce }, 'raw_hash_mismatch'],
    ["A's evidence on B's answer", { ...other, evidence: good.evidence }, 'report_nonce_mismatch'],
    ["A's token on B's answer", { ...other, token: good.token }, 'token_nonce_mismatch'],
    [
      'no evidence under a token of nobody',
      { raw: good.raw, nonce: good.nonce, token: good.token },
      'evidence_missing',
    ],
    ['a token that is none', { ...good, token: 'x.y.z' }, 'token_malformed'],
    ['evidence that is not base64', report((base64) => `*${base64.slice(1)}`), 'evidence_malformed'],
    [
      'a chain that is no PEM',
      { ...good, evidence: good.evidence.map((one) => ({ ...one, certificate_chain: 'AAAA' })) },
      'evidence_malformed',
    ],
    ['a report cut short', report((base64) => base64.slice(0, 400)), 'report_malformed'],
    [
      'a byte after the report',
      report((base64) => Buffer.concat([Buffer.from(base64, 'base64'), Buffer.of(0)]).toString('base64')),
      'report_malformed',
    ],
    ['a measurement changed', report((base64) => flip(base64, 500)), 'report_signature_invalid'],
    ['the signature changed', report((base64) => flip(base64, -1)), 'report_signature_invalid'],
    ['the second device broken', report((base64) => flip(base64, -1), two, 1), 'report_signature_invalid'],
    ['the first device twice', { ...two, evidence: [two.evidence[0], two.evidence[0]] }, 'evidence_malformed'],
    ['one device with two firmwares', firmwares, 'evidence_malformed'],
    ['one device fewer than the token says', { ...two, evidence: two.evidence.slice(0, 1) }, 'token_report_mismatch'],
    [
      'one device more than the token says',
      { ...good, evidence: two.evidence.map((one) => one) },
      'token_report_mismatch',
    ],
    [
      'another architecture',
      { ...good, evidence: good.evidence.map((one) => ({ ...one, arch: 'LS10' })) },
      'chain_invalid',
    ],
  ])('%s', async (_name, input, expected) => {
    expect(await code(input)).toBe(expected);
  });

  test('a device under another root, whatever it calls itself', async () => {
    const forged = {
      ...good,
      evidence: [await evidenceOf(good.nonce, stranger)],
      token: makeToken(good.nonce, [stranger], AT),
    };
    expect(await code(forged)).toBe('untrusted_root');
    expect(await code(forged, { simulatedRoot: undefined })).toBe('simulated_root_refused');
    expect(await code(good, { simulatedRoot: undefined })).toBe('simulated_root_refused');
    // Trusted by its name alone: the root in the chain has the right one.
    expect(stranger.chain[4].subject.equals(a.chain[4].subject)).toBe(true);
  });

  test('a firmware id that the leaf was not issued for', async () => {
    const odd = makeDevice(makeIssuersOfRoot(), { fwid: Buffer.alloc(48, 9) });
    const attestation = {
      ...good,
      evidence: [await evidenceOf(good.nonce, odd)],
      token: makeToken(good.nonce, [odd], AT),
    };
    expect(await code(attestation, { simulatedRoot: odd.chain[4].pem })).toBe('fwid_mismatch');
  });

  test('a token that says another driver, VBIOS or device than the report', async () => {
    const reported = await makeReport(Buffer.from(good.nonce, 'hex'), a.key, { driverVersion: '111.11' });
    const changed = {
      ...good,
      evidence: good.evidence.map((one) => ({ ...one, report: reported.toString('base64') })),
    };
    expect(await code(changed)).toBe('token_report_mismatch');
    expect(await code({ ...good, token: makeToken(good.nonce, [b], AT) })).toBe('token_report_mismatch');
  });

  test('what could not run is a skip that says why, never a pass', async () => {
    const { checks, proven, level } = await appraiseAttestation(
      { ...good, evidence: report((x) => x.slice(0, 400)).evidence },
      OPTIONS,
    );
    const later = checks.filter(
      ({ name }) => (CHECKS as readonly string[]).indexOf(name) > CHECKS.indexOf('report_form') && name !== 'policy',
    );
    for (const check of later) expect([check.name, check.status]).toEqual([check.name, 'skip']);
    for (const check of later) expect(check.detail).toMatch(/^not run: /);
    expect([proven, level]).toEqual([[], 'none']);
  });

  test('text over the limit, before it is parsed', async () => {
    const huge = `{"raw":"${'x'.repeat(1000)}"}`;
    expect(await code(huge, { limits: { maxCharacters: 500 } })).toBe('too_large');
    // Names and values: in the text that is given, in one that it holds, and in raw.
    const limits = { maxValues: 500 };
    const many = `[${'1,'.repeat(500)}1]`;
    for (const input of [many, JSON.stringify(many), { attestation: many }, { attestation: { ...good, raw: many } }])
      expect(await code(input, { limits })).toBe('too_large');
    expect(await code(good, { limits })).toBe('valid');
    expect(await code(JSON.stringify(JSON.stringify(good)), { limits })).toBe('valid');
  });
});

const makeIssuersOfRoot = () => makeIssuers(makeRoot(DEVICE_ROOT));

describe('what the caller holds', () => {
  const whole = (response: string, attestation: unknown = good) =>
    withLastMember(response, 'attestation', JSON.stringify(attestation));

  test.each<[string, unknown, VerifyOptions['expected'], string]>([
    ['the request', good, { request: REQUEST }, 'valid'],
    ['the request with other white space', good, { request: `${REQUEST.replaceAll(',', ' ,\n ')}\n` }, 'valid'],
    ['another request', good, { request: REQUEST.replace('Hi', 'Ho') }, 'request_mismatch'],
    ['white space changed inside a string', good, { request: REQUEST.replace('Hi ', 'Hi  ') }, 'request_mismatch'],
    ['a number written in another way', good, { request: REQUEST.replace('890', '891') }, 'request_mismatch'],
    ['the response', good, { response: RESPONSE }, 'valid'],
    ['the response with its attestation', good, { response: whole(RESPONSE) }, 'valid'],
    ['another response', good, { response: RESPONSE.replace('Hello', 'Jello') }, 'response_mismatch'],
    ['the nonce', good, { nonce: good.nonce }, 'valid'],
    ['another nonce', good, { nonce: other.nonce }, 'raw_hash_mismatch'],
    ['a carrier with another answer', whole(RESPONSE.replace('Hello', 'Jello')), {}, 'response_mismatch'],
    ['a carrier with space around it', ` \r\n${whole(RESPONSE)}\t\n`, {}, 'valid'],
    ['a carrier with one space more', whole(RESPONSE.replace(':0,', ': 0,')), {}, 'response_mismatch'],
    [
      'a parsed carrier with another answer',
      JSON.parse(whole(RESPONSE.replace('Hello', 'Jello'))),
      {},
      'response_mismatch',
    ],
    ['a transcript of an answer that was whole', good, { transcript: transcript(good) }, 'stream_mismatch'],
  ])('%s', async (_name, input, expected, verdict) => {
    expect(await code(input, { expected })).toBe(verdict);
  });

  test('a stream: its bytes, each of them', async () => {
    const stream = await attest(await streamed());
    const ok = transcript(stream);
    expect(await code(stream, { expected: { transcript: ok } })).toBe('valid');
    expect(await code(stream, { expected: { transcript: transcript(stream, PAYLOADS, '\r\n') } })).toBe('valid');
    for (const payloads of [
      PAYLOADS.slice(1),
      [...PAYLOADS.slice(0, 1), ...PAYLOADS],
      [PAYLOADS[1], PAYLOADS[0], PAYLOADS[2]] as string[],
      PAYLOADS.map((payload) => payload.replace('Hel', 'Jel')),
      PAYLOADS.map((payload) => payload.replace('"index":0', '"index": 0')),
    ])
      expect(await code(stream, { expected: { transcript: transcript(stream, payloads) } })).toBe('stream_mismatch');
    expect(await code(stream, { expected: { transcript: new Uint8Array() } })).toBe('stream_mismatch');
    expect(
      await code(stream, { expected: { transcript: Uint8Array.of(0x64, 0x61, 0x74, 0x61, 0x3a, 0xff, 10, 10) } }),
    ).toBe('stream_malformed');
  });

  test('a stream, handed in by itself', async () => {
    const stream = await attest(await streamed());
    const saved = transcript(stream);
    expect(
      (await verifyAttestation(saved, OPTIONS)).checks.find(({ name }) => name === 'expected_exchange')?.detail,
    ).toBe(`raw holds the ${PAYLOADS.length} events of the stream, byte for byte`);
    const changed = new TextDecoder().decode(saved);
    const codeOfText = async (text: string, limits = {}) =>
      (await appraiseAttestation(new TextEncoder().encode(text), { ...OPTIONS, limits })).checks.find(
        (check) => check.status === 'fail',
      )?.code;
    expect(await codeOfText(changed.replace('Hel', 'Jel'))).toBe('stream_mismatch');
    expect(await codeOfText(`event: x\n${changed}`)).toBe('stream_malformed');
    expect(await codeOfText('data: {}\n\n')).toBe('not_an_attestation');
    expect(await codeOfText('')).toBe('not_an_attestation');
    expect(await codeOfText(changed, { maxCharacters: 100 })).toBe('too_large');
  });

  test('a stream whose finish chunk is no JSON once the attestation stands in it', async () => {
    const stream = await attest(await streamed());
    const spoilt = new TextDecoder().decode(transcript(stream)).replace('"nonce":"', '"nonce":"\u0001');
    expect(await code(stream, { expected: { transcript: new TextEncoder().encode(spoilt) } })).toBe('stream_mismatch');
  });

  test('a stream whose events do not fold into the response that was signed', async () => {
    const parts = await streamed();
    const lying = await attest({ ...parts, response: parts.response.replace('Hello', 'Jello') });
    expect(await code(lying, { expected: { transcript: transcript(lying) } })).toBe('stream_mismatch');
  });

  test('the finish chunk carries it too, where the caller says so; another whole answer around it does not', async () => {
    const stream = await attest(await streamed());
    const finish = PAYLOADS.at(-1) ?? '';
    const event = { expected: { event: true } };
    const alone = withLastMember(finish, 'attestation', JSON.stringify(stream));
    expect(await code(alone, event)).toBe('valid');
    expect(await code(alone)).toBe('event_not_expected');
    expect(await code(withLastMember(RESPONSE, 'attestation', JSON.stringify(stream)))).toBe('response_mismatch');
    const talking = finish.replace('"delta":{}', '"delta":{"content":"Nonsense"}');
    expect(await code(withLastMember(talking, 'attestation', JSON.stringify(stream)))).toBe('response_mismatch');
  });
});

describe('policy', () => {
  test('freshness by the time in raw', async () => {
    expect(await code(good, { policy: { maxAgeSeconds: 10 } })).toBe('valid');
    expect(await code(good, { policy: { maxAgeSeconds: 9 } })).toBe('too_old');
    const early = await attest({ ...EXCHANGE, timestamp: SECONDS + 301 });
    expect(await code(early, { policy: { maxAgeSeconds: 9 } })).toBe('policy_refused');
  });

  test('a check that must pass may not be skipped', async () => {
    expect(await code(good, { policy: { requiredChecks: ['report_signature'] } })).toBe('valid');
    expect(await code(good, { policy: { requiredChecks: ['reference_values'] } })).toBe('policy_refused');
  });

  test("options that cannot be used are the caller's fault", async () => {
    await expect(appraiseAttestation(good, { simulatedRoot: 'x' })).rejects.toThrow(TypeError);
    await expect(appraiseAttestation(good, { at: new Date(Number.NaN) })).rejects.toThrow(TypeError);
    await expect(appraiseAttestation(good, { roots: { device: '' } })).rejects.toThrow('roots.device');
    for (const maxAgeSeconds of [Number.NaN, -1])
      await expect(appraiseAttestation(good, { policy: { maxAgeSeconds } })).rejects.toThrow('maxAgeSeconds');
  });

  test("a root that the caller gives in place of NVIDIA's makes no device NVIDIA's in words", async () => {
    const without = { revocation: true, referenceValues: true };
    const { proven, claims } = await verifyAttestation(good, { at: AT, roots: { device: simulatedRoot }, without });
    expect([claims.simulated, proven.join(' ')]).toEqual([
      false,
      expect.stringContaining('root that the caller trusts'),
    ]);
    expect(proven.join(' ')).not.toMatch(/genuine/);
  });

  test('with collateral and a root for it, a simulated device has to be endorsed like any other', async () => {
    const rim = makeRoot(RIM_ROOT).certificate.pem;
    expect(await code(good, { collateral: createCollateral(), roots: { rim } })).toBe('revocation_unavailable');
    const without = { revocation: true, referenceValues: true };
    expect(await code(good, { collateral: createCollateral(), roots: { rim }, without })).toBe('valid');
  });
});

describe.skipIf(!vectorsPresent)('genuine tokens', () => {
  test.each([
    'nvtrust-local-claims-2.0',
    'nvtrust-local-claims-3.0',
    'nvattest-local-alg-none',
    'nras-es384-detached-eat',
  ])('%s is about another nonce than any answer of ours', async (file) => {
    expect(await code({ ...good, token: text(`tokens/${file}.json`) })).toBe('token_nonce_mismatch');
  });
});
