// The launch file: `npm run launch` over compose files, and the texts that readers take.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, test } from 'vitest';
import { readCompose } from '../../proto/attestation/compose.ts';
import { readLaunch, writeLaunch } from '../../proto/attestation/launch.ts';
import { ConfigError, loadConfig, readLaunchFile } from '../../sidecar/common/config.ts';
import { temporaryFolder } from '../support/harness.ts';
import { COMPOSE, changed, LAUNCH, LAUNCH_1, launchOf, REFUSED, WEIGHTS } from '../support/launch-file.ts';

const SCRIPT = fileURLToPath(new URL('../../scripts/launch.ts', import.meta.url));
const folder = temporaryFolder();
afterAll(() => folder.remove());

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
const NAMED = `${WEIGHTS.name}=${WEIGHTS.verity_root}`;

function launch(compose: string, ...args: string[]) {
  const path = join(folder.path, 'compose.json');
  writeFileSync(path, compose);
  const { status, stdout, stderr } = spawnSync(process.execPath, [SCRIPT, path, ...args], { encoding: 'utf8' });
  return { status, stdout, stderr };
}

describe('npm run launch', () => {
  test('writes what runs, and tells its digest', async () => {
    const { status, stdout, stderr } = launch(COMPOSE, '--weights', NAMED);
    expect([status, stderr]).toEqual([0, `sha256 ${sha256(stdout)}\n`]);
    expect(stdout).toBe(LAUNCH);
    expect(JSON.parse(stdout)).toEqual({
      version: 2,
      compose_sha256: sha256(COMPOSE),
      weights: [WEIGHTS],
      login: false,
      operator: null,
      compose: COMPOSE,
    });
    const read = await readLaunch(stdout);
    expect(Object.keys(read.images)).toEqual(['backend', 'gateway', 'ready', 'sidecar', 'tsm']);
    expect(read).toMatchObject({ version: 2, weights: [WEIGHTS], model: WEIGHTS });
  });

  test('takes weights.json, and the operator', () => {
    const file = join(folder.path, 'weights.json');
    const [name = '', revision] = WEIGHTS.name.split('@');
    for (const named of [{ name, revision }, { name: WEIGHTS.name }]) {
      writeFileSync(file, JSON.stringify({ ...named, verity_root: WEIGHTS.verity_root, files: {} }));
      const { stdout } = launch(COMPOSE, '--weights', file, '--operator', 'bb'.repeat(32));
      expect(JSON.parse(stdout)).toMatchObject({ weights: [WEIGHTS], operator: 'bb'.repeat(32) });
    }
  });

  test.each([
    ['weights that it mounts and nobody names', COMPOSE, [], 1, /mounts weights that the launch file does not name/],
    [
      'weights that it does not mount',
      COMPOSE,
      ['--weights', NAMED, '--weights', `a/b@c=${'ef'.repeat(32)}`],
      1,
      /names weights that its compose file does not mount/,
    ],
    [
      'one root under two names',
      COMPOSE,
      ['--weights', NAMED, '--weights', `a/b@c=${WEIGHTS.verity_root}`],
      1,
      /weights/,
    ],
    ['a name with a line break', COMPOSE, ['--weights', `a\nb@c=${WEIGHTS.verity_root}`], 1, /member weights/],
    ['a name without a revision', COMPOSE, ['--weights', `a/b=${WEIGHTS.verity_root}`], 1, /ENOENT/],
    [
      'a backend elsewhere',
      REFUSED[0]?.[1] ?? '',
      ['--weights', NAMED],
      1,
      /services\.gateway\.environment\.BACKEND_URL/,
    ],
    ['5 MB', COMPOSE.padEnd(5_000_000), ['--weights', NAMED], 1, /more than 262144 bytes/],
    ['an operator that is no digest', COMPOSE, ['--weights', NAMED, '--operator', 'zz'], 1, /member operator/],
    ['an option that there is not', COMPOSE, ['--login'], 2, /--login/],
  ])('refuses %s', (_, compose, args, expected, message) => {
    const { status, stdout, stderr } = launch(compose, ...args);
    expect([status, stdout]).toEqual([expected, '']);
    expect(stderr).toMatch(message);
    expect(launch(COMPOSE, '--weights', NAMED).status).toBe(0);
  });
});

describe('a compose file', () => {
  test('of a measured launch passes', () => {
    expect(readCompose(COMPOSE)).toMatchObject({
      roots: [WEIGHTS.verity_root],
      model: WEIGHTS.verity_root,
      backend_url: 'http://backend:8000/v1',
    });
  });

  test.each(REFUSED)('with %s is refused', (_, compose, message) => {
    expect(compose).not.toBe(COMPOSE);
    expect(() => readCompose(compose)).toThrow(`the compose file ${message}`);
    expect(readCompose(COMPOSE).roots).toHaveLength(1);
  });

  test('may say less, and set what is harmless', () => {
    const more = changed(({ services }) => {
      const { gateway = {}, backend = {}, sidecar = {} } = services;
      delete services.ready;
      delete services.tsm;
      delete gateway.healthcheck;
      Object.assign(gateway.environment as object, { MAX_BODY_BYTES: '1048576', CANARY_EXPECT: '', SECRETS: 'sealed' });
      sidecar.devices = [{ source: '/dev/nvidia-nvswitchctl', target: '/dev/nvidia-nvswitchctl', permissions: 'rwm' }];
      backend.entrypoint = null;
      backend.command = ['--model', '/weights/part/model.gguf', '--max-model-len', '32768', '--enforce-eager'];
      backend.healthcheck = { disable: true };
    });
    expect(Object.keys(readCompose(more).images)).toEqual(['backend', 'gateway', 'sidecar']);
    expect(readCompose(more).model).toBe(WEIGHTS.verity_root);
  });

  test('may mount several weights, of which the command names one, or none', () => {
    const one = { type: 'bind', source: `/run/weights/${'ef'.repeat(32)}`, target: '/models/draft', read_only: true };
    const two = changed(({ services }) => (services.backend as { volumes: object[] }).volumes.push(one));
    expect(readCompose(two)).toMatchObject({
      roots: [WEIGHTS.verity_root, 'ef'.repeat(32)],
      model: WEIGHTS.verity_root,
    });
    const none = changed(({ services }) => Object.assign(services.backend ?? {}, { volumes: [], command: null }));
    expect(readCompose(none)).toMatchObject({ roots: [], model: null });
  });
});

describe('a launch file', () => {
  test.each([
    ['white space', LAUNCH.replace(',', ', ')],
    ['a line feed behind it', `${LAUNCH}\n`],
    ['another order', LAUNCH.replace('"login":false,"operator":null', '"operator":null,"login":false')],
    ['a login', LAUNCH.replace('"login":false', '"login":true')],
    ['version 3', LAUNCH.replace('"version":2', '"version":3')],
    ['one member more', LAUNCH.replace('"login"', '"more":1,"login"')],
    ['a member twice', LAUNCH.replace('"login"', '"login":false,"login"')],
    ['an escape', LAUNCH.replace('"login"', '"log\\u0069n"')],
    ['the digest of another compose file', launchOf(COMPOSE, { compose_sha256: 'cd'.repeat(32) })],
    ['a digest in capitals', launchOf(COMPOSE, { compose_sha256: sha256(COMPOSE).toUpperCase() })],
    ['no weights, where some are mounted', launchOf(COMPOSE, { weights: [] })],
    ['other weights', launchOf(COMPOSE, { weights: [{ ...WEIGHTS, verity_root: 'ef'.repeat(32) }] })],
    ['a root that is no 64 digits', launchOf(COMPOSE, { weights: [{ ...WEIGHTS, verity_root: 'cd' }] })],
    ['a name without a revision', launchOf(COMPOSE, { weights: [{ ...WEIGHTS, name: 'a/b' }] })],
    ['a compose file that is refused', launchOf(REFUSED[2]?.[1] ?? '')],
    ['a compose file that is no text', LAUNCH.replace(/"compose":.*/, '"compose":{}}')],
    ['5 MB', launchOf(COMPOSE.padEnd(5_000_000))],
    ['null', 'null'],
    ['no JSON', LAUNCH.slice(1)],
  ])('with %s is refused', async (_, text) => {
    expect(text).not.toBe(LAUNCH);
    await expect(readLaunch(text)).rejects.toThrow(/the (launch|compose) file/);
    expect((await readLaunch(LAUNCH)).version).toBe(2);
  });

  test('has its weights in the order of their names', async () => {
    const other = { name: 'A/b@c', verity_root: 'ef'.repeat(32) };
    const one = { type: 'bind', source: `/run/weights/${other.verity_root}`, target: '/models', read_only: true };
    const compose = changed(({ services }) => (services.backend as { volumes: object[] }).volumes.push(one));
    const text = launchOf(compose, { weights: [WEIGHTS, other] });
    expect(await readLaunch(text)).toMatchObject({ weights: [other, WEIGHTS], model: WEIGHTS });
    const [first, second] = [JSON.stringify(other), JSON.stringify(WEIGHTS)];
    await expect(readLaunch(text.replace(`${first},${second}`, `${second},${first}`))).rejects.toThrow(/order/);
  });

  test('of a launch without weights names none', async () => {
    const compose = changed(({ services }) => Object.assign(services.backend ?? {}, { volumes: [], command: ['m'] }));
    expect(await readLaunch(launchOf(compose, { weights: [] }))).toMatchObject({ weights: [], model: null });
  });

  test('is read by the sidecar at its start, which needs a processor to vouch for it', async () => {
    const path = join(folder.path, 'launch.json');
    writeFileSync(path, LAUNCH);
    const config = loadConfig({ LAUNCH_FILE: path, CPU_EVIDENCE: 'required' });
    expect(await readLaunchFile(config)).toBe(LAUNCH);
    expect(await readLaunchFile(loadConfig({}))).toBeNull();
    expect(() => loadConfig({ LAUNCH_FILE: path })).toThrow(/CPU_EVIDENCE/);
    writeFileSync(path, `${LAUNCH} `);
    await expect(readLaunchFile(config)).rejects.toThrow(ConfigError);
    await expect(readLaunchFile({ launch_file: join(folder.path, 'none') })).rejects.toThrow(/LAUNCH_FILE .*ENOENT/);
  });
});

describe('a launch file of version 1', () => {
  test('is read, and shows no weights', async () => {
    const read = await readLaunch(LAUNCH_1);
    expect(Object.keys(read.images)).toEqual(['backend', 'gateway', 'sidecar']);
    expect(read).toMatchObject({ version: 1, weights: null, model: null });
  });

  test.each([
    ['white space', LAUNCH_1.replace(',', ', ')],
    ['another order', LAUNCH_1.replace('"egress":"none","login":false', '"login":false,"egress":"none"')],
    [
      'services in another order',
      LAUNCH_1.replace(/"backend":"[^"]*",/, '').replace(
        '"sidecar"',
        `"backend":"b@sha256:${'ab'.repeat(32)}","sidecar"`,
      ),
    ],
    ['a login', LAUNCH_1.replace('"login":false', '"login":true')],
    ['version 2', LAUNCH_1.replace('"version":1', '"version":2')],
    ['one member more', LAUNCH_1.replace('"version":1', '"version":1,"more":1')],
    ['a member twice', LAUNCH_1.replace('"version":1', '"version":1,"version":1')],
    ['an image by a tag', LAUNCH_1.replace(/@sha256:[0-9a-f]{64}/, ':1')],
    ['an image with a control character', LAUNCH_1.replace('"gateway@', '"\\u001b[2J@')],
    ['an image that is written backwards', LAUNCH_1.replace('"gateway@', '"\u202e@')],
    ['no gateway', LAUNCH_1.replace('"gateway"', '"gate"')],
    ['another egress', LAUNCH_1.replace('"none"', '"all"')],
    ['no model', LAUNCH_1.replace('"demo"', '""')],
  ])('with %s is refused', async (_, text) => {
    expect(text).not.toBe(LAUNCH_1);
    await expect(readLaunch(text)).rejects.toThrow(/the launch file/);
    expect((await readLaunch(LAUNCH_1)).version).toBe(1);
  });

  test('is written no more', () => expect(writeLaunch(JSON.parse(LAUNCH))).toBe(LAUNCH));
});
