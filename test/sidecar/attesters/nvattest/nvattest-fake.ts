// A scripted nvattest: a program that prints what the test lays out for it, and misbehaves where it is told to.
import { createHash } from 'node:crypto';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach } from 'vitest';
import { chainPem, loadOrMakeRoot, makeDevice, makeIssuers } from '../../../../demo/twin/pki.ts';
import type { Nonce } from '../../../../proto/attestation/raw.ts';
import { createNvattestAttester } from '../../../../sidecar/attesters/nvattest/nvattest.ts';
import { loadConfig, withServiceKey } from '../../../../sidecar/common/config.ts';
import { makeReport } from '../../../twin/report.ts';

export const folder = mkdtempSync(join(tmpdir(), 'nvattest-test-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
export const at = (name: string) => join(folder, name);
export const nonce = '5a'.repeat(32) as Nonce;

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
writeFileSync(at('service-key'), 'key\n');

export const evidences = async (over: Nonce, count = 1) => {
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
export const attested = (over: string, { result = true, count = 1 } = {}) => {
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
export const say = (name: string, value: unknown) =>
  writeFileSync(at(name), typeof value === 'string' ? value : JSON.stringify(value, null, 4));
export const failed = (result_code: number) => ({
  claims: {},
  detached_eat: {},
  result_code,
  result_message: `rc ${result_code}`,
});
export const collected = (list: unknown) => ({ evidences: list, result_code: 0, result_message: 'Ok' });
export const calls = () =>
  readFileSync(at('calls'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => {
      const [command = '', rest = '', cwd = '', pid = ''] = line.split('\t');
      return { command, rest, cwd, pid: Number(pid) };
    });
export const isAlive = (pid: number) =>
  existsSync(`/proc/${pid}/stat`) && !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));

export const create = (options: Partial<Parameters<typeof createNvattestAttester>[0]> = {}) =>
  createNvattestAttester({
    program,
    environment: withServiceKey(
      loadConfig({ PATH: process.env.PATH, SECRET: 'x' }).nvattest_environment,
      'NV_ATTESTATION_SERVICE_KEY',
      at('service-key'),
    ),
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
