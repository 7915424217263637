// The launch file: `npm run launch` over compose files, and the text that readers take.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { readLaunch, writeLaunch } from '../../proto/attestation/launch.ts';
import { ConfigError, loadConfig, readLaunchFile } from '../../sidecar/common/config.ts';
import { temporaryFolder } from '../support/harness.ts';

const SCRIPT = fileURLToPath(new URL('../../scripts/launch.ts', import.meta.url));
const folder = temporaryFolder();
afterAll(() => folder.remove());

const image = (name: string) => `registry.example/${name}:1@sha256:${createHash('sha256').update(name).digest('hex')}`;
const SERVICES = {
  gateway: { image: image('gateway') },
  sidecar: { image: image('sidecar') },
  backend: { image: image('vllm'), command: ['Qwen/Qwen3-8B', '--port', '8000'] },
};

function launch(compose: object | string, ...args: string[]) {
  const path = join(folder.path, 'compose.yaml');
  const text = typeof compose === 'string' ? compose : stringify(compose);
  writeFileSync(path, text);
  const { status, stdout, stderr } = spawnSync(process.execPath, [SCRIPT, path, ...args], { encoding: 'utf8' });
  return { status, stdout, stderr, compose_sha256: createHash('sha256').update(text).digest('hex') };
}

describe('npm run launch', () => {
  test('writes what runs, and tells its digest', () => {
    const { status, stdout, stderr, compose_sha256 } = launch({ services: SERVICES });
    expect(status).toBe(0);
    expect(stderr).toBe(`sha256 ${createHash('sha256').update(stdout).digest('hex')}\n`);
    expect(readLaunch(stdout)).toEqual({
      version: 1,
      images: { backend: image('vllm'), gateway: image('gateway'), sidecar: image('sidecar') },
      compose_sha256,
      model: { name: 'Qwen/Qwen3-8B', verity_root: null },
      egress: 'none',
      login: false,
      operator: null,
    });
  });

  test('names the services that the guest starts, and not those of other profiles', () => {
    const others = { demo: { image: 'demo:1', profiles: ['demo'] } };
    const ofNode = { ...SERVICES.gateway, profiles: ['node'] };
    const { stdout } = launch({ version: '3.9', services: { ...SERVICES, gateway: ofNode, ...others } });
    expect(Object.keys(readLaunch(stdout).images)).toEqual(['backend', 'gateway', 'sidecar']);
    expect(readFileSync('deploy/cvm/countersign.service', 'utf8')).toMatch(/^ExecStart=.* --profile node up /m);
  });

  test('takes model, weights, egress and operator from the command line', () => {
    const [root, operator] = ['aa'.repeat(32), 'bb'.repeat(32)];
    const args = ['--model', 'M', '--verity-root', root, '--egress', 'models', '--operator', operator];
    const written = readLaunch(launch({ services: SERVICES }, ...args).stdout);
    expect(written).toMatchObject({ model: { name: 'M', verity_root: root }, egress: 'models', operator });
  });

  test.each([
    ['an image by a tag', { ...SERVICES, gateway: { image: 'gateway:1' } }, /service gateway has no image/],
    ['an image by a variable', { ...SERVICES, gateway: { image: '$IMAGE' } }, /service gateway has no image/],
    ['one that is built', { ...SERVICES, gateway: { build: '.' } }, /service gateway has no image/],
    ['one from another file', { ...SERVICES, gateway: { ...SERVICES.gateway, extends: 'x' } }, /gateway has extends/],
    ['one more that is not pinned', { ...SERVICES, extra: { image: 'busybox' } }, /service extra/],
    ['no sidecar', { gateway: SERVICES.gateway, backend: SERVICES.backend }, /no service sidecar/],
    ['a model that is not named', { ...SERVICES, backend: { image: image('vllm') } }, /--model/],
  ])('refuses %s', (_, services, message) => {
    const { status, stdout, stderr } = launch({ services });
    expect([status, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(message);
  });

  test.each([
    ['no compose file', 'services: 7', [], 1, /no services/],
    ['services of another file', stringify({ services: SERVICES, include: ['extra.yaml'] }), [], 1, /it has include/],
    ['no YAML', '\t: {', [], 1, /compose\.yaml/],
    ['a root that is none', stringify({ services: SERVICES }), ['--verity-root', 'zz'], 1, /model/],
    ['another egress', stringify({ services: SERVICES }), ['--egress', 'all'], 2, /--egress/],
    ['an option that there is not', stringify({ services: SERVICES }), ['--login'], 2, /--login/],
  ])('says what is wrong: %s', (_, compose, args, expected, message) => {
    const { status, stdout, stderr } = launch(compose, ...args);
    expect([status, stdout]).toEqual([expected, '']);
    expect(stderr).toMatch(message);
  });
});

describe('a launch file', () => {
  const good = writeLaunch({
    images: { sidecar: image('sidecar'), gateway: image('gateway'), backend: image('vllm') },
    compose_sha256: 'cd'.repeat(32),
    model: { name: 'demo', verity_root: null },
    egress: 'none',
    operator: null,
  });
  test('is read as it was written', () => expect(writeLaunch(readLaunch(good))).toBe(good));

  test.each([
    ['white space', good.replace(',', ', ')],
    ['a line feed behind it', `${good}\n`],
    ['another order', good.replace('"egress":"none","login":false', '"login":false,"egress":"none"')],
    [
      'services in another order',
      good.replace(/"backend":"[^"]*",/, '').replace('"sidecar"', `"backend":"${image('vllm')}","sidecar"`),
    ],
    ['a login', good.replace('"login":false', '"login":true')],
    ['another version', good.replace('"version":1', '"version":2')],
    ['one member more', good.replace('"version":1', '"version":1,"more":1')],
    ['a member twice', good.replace('"version":1', '"version":1,"version":1')],
    ['an image by a tag', good.replace(/@sha256:[0-9a-f]{64}/, ':1')],
    ['an image with a control character', good.replace('registry.example/gateway', 'registry.example/\\u001b[2J')],
    ['an image that is written backwards', good.replace('registry.example/gateway', 'registry.example/\u202e')],
    ['no gateway', good.replace('"gateway"', '"gate"')],
    ['null', 'null'],
    ['no JSON', good.slice(1)],
  ])('with %s is refused', (_, text) => {
    expect(text).not.toBe(good);
    expect(() => readLaunch(text)).toThrow(/the launch file/);
  });

  test('is read by the sidecar at its start, which needs a processor to vouch for it', () => {
    const path = join(folder.path, 'launch.json');
    writeFileSync(path, good);
    const config = loadConfig({ LAUNCH_FILE: path, CPU_EVIDENCE: 'required' });
    expect(readLaunchFile(config)).toBe(good);
    expect(readLaunchFile(loadConfig({}))).toBeNull();
    expect(() => loadConfig({ LAUNCH_FILE: path })).toThrow(/CPU_EVIDENCE/);
    writeFileSync(path, `${good} `);
    expect(() => readLaunchFile(config)).toThrow(ConfigError);
    expect(() => readLaunchFile({ launch_file: join(folder.path, 'none') })).toThrow(/LAUNCH_FILE .*ENOENT/);
  });
});
