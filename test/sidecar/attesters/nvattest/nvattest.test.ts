// ATTESTER=nvattest over a scripted nvattest: NVIDIA's shapes, and its errors.
import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { loadOrMakeRoot } from '../../../../demo/twin/pki.ts';
import type { Nonce } from '../../../../proto/attestation/raw.ts';
import { checkCollected } from '../../../../sidecar/signing/evidence-check.ts';
import { failureOf, never } from '../../../support/attest.ts';
import { vector, vectorsPresent } from '../../../support/vectors.ts';
import { at, attested, calls, collected, create, evidences, failed, nonce, say } from './nvattest-fake.ts';

describe('a healthy node', () => {
  test('collects evidence over the nonce, has that evidence appraised, and what it returns passes our own check', async () => {
    let version = '';
    const attester = await create({
      onVersion: (told) => (version = told),
      rim_url: 'http://rim',
      ocsp_url: 'http://ocsp',
    });
    expect(version).toBe('1.1.0');
    expect(attester.devices).toHaveLength(1);
    expect(attester.devices[0]?.arch).toBe('HOPPER');
    const answer = await attester.attest(nonce, never);
    await checkCollected(answer, nonce, {
      ...attester,
      simulated: { root: (await loadOrMakeRoot(at('root'))).certificate.pem },
    });
    expect(JSON.parse(answer.token)).toMatchObject({ result_code: 0, claims: [{ eat_nonce: nonce }] });

    const [, first, second, third] = calls();
    expect(first?.rest).not.toContain(nonce);
    expect(second?.rest).toBe(
      `--device gpu --gpu-evidence-source nvml --nonce ${nonce} --format json --log-level error`,
    );
    expect(third?.rest).toMatch(
      new RegExp(
        `^--device gpu --verifier local --nonce ${nonce} --gpu-evidence-source file --gpu-evidence-file /\\S+/evidence.json ` +
          `--relying-party-policy /\\S+/sidecar/attesters/nvattest/policy.rego --rim-url http://rim --ocsp-url http://ocsp ` +
          '--format json --log-level error$',
      ),
    );
    expect(JSON.parse(readFileSync(at('evidence-seen'), 'utf8'))).toEqual([
      expect.objectContaining({ nonce, version: '1.0' }),
    ]);
    expect(calls().filter(({ cwd }) => existsSync(cwd))).toEqual([]);
    const seen = readFileSync(at('env'), 'utf8');
    expect(seen).toContain('NV_ATTESTATION_SERVICE_KEY=key');
    expect(seen).not.toContain('SECRET');
    await attester.close();
  });

  test('two GPUs give two reports and one token', async () => {
    say('collect-evidence.out', collected(await evidences(nonce, 2)));
    say('attest.out', attested(nonce, { count: 2 }));
    const attester = await create();
    expect(attester.devices).toHaveLength(2);
    const answer = await attester.attest(nonce, never);
    await checkCollected(answer, nonce, {
      ...attester,
      simulated: { root: (await loadOrMakeRoot(at('root'))).certificate.pem },
    });
    expect(answer.evidence).toHaveLength(2);
  });

  test.skipIf(!vectorsPresent)("reads what NVIDIA's own nvattest printed", async () => {
    const genuine = '11'.repeat(32) as Nonce;
    const attester = await create();
    say('attest.first.out', vector('nvidia/tokens/nvattest-local-alg-none.json').toString());
    const { token } = await attester.attest(genuine, never);
    expect(token).toBe(vector('nvidia/tokens/nvattest-local-alg-none.json').toString().trim());
    expect((await failureOf(attester.attest('22'.repeat(32) as Nonce, never))).message).toMatch(
      /^wrong_nonce: the token/,
    );
  });

  test.skipIf(!vectorsPresent)('the policy asks for nothing that a genuine passing device does not have', () => {
    const policy = readFileSync(new URL('../../../../sidecar/attesters/nvattest/policy.rego', import.meta.url), 'utf8');
    const { claims } = JSON.parse(vector('nvidia/tokens/nvattest-local-alg-none.json').toString()) as {
      claims: Record<string, unknown>[];
    };
    const asked = [...policy.matchAll(/claims(?:\.(\w+)|\["([^"]+)"\]) == (.+)/g)];
    expect(asked.length).toBeGreaterThan(12);
    for (const [, bare, quoted, value] of asked)
      expect(claims[0]?.[bare ?? quoted ?? ''], bare ?? quoted).toEqual(JSON.parse(value ?? ''));
    for (const [, name] of policy.matchAll(/chain_is_good\(claims\["([^"]+)"\]\)/g))
      expect(claims[0]?.[name ?? '']).toMatchObject({
        'x-nvidia-cert-status': 'valid',
        'x-nvidia-cert-ocsp-status': 'good',
      });
  });
});

describe('what nvattest says is wrong', () => {
  test.each([
    [12, 'appraisal_failed', false, /^refused: /],
    [11, 'appraisal_failed', false, /^policy_refused: .*policy\.rego/],
    [15, 'appraisal_failed', true, /^rate_limited: .*wait/],
    [103, 'appraisal_failed', true, /^rim_unreachable: .*RIM_URL/],
    [104, 'appraisal_failed', false, /^rim_not_found: /],
    [201, 'appraisal_failed', true, /^ocsp_unreachable: .*OCSP_URL/],
    [204, 'appraisal_failed', false, /^ocsp_revoked: /],
    [508, 'appraisal_failed', false, /^report_signature: /],
    [599, 'collection_failed', false, /^gpu_error: .*do not know/],
  ] as const)('result %i of attest', async (result_code, code, retryable, words) => {
    const attester = await create();
    say('attest.out', failed(result_code));
    say('attest.exit', String(result_code & 0xff));
    const error = await failureOf(attester.attest(nonce, never));
    expect(error).toMatchObject({ code, retryable, message: expect.stringMatching(words) });
    expect(error.message).toContain(`nvattest ${result_code}: rc ${result_code}`);
  });

  test('a no with claims tells which of them said it', async () => {
    const attester = await create();
    const chain = { 'x-nvidia-cert-status': 'valid', 'x-nvidia-cert-ocsp-status': 'revoked' };
    const claims = [
      {
        measres: 'fail',
        'x-nvidia-mismatch-measurement-records': [{ index: 9 }, { index: 52 }],
        'x-nvidia-gpu-vbios-rim-version-match': false,
        'x-nvidia-gpu-driver-rim-cert-chain': chain,
      },
    ];
    say('attest.out', { ...attested(nonce, { result: false }), claims, result_code: 12 });
    say('attest.exit', '12');
    expect((await failureOf(attester.attest(nonce, never))).message).toContain(
      '(nvattest 12: GPU 0: measurements 9, 52 differ from the reference values; vbios-rim-version-match is false; driver-rim-cert-chain: ocsp revoked)',
    );
  });

  test.each([
    [500, false, /no_driver: .*nvidia-smi/],
    [501, true, /nvml_error: /],
    [502, false, /unsupported_gpu: /],
    [509, false, /cc_off: .*turn it on/],
  ] as const)(
    'result %i of collect-evidence keeps the attester from starting',
    async (result_code, retryable, words) => {
      say('collect-evidence.out', { evidences: null, result_code, result_message: 'no' });
      say('collect-evidence.exit', String(result_code & 0xff));
      const error = await failureOf(create());
      expect(error).toMatchObject({ code: 'collection_failed', retryable, message: expect.stringMatching(words) });
      expect(error.message).toMatch(/^ATTESTER=nvattest cannot run here: /);
    },
  );

  test('an old nvattest, which does not know the options, is told to be replaced', async () => {
    say('collect-evidence.out', '');
    say(
      'collect-evidence.err',
      'The following arguments were not expected: --format\nRun with --help for more information.\n',
    );
    say('collect-evidence.exit', '109');
    expect(await failureOf(create())).toMatchObject({
      retryable: false,
      message: expect.stringContaining('install a newer one'),
    });
  });
});
