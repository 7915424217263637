// The twin's token: the same nesting, members and digest rule as the one NVIDIA's Python verifier returned.
import { createHash } from 'node:crypto';
import { decodeJwt, type JWTVerifyOptions, jwtVerify } from 'jose';
import { describe, expect, test } from 'vitest';
import { pythonJson } from '../../../demo/twin/token.ts';
import { vector, vectorsPresent } from '../../support/vectors.ts';
import { makeToken } from '../../twin/token.ts';

type Claims = Record<string, unknown>;
type Token = [['JWT', string], { LOCAL_GPU_CLAIMS: [['JWT', string], Record<string, string>] }];

const nonce = 'ab'.repeat(32);
const now = new Date('2026-03-01T12:00:00Z');
const subjects = [
  { hwmodel: 'SIMULATED GH100 A01 GSP BROM', ueid: '12345678901234567890' },
  { hwmodel: 'SIMULATED GH100 A01 GSP BROM', ueid: '98765432109876543210' },
];
const GENUINE = 'nvidia/tokens/nvtrust-local-claims-3.0.json';

function open(text: string) {
  const [[, outer], { LOCAL_GPU_CLAIMS: locals }] = JSON.parse(text) as Token;
  const [[, platform], devices] = locals;
  return { outer, platform, devices };
}

/** Python's json.dumps by another road than the maker's: for texts without line breaks in them. */
const dumps = (value: unknown): string =>
  JSON.stringify(value, null, 1)
    .replace(/,\n\s*/g, ', ')
    .replace(/\n\s*/g, '');

function digestsHold(text: string): boolean {
  const { platform, devices } = open(text);
  const submods = decodeJwt<{ submods: Record<string, ['DIGEST', ['SHA256', string]]> }>(platform).submods;
  const names = Object.keys(devices);
  return names.every((name) => {
    const { nbf: _1, exp: _2, iat: _3, jti: _4, ...claims } = decodeJwt(devices[name] ?? '');
    return submods[name]?.[1][1] === createHash('sha256').update(dumps(claims)).digest('hex');
  });
}

const kinds = (claims: Claims): Record<string, string> =>
  Object.fromEntries(Object.entries(claims).map(([name, value]) => [name, value === null ? 'null' : typeof value]));

describe('the simulated token', () => {
  test('every part is signed with the constants that NVIDIA has published', async () => {
    const { outer, platform, devices } = open(makeToken(nonce, subjects, now));
    const by = (secret: string) =>
      [new TextEncoder().encode(secret), { currentDate: now, algorithms: ['HS256' as const] }] as [
        Uint8Array,
        JWTVerifyOptions,
      ];
    await jwtVerify(outer, ...by('notasecret'));
    for (const part of [platform, ...Object.values(devices)]) {
      const { payload } = await jwtVerify(part, ...by('secret'));
      expect(payload.eat_nonce).toBe(nonce);
      expect(payload.iss).toContain('SIMULATED');
    }
    await expect(jwtVerify(outer, ...by('secret'))).rejects.toMatchObject({
      code: 'ERR_JWS_SIGNATURE_VERIFICATION_FAILED',
    });
  });

  test('names a device per GPU, each by the digest of its claims', () => {
    const text = makeToken(nonce, subjects, now);
    const { devices } = open(text);
    expect(Object.keys(devices)).toEqual(['GPU-0', 'GPU-1']);
    expect(digestsHold(text)).toBe(true);
    expect(decodeJwt(devices['GPU-1'] ?? '')).toMatchObject({ ueid: '98765432109876543210', measres: 'success' });
  });

  test.skipIf(!vectorsPresent)('the digest rule is the genuine one', () => {
    expect(digestsHold(vector(GENUINE).toString())).toBe(true);
  });

  test.skipIf(!vectorsPresent)('has the members of the genuine one, of the same kinds, in the same order', () => {
    const genuine = open(vector(GENUINE).toString());
    const twin = open(makeToken(nonce, subjects.slice(0, 1), now));
    expect(kinds(decodeJwt(twin.outer))).toEqual(kinds(decodeJwt(genuine.outer)));
    for (const part of ['platform', 'device'] as const) {
      const of = (token: typeof twin) =>
        decodeJwt(part === 'platform' ? token.platform : (token.devices['GPU-0'] ?? ''));
      expect(Object.entries(kinds(of(twin)))).toEqual(Object.entries(kinds(of(genuine))));
    }
  });

  test('can say that the appraisal failed', () => {
    const { platform, devices } = open(makeToken(nonce, subjects, now, { result: false }));
    expect(decodeJwt(platform)).toMatchObject({ 'x-nvidia-overall-att-result': false });
    expect(decodeJwt(devices['GPU-0'] ?? '')).toMatchObject({ measres: 'fail' });
    expect(decodeJwt(devices['GPU-0'] ?? '')).not.toHaveProperty('secboot');
  });

  test("escapes as Python's json.dumps does", () => {
    expect(pythonJson({ a: ['é\u007f😀"\n', null, true, 1] })).toBe(
      '{"a": ["\\u00e9\\u007f\\ud83d\\ude00\\"\\n", null, true, 1]}',
    );
    expect(pythonJson([])).toBe('[]');
    expect(pythonJson({})).toBe('{}');
  });
});
