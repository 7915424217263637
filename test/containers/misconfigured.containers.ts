// What an operator reads when something in .env is wrong: one line that names it.
import { afterAll, describe, expect, inject, it } from 'vitest';
import { eventually } from '../support/harness.ts';
import { type Made, stageOf } from './stage.ts';

const made = inject('containers');
const FILES = ['-f', 'compose.yaml', '-f', 'test/containers/ready.yaml'];

describe.skipIf('missing' in made)('a setting that is wrong', () => {
  const stage = stageOf(made as Made);
  const up = (variables: Readonly<Record<string, string>>, service: string) =>
    stage.composeWith(variables, ...FILES, 'up', '--detach', '--no-build', '--no-deps', '--force-recreate', service);
  const logs = async (service: string) =>
    (await stage.composeWith({}, ...FILES, 'logs', '--no-color', '--no-log-prefix', service)).stdout;
  const remove = (variables: Readonly<Record<string, string>>, ...services: string[]) =>
    stage.composeWith(variables, ...FILES, 'rm', '--stop', '--force', ...services);

  afterAll(async () => {
    await remove({}, 'ready');
    for (const service of ['demo-sidecar', 'demo-gateway']) await up({}, service);
  });

  it.each([
    ['demo-gateway', { MAX_BODY_BYTES: 'lots' }, 'MAX_BODY_BYTES'],
    ['demo-gateway', { SEALED: 'maybe' }, 'SEALED'],
    ['demo-sidecar', { TWIN_OPTIONS: '--collection-ms fast' }, '--collection-ms'],
    ['demo-sidecar', { CPU_EVIDENCE: 'maybe' }, 'CPU_EVIDENCE'],
    ['ready', { READY_WAIT_S: 'soon' }, 'READY_WAIT_S'],
    ['ready', { READY_WITHOUT_ATTESTATION: 'yes' }, 'READY_WITHOUT_ATTESTATION'],
  ])('of %s (%j) is named in its log', async (service, variables, name) => {
    await up(variables, service);
    let said = '';
    await eventually(async () => {
      said = (await logs(service)).trim().split('\n').at(-1) ?? '';
      return said !== '';
    }, 30_000);
    console.log(said);
    expect(said).toContain(name);
  });

  it.each([
    ['sidecar', {}, /could not select device driver "?nvidia/],
    [
      'gateway',
      { API_KEYS_FILE: './run/no-such-file' },
      /(bind source path does not exist|no such file)[^\n]*no-such-file/,
    ],
  ])('keeps compose from starting %s (%j), and it says why', async (service, variables, words) => {
    const node = { ...variables, COMPOSE_PROFILES: 'node', PORT: '8083' };
    const { code, stderr } = await up(node, service);
    await remove(node, service);
    console.log(stderr.trim().split('\n').at(-1));
    expect(code).not.toBe(0);
    expect(stderr).toMatch(words);
  });
});
