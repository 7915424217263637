// Every API test of openai-python that passes against a backend passes through the gateway before it, also where the client asks for
// a proof of every answer.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Backend } from '../support/backend.ts';
import { ask } from '../support/client.ts';
import {
  type RunningGateway,
  type RunningSidecar,
  startGateway,
  startSidecar,
  temporaryFolder,
} from '../support/harness.ts';
import { startApi } from './backend.ts';
import { apiTests, OPENAI, type Outcome } from './openai-python.ts';

const tests = apiTests();
const skipped = tests === null ? ' SKIPPED: PyPI cannot be reached' : '';
if (tests === null) console.warn(`\n!!! openai-python ${OPENAI}${skipped} !!!\n`);

/** Below it, the backend of these tests has stopped to be what the client expects. */
const LEAST_DIRECT = 8_570;

describe.skipIf(tests === null)(`the API tests of openai-python ${OPENAI}${skipped}`, () => {
  const folder = temporaryFolder();
  let backend: Backend;
  let sidecar: RunningSidecar;
  let gateway: RunningGateway;
  let direct: Map<string, Outcome>;

  beforeAll(async () => {
    if (tests === null) return;
    backend = await startApi(tests.routes);
    backend.models = null;
    sidecar = await startSidecar(folder);
    gateway = await startGateway({ BACKEND_URL: backend.url, SIDECAR_SOCKET: sidecar.socket });
    direct = await tests.run('direct', backend.url);
    print('directly', direct);
  });
  afterAll(async () => {
    await gateway?.close();
    await sidecar?.close();
    await backend?.close();
    folder.remove();
  });

  it('pass directly, nearly all', () => {
    expect(passed(direct).length).toBeGreaterThan(LEAST_DIRECT);
  });

  it.each([
    ['plainly', {}],
    ['with x-tee: 1 on every request', { 'x-tee': '1' }],
  ])('pass through the gateway as they do directly, %s', async (name, headers) => {
    backend.seen.length = 0;
    const before = await attested(gateway);
    const through = await tests?.run(name.split(' ', 1)[0] ?? '', `${gateway.url}/v1`, headers);
    const proofs = (await attested(gateway)) - before;
    print(`through the gateway, ${name}: ${backend.seen.length} requests, ${proofs} proofs`, through ?? new Map());
    const lost = passed(direct).filter((test) => through?.get(test)?.[0] !== 'passed');
    expect(lost.map((test) => [test, through?.get(test)])).toEqual([]);
    expect(proofs > 1_000).toBe('x-tee' in headers);
  });
});

const passed = (outcomes: Map<string, Outcome>): string[] =>
  [...outcomes].filter(([, [outcome]]) => outcome === 'passed').map(([test]) => test);

function print(how: string, outcomes: Map<string, Outcome>): void {
  console.log(`openai-python ${OPENAI}: ${passed(outcomes).length} of ${outcomes.size} tests pass ${how}`);
}

/** How many answers were proven. */
async function attested(gateway: RunningGateway): Promise<number> {
  const { text } = await ask(`${gateway.url}/metrics`, { method: 'GET' });
  const samples = [...text.matchAll(/^countersign_attestation_duration_seconds_count\S* (\d+)$/gm)];
  return samples.reduce((sum, [, count]) => sum + Number(count), 0);
}
