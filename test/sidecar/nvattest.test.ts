// ATTESTER=nvattest over a scripted nvattest: NVIDIA's shapes, its errors, and what a program can do wrong.
import { createHash } from 'node:crypto';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import type { Nonce } from '../../proto/raw.ts';
import { AttesterError } from '../../sidecar/attester.ts';
import { createNvattestAttester } from '../../sidecar/attesters/nvattest.ts';
import { checkCollected } from '../../sidecar/checked.ts';
import { nvattestEnvironment } from '../../sidecar/nvattest/environment.ts';
import { chainPem, makeDevice, makeIssuers } from '../../sidecar/simulated/device.ts';
import { loadOrMakeRoot } from '../../sidecar/simulated/pki.ts';
import { makeReport } from '../../sidecar/simulated/report.ts';
import { vector, vectorsPresent } from '../vectors.ts';

const folder = mkdtempSync(join(tmpdir(), 'nvattest-test-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const at = (name: string) => join(folder, name);
const nonce = '5a'.repeat(32) as Nonce;
const never = new AbortController().signal;

// Prints what `collect-evidence.out` and `attest.out` hold, NONCE replaced, and does what `….does` says.
const FAKE = `#!/bin/sh
F='${folder}'
command=$1
shift
all=$*
while [ $# -gt 0 ]; do
  case $1 in
    --nonce) nonce=$2 ;;
    --gpu-evidence-file) evidence=$2 ;;
  esac
  shift
done
printf '%s\\t%s\\t%s\\t%s\\n' "$command" "$all" "$(pwd)" $$ >>"$F/calls"
env >>"$F/env"
echo x >left-behind.log
case $(cat "$F/$command.does" 2>/dev/null) in
  hang) sleep 60 ;;
  crash) kill -SEGV $$ ;;
  flood) yes ;;
esac
[ -n "$evidence" ] && cat "$evidence" >>"$F/evidence-seen"
file=$F/$command.out
[ "$nonce" != '${nonce}' ] && [ -e "$F/$command.first.out" ] && file=$F/$command.first.out
cat "$F/$command.err" >&2 2>/dev/null
sed "s/NONCE/$nonce/g" "$file"
exit "$(cat "$F/$command.exit" 2>/dev/null || echo 0)"
`;
const program = at('nvattest');
writeFileSync(program, FAKE);
chmodSync(program, 0o755);

const evidences = async (over: Nonce, count = 1) => {
  const issuers = makeIssuers(await loadOrMakeRoot(at('root')));
  return Promise.all(
    Array.from({ length: count }, async () => {
      const device = makeDevice(issuers);
      const report = await makeReport(Buffer.from(over, 'hex'), device.key);
      return {
        arch: 'HOPPER',
        certificate: Buffer.from(chainPem(device)).toString('base64'),
        evidence: report.toString('base64'),
        nonce: 'NONCE',
        version: '1.0',
      };
    }),
  );
};
const base64url = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
const jwt = (claims: unknown) => `${base64url({ alg: 'none' })}.${base64url(claims)}.`;
const attested = (over: string, { result = true, count = 1 } = {}) => {
  const claims = Array.from({ length: count }, (_, i) => ({
    eat_nonce: over,
    hwmodel: 'GH100 A01 GSP BROM',
    measres: 'success',
    ueid: String(i),
    'x-nvidia-device-type': 'gpu',
  }));
  const digest = (one: unknown) => createHash('sha256').update(JSON.stringify(one)).digest('hex');
  const overall = {
    eat_nonce: over,
    iss: 'NVAT-LOCAL-VERIFIER',
    submods: Object.fromEntries(claims.map((one, i) => [`GPU-${i}`, ['DIGEST', ['SHA256', digest(one)]]])),
    'x-nvidia-overall-att-result': result,
  };
  const devices = Object.fromEntries(claims.map((one, i) => [`GPU-${i}`, jwt(one)]));
  return { claims, detached_eat: [['JWT', jwt(overall)], devices], result_code: 0, result_message: 'Ok' };
};
const say = (name: string, value: unknown) =>
  writeFileSync(at(name), typeof value === 'string' ? value : JSON.stringify(value, null, 4));
const failed = (result_code: number) => ({
  claims: {},
  detached_eat: {},
  result_code,
  result_message: `rc ${result_code}`,
});
const collected = (list: unknown) => ({ evidences: list, result_code: 0, result_message: 'Ok' });
const calls = () =>
  readFileSync(at('calls'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => {
      const [command = '', rest = '', cwd = '', pid = ''] = line.split('\t');
      return { command, rest, cwd, pid: Number(pid) };
    });
const isAlive = (pid: number) =>
  existsSync(`/proc/${pid}/stat`) && !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));

const create = (options: Partial<Parameters<typeof createNvattestAttester>[0]> = {}) =>
  createNvattestAttester({
    program,
    environment: nvattestEnvironment({ PATH: process.env.PATH, SECRET: 'x', NVIDIA_ATTESTATION_SERVICE_KEY: 'key' }),
    ...options,
  });

beforeEach(async () => {
  for (const name of ['collect-evidence', 'attest', 'version'])
    for (const kind of ['out', 'first.out', 'err', 'exit', 'does']) rmSync(at(`${name}.${kind}`), { force: true });
  for (const name of ['calls', 'env', 'evidence-seen']) rmSync(at(name), { force: true });
  say('version.out', { nvattest: '1.1.0' });
  say('collect-evidence.out', collected(await evidences(nonce)));
  say('attest.out', attested(nonce));
});

const refusal = async (work: Promise<unknown>): Promise<AttesterError> => {
  const error = await work.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(AttesterError);
  return error as AttesterError;
};

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
          `--relying-party-policy /\\S+/sidecar/nvattest/policy.rego --rim-url http://rim --ocsp-url http://ocsp ` +
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
    expect((await refusal(attester.attest('22'.repeat(32) as Nonce, never))).message).toMatch(
      /^wrong_nonce: the token/,
    );
  });

  test.skipIf(!vectorsPresent)('the policy asks for nothing that a genuine passing device does not have', () => {
    const policy = readFileSync(new URL('../../sidecar/nvattest/policy.rego', import.meta.url), 'utf8');
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
    const error = await refusal(attester.attest(nonce, never));
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
    expect((await refusal(attester.attest(nonce, never))).message).toContain(
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
      const error = await refusal(create());
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
    expect(await refusal(create())).toMatchObject({
      retryable: false,
      message: expect.stringContaining('install a newer one'),
    });
  });
});

describe('what a program can do wrong', () => {
  const rejects = async (words: RegExp, retryable: boolean, options = {}) => {
    const attester = await create(options);
    return async () => {
      const error = await refusal(attester.attest(nonce, never));
      expect(error.message).toMatch(words);
      expect(error.retryable).toBe(retryable);
      for (const { cwd, pid } of calls()) {
        expect(existsSync(cwd)).toBe(false);
        expect(isAlive(pid)).toBe(false);
      }
    };
  };

  test.each([
    ['no output', '', /^nvattest_garbage: .*exit code 0/],
    ['words', 'GPU attestation was successful', /^nvattest_garbage: /],
    ['half its JSON', JSON.stringify(attested(nonce)).slice(0, 300), /^nvattest_garbage: /],
    ['two answers', JSON.stringify(attested(nonce)).repeat(2), /^nvattest_garbage: /],
    ['no code', JSON.stringify({ claims: [], detached_eat: [] }), /^nvattest_garbage: /],
  ])('prints %s', async (_, output, words) => {
    const check = await rejects(words, true);
    say('attest.out', output);
    await check();
  });

  test('answers for another nonce', async () => {
    const check = await rejects(/^wrong_nonce: the token/, false);
    say('attest.out', attested('ab'.repeat(32)));
    await check();
  });

  test('collects over another nonce', async () => {
    const check = await rejects(/^wrong_nonce: nvattest collected/, false);
    say('collect-evidence.out', collected((await evidences(nonce)).map((one) => ({ ...one, nonce: 'ab'.repeat(32) }))));
    await check();
  });

  test('says Ok over a token that says no', async () => {
    const check = await rejects(/^refused: /, false);
    say('attest.out', attested(nonce, { result: false }));
    await check();
  });

  test('says Ok and ends with an error', async () => {
    const check = await rejects(/^nvattest_died: .*exit code 3/, true);
    say('attest.exit', '3');
    await check();
  });

  test('loses a GPU', async () => {
    say('collect-evidence.first.out', collected(await evidences(nonce, 2)));
    const check = await rejects(/^wrong_device_count: evidence of 1 GPUs where there were 2/, false);
    await check();
  });

  test('appraises one GPU of two', async () => {
    say('collect-evidence.out', collected(await evidences(nonce, 2)));
    await (await rejects(/^wrong_device_count: the token speaks of 1 GPUs of 2/, false))();
  });

  test('crashes', async () => {
    const check = await rejects(/^nvattest_died: .*SIGSEGV/, true);
    say('attest.does', 'crash');
    await check();
  });

  test('hangs', async () => {
    const check = await rejects(/^nvattest_timeout: nvattest attest: no end within 500 ms/, true, {
      run_deadline_ms: 500,
    });
    say('attest.does', 'hang');
    await check();
  });

  test('prints without end', async () => {
    const check = await rejects(/^nvattest_garbage: .*more than/, true);
    say('attest.does', 'flood');
    await check();
  });

  test('is not there, or not a program', async () => {
    expect(await refusal(create({ program: at('none') }))).toMatchObject({
      retryable: false,
      message: expect.stringMatching(/no_nvattest: .*install the package nvattest/),
    });
    writeFileSync(at('plain'), 'x', { mode: 0o644 });
    expect((await refusal(create({ program: at('plain') }))).message).toContain('not_executable');
  });

  test('an aborted request kills the program and throws its reason', async () => {
    const attester = await create();
    say('collect-evidence.does', 'hang');
    const before = calls().length;
    const abort = new AbortController();
    const reason = new Error('nobody waits');
    const answer = attester.attest(nonce, abort.signal).catch((error: unknown) => error);
    await expect.poll(() => calls().length, { timeout: 5_000 }).toBe(before + 1);
    abort.abort(reason);
    expect(await answer).toBe(reason);
    const last = calls().at(-1);
    expect(isAlive(last?.pid ?? 0)).toBe(false);
    expect(existsSync(last?.cwd ?? '/')).toBe(false);
  });
});
