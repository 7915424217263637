// Token parsing: shapes, nonces, results, digests, and the input that nobody should send.
import { describe, expect, it } from 'vitest';
import { CheckFailure } from '../../../verify/common/checks.ts';
import { checkTokenDigests, nvtrustDigestText } from '../../../verify/token/digests.ts';
import { parseToken } from '../../../verify/token/token.ts';
import { detached, device, digestOf, hs256, jwt, NONCE, nested, none, nvtrust } from './token-maker.ts';

const refused = (token: string, message?: RegExp) =>
  expect(() => parseToken(token)).toThrow(
    expect.objectContaining({
      name: 'CheckFailure',
      code: 'token_malformed',
      ...(message === undefined ? {} : { message: expect.stringMatching(message) }),
    }),
  );
const LOCAL = 'LOCAL_GPU_VERIFIER';
const secret = hs256('secret');
const mismatched = (token: string) =>
  expect(checkTokenDigests(parseToken(token))).rejects.toMatchObject({ code: 'token_digest_mismatch' });

describe('the nonces of a token', () => {
  it('are those of every part that must have one', () => {
    expect(parseToken(nvtrust({ devices: [{}, {}] })).nonces).toEqual([NONCE, NONCE, NONCE]);
    const other = 'ef'.repeat(32);
    expect(parseToken(nvtrust({ devices: [{}, { eat_nonce: other }] })).nonces).toEqual([NONCE, NONCE, other]);
    expect(parseToken(nvtrust({ overall: { eat_nonce: other } })).nonces).toEqual([other, NONCE]);
  });

  it('are missing nowhere: a part without one is malformed', () => {
    for (const eat_nonce of [undefined, null, '', 1, true, {}, [NONCE]]) {
      refused(nvtrust({ overall: { eat_nonce } }), /eat_nonce/);
      refused(nvtrust({ devices: [{}, { eat_nonce }] }), /eat_nonce/);
      refused(jwt({ iss: LOCAL, eat_nonce }, secret), /eat_nonce/);
    }
  });

  it('count in the outer JWT too, which needs none', () => {
    const outer = ['JWT', jwt({ iss: 'x', eat_nonce: 'another' }, hs256('notasecret'))];
    const token = JSON.stringify([outer, { LOCAL_GPU_CLAIMS: detached(LOCAL, secret) }]);
    expect(parseToken(token).nonces).toEqual(['another', NONCE, NONCE]);
  });
});

describe('the result of a token', () => {
  const result = (...results: unknown[]) =>
    parseToken(
      nested(
        Object.fromEntries(
          results.map((own, i) => [
            `V${i}`,
            detached(LOCAL, secret, { overall: { 'x-nvidia-overall-att-result': own } }),
          ]),
        ),
      ),
    ).overallResult;

  it('is true when every verifier says true and nothing else', () => {
    expect([result(true), result(true, true)]).toEqual([true, true]);
    expect([result(false), result(true, false), result('true'), result(1), result({})]).toEqual([
      false,
      false,
      false,
      false,
      false,
    ]);
    expect([result(undefined), result(null, true), result(undefined, false)]).toEqual([null, null, false]);
  });

  it('is false where nvattest says that it failed', () => {
    const printed = (more: object) => JSON.stringify({ detached_eat: detached('NVAT', none), ...more });
    expect(parseToken(printed({ result_code: 0 })).overallResult).toBe(true);
    expect(parseToken(printed({ result_code: 3 })).overallResult).toBe(false);
    expect(parseToken(printed({ result_code: '0' })).overallResult).toBe(false);
  });
});

describe('the digests of a token', () => {
  it('hold for every submodule, no matter who made them', async () => {
    for (const value of [
      detached(LOCAL, secret, { devices: [{}, {}, {}] }),
      detached('x', none, { devices: [{}, {}, {}] }),
    ])
      await expect(checkTokenDigests(parseToken(JSON.stringify(value)))).resolves.toMatchObject({ rechecked: 3 });
  });

  it('are over the claims before times and id, written as Python writes them and not decoded on the way', () => {
    const payload = String.raw`{"a":1.0,"b":"x, y: \"z\"é","nbf":1,"big":12345678901234567890,"2":[1,{"jti":2}],"1":{},"exp":2,"iat":3,"jti":"j"}`;
    expect(nvtrustDigestText(payload)).toBe(
      String.raw`{"a": 1.0, "b": "x, y: \"z\"\u00e9", "big": 12345678901234567890, "2": [1, {"jti": 2}], "1": {}}`,
    );
  });

  it('do not hold for a submodule of another token, or in another place', async () => {
    for (const alg of [secret, none]) {
      const [overall, parts] = detached('x', alg, { devices: [{ ueid: '1' }, { ueid: '2' }] });
      const [, others] = detached('x', alg, { devices: [{ ueid: '3' }] });
      await mismatched(JSON.stringify([overall, { ...parts, 'GPU-1': others['GPU-0'] }]));
      await mismatched(JSON.stringify([overall, { 'GPU-0': parts['GPU-1'], 'GPU-1': parts['GPU-0'] }]));
      await mismatched(JSON.stringify([overall, { 'GPU-0': parts['GPU-0'] }]));
      await mismatched(JSON.stringify([overall, { ...parts, 'GPU-2': parts['GPU-0'] }]));
      await mismatched(JSON.stringify([overall, { 'GPU-0': parts['GPU-0'], 'GPU-01': parts['GPU-1'] }]));
    }
  });

  it('are SHA-256, in the one form there is', async () => {
    const part = jwt(device('x'), none);
    const right = digestOf(part);
    const forms: unknown[] = [
      ...[undefined, null, {}, [], 'x', 1],
      ...['x', [], ['DIGEST'], ['DIGEST', right], ['digest', ['SHA256', right]], ['DIGEST', ['SHA-1', right]]].map(
        (form) => ({ 'GPU-0': form }),
      ),
      ...[
        ['DIGEST', ['SHA256', right.slice(2)]],
        ['DIGEST', ['SHA256', right, 1]],
        ['DIGEST', ['SHA256', right], 1],
      ].map((form) => ({ 'GPU-0': form })),
      { 'GPU-0': ['DIGEST', ['SHA256', right]], 'GPU-1': 1 },
    ];
    for (const submods of forms) {
      const overall = jwt({ eat_nonce: NONCE, submods }, none);
      await mismatched(JSON.stringify([['JWT', overall], { 'GPU-0': part }]));
    }
  });
});

describe('a token that is not one', () => {
  it('is refused', () => {
    const value = detached(LOCAL, secret);
    const [overall, parts] = value;
    for (const text of [
      '',
      ' ',
      '[]',
      '{}',
      '[',
      '{',
      '"',
      'null',
      '""',
      'x',
      'x.y',
      '..',
      'a.b.c',
      'e30.e30.',
      '[[]]',
      '[[],[]]',
    ])
      refused(text);
    for (const wrong of [
      [overall],
      [overall, {}],
      [overall, []],
      [overall, null],
      [['JWT'], parts],
      [['jwt', overall[1]], parts],
    ])
      refused(JSON.stringify(wrong));
    refused(JSON.stringify([overall, parts, {}]), /not a detached EAT/);
    refused(JSON.stringify([['JWT', overall[1], 'x'], parts]), /begin with its JWT/);
    refused(JSON.stringify([overall, { 'GPU-0': 1 }]), /not a JWT/);
    refused(JSON.stringify([overall, { 'GPU-0': parts['GPU-0'], LOCAL_GPU_CLAIMS: value }]), /side by side/);
    refused(JSON.stringify([overall, { 'GPU 0': parts['GPU-0'] }]), /name/);
    refused(JSON.stringify([overall, { ['G'.repeat(65)]: parts['GPU-0'] }]), /name/);
    refused(JSON.stringify({ detached_eat: overall[1] }), /not a detached EAT/);
    refused(nested({ LOCAL_GPU_CLAIMS: [value] }), /not a detached EAT/);
    refused(nested({ LOCAL_GPU_CLAIMS: [overall, { X: value }] }), /not a JWT/);
  });

  it('is refused where a JWT in it is broken', () => {
    const bad = [
      ...[
        'e30.e30.',
        `${Buffer.from('{"alg":1}').toString('base64url')}.e30.`,
        '!.e30.',
        'e30.e30',
        'e30.e30.e30.e30',
        'e30=.e30.',
      ],
      jwt('[]', none),
      jwt('{"a":1,"a":2}', none),
      jwt('{"a":1}x', none),
      jwt('{"a":01}', none),
      jwt('{"a":"\u0001"}', none),
      jwt('{a:1}', none),
      jwt({ eat_nonce: NONCE }, { ...none, header: { alg: 'none', crit: ['b64'] } }),
      jwt({ eat_nonce: NONCE }, { ...none, header: { alg: 'none', kid: 1 } }),
      `e30.${Buffer.of(0xff).toString('base64url')}.`,
    ];
    for (const part of bad) {
      refused(part);
      refused(JSON.stringify([['JWT', part], { 'GPU-0': jwt(device('x'), none) }]));
    }
  });

  it('is refused where nvattest’s printed claims are not those of its token', () => {
    const { iss: _, iat: __, nbf: ___, exp: ____, jti: _____, ...claims } = device('x') as Record<string, unknown>;
    const print = (printed: unknown) => JSON.stringify({ detached_eat: detached('x', none), claims: printed });
    expect(parseToken(print([claims])).kind).toBe('nvattest');
    expect(parseToken(print([Object.fromEntries(Object.entries(claims).reverse())])).kind).toBe('nvattest');
    for (const other of [
      [],
      [claims, claims],
      [{ ...claims, measres: 'fail' }],
      [{ ...claims, more: 1 }],
      claims,
      [null],
      'x',
    ])
      refused(print(other), /printed claims/);
  });

  it('cannot name members of an object’s prototype', () => {
    const claims = `{"__proto__":{"eat_nonce":"${NONCE}"},"constructor":{"prototype":{}}}`;
    refused(jwt(claims, none), /eat_nonce/);
    const token = parseToken(jwt(`{"eat_nonce":"${NONCE}","__proto__":{"ueid":"1","measres":"success"}}`, none));
    expect(token.devices).toEqual([]);
    expect(({} as Record<string, unknown>).ueid).toBeUndefined();
    const part = jwt(device('x'), none);
    const odd = `[["JWT","${jwt({ eat_nonce: NONCE }, none)}"],{"__proto__":"${part}"}]`;
    expect(parseToken(odd).devices.map(({ name }) => name)).toEqual(['__proto__']);
    return mismatched(odd);
  });

  it('is refused where it names a member twice, at any depth', () => {
    const [[, overall], parts] = detached('x', none);
    const part = parts['GPU-0'] as string;
    refused(`[["JWT","${overall}"],{"GPU-0":"${part}","GPU-0":"${part}"}]`, /twice/);
    refused(`{"detached_eat":[["JWT","${overall}"],{"GPU-0":"${part}"}],"detached_eat":[]}`, /twice/);
    refused(jwt(`{"eat_nonce":"${NONCE}","\\u0065at_nonce":"x"}`, none), /twice/);
    refused(jwt(`{"eat_nonce":"${NONCE}","a":{"b":[{"c":1,"c":1}]}}`, none), /twice/);
  });

  it('reads claims 4.0: values of the opaque data by name, and those that differ from their reference values', () => {
    const read = (claims: object) => parseToken(nvtrust({ devices: [{ ...claims }] })).devices[0];
    const values = { 'x-nvidia-attester-claims': { FSP_UCODE_MIN_SVN: 7, B: 0 } };
    expect(read(values)?.attesterClaims).toEqual(
      new Map([
        ['FSP_UCODE_MIN_SVN', 7],
        ['B', 0],
      ]),
    );
    expect(read({})).toMatchObject({ attesterClaims: null, measres: 'success' });
    const differs = { id: 37, name: 'FSP_UCODE_MIN_SVN', goldenType: 'MIN_SVN', goldenValue: 10 };
    expect(read({ 'x-nvidia-mismatch-opaque-data-records': [differs] })).toMatchObject({ measres: 'fail' });
    expect(read({ 'x-nvidia-mismatch-opaque-data-records': null })).toMatchObject({ measres: 'success' });
    for (const value of [-1, 1.5, '7', null, 2 ** 53])
      refused(nvtrust({ devices: [{ 'x-nvidia-attester-claims': { a: value } }] }), /no number of 0 or more/);
    refused(nvtrust({ devices: [{ 'x-nvidia-attester-claims': [] }] }), /not an object/);
    refused(nvtrust({ devices: [{ 'x-nvidia-mismatch-opaque-data-records': {} }] }), /not a list/);
  });

  it('has limits of size, depth, values, verifiers and submodules', () => {
    const deep = 512 * 1024;
    refused('['.repeat(deep) + ']'.repeat(deep), /deeper/);
    refused('['.repeat(2 * deep));
    refused('['.repeat(1024 * 1024 + 1), /longer/);
    refused(`${'{"a":'.repeat(20)}1${'}'.repeat(20)}`, /deeper/);
    refused(jwt(`{"a":${'['.repeat(100)}${']'.repeat(100)}}`, none), /deeper/);
    refused(`[${'1,'.repeat(100_000)}1]`, /more than 65536 values/);
    const devices = (count: number) => Array.from({ length: count }, () => ({}));
    expect(parseToken(JSON.stringify(detached('x', none, { devices: devices(64) }))).devices).toHaveLength(64);
    refused(JSON.stringify(detached('x', none, { devices: devices(65) })), /submodules/);
    const verifiers = (count: number) =>
      Object.fromEntries(devices(count).map((_, i) => [`V${i}`, detached('x', secret)]));
    refused(nested(verifiers(9)), /verifiers/);
    refused(nvtrust({ devices: [{ ueid: 'x'.repeat(1025) }] }), /short string/);
    refused(nvtrust({ devices: [{ secboot: 'true' }] }), /boolean/);
  });

  it('takes time in proportion to its size', () => {
    const mega = 1000 * 1000;
    const started = performance.now();
    for (const text of [
      '"'.repeat(mega),
      `"${'\\'.repeat(mega)}`,
      `["${'a'.repeat(mega)}`,
      `[${' '.repeat(mega)}`,
      `[${'1'.repeat(mega)}`,
      '.'.repeat(mega),
      `["${'\\u0000'.repeat(mega / 6)}`,
    ])
      refused(text);
    expect(performance.now() - started).toBeLessThan(3000);
  });
});

describe('a token cut short or with bits turned', () => {
  it('is refused or read, never anything else', async () => {
    const tokens = [
      nvtrust({ devices: [{}, {}] }),
      JSON.stringify({ detached_eat: detached('x', none), claims: undefined }),
      jwt(device('x'), none),
    ];
    for (const token of tokens) {
      for (let i = 0; i < token.length; i += 3) {
        const turned =
          token.slice(0, i) + String.fromCharCode(token.charCodeAt(i) ^ (1 << (i % 7))) + token.slice(i + 1);
        for (const text of [token.slice(0, i), turned]) {
          try {
            await checkTokenDigests(parseToken(text));
          } catch (error) {
            expect(error).toBeInstanceOf(CheckFailure);
          }
        }
      }
    }
  });
});
