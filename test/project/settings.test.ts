// How many settings there are, and that one that is gone stops the start with a line that says what replaces it.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { schema as gateway, loadConfig } from '../../gateway/base/config.ts';
import { derivedFrom, LIMITS, REMOVED as OF_GATEWAY } from '../../gateway/base/limits.ts';
import { REMOVED as OF_SIDECAR, schema as sidecar } from '../../sidecar/common/config.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { eventually } from '../support/harness.ts';
import { startProcess } from '../support/process.ts';

const MOST = 50;
const SCHEMAS = [...Object.keys(gateway.shape), ...Object.keys(sidecar.shape)];
const page = readFileSync(new URL('../../docs/configuration.md', import.meta.url), 'utf8');
const BACKEND_URL = 'http://127.0.0.1:1/v1';
const run = mkdtempSync(join(tmpdir(), 'countersign-'));
afterAll(() => rmSync(run, { recursive: true, force: true }));

describe('settings', () => {
  it(`are ${MOST} at most, those of the demo included`, () => {
    const listed = [...page.matchAll(/^\| `([A-Z_]+)` \|/gm)].map(([, name]) => name as string);
    expect(new Set(listed)).toEqual(new Set(SCHEMAS));
    // The demo engine's are the gateway's names, and the launcher has none of its own.
    expect(new Set(SCHEMAS).size).toBeLessThanOrEqual(MOST);
    expect(new Set(SCHEMAS).size).toBeGreaterThan(40);
  });

  it('that are gone are none that there are, and stand on no page', () => {
    for (const name of [...OF_GATEWAY.keys(), ...OF_SIDECAR.keys()]) {
      expect(SCHEMAS).not.toContain(name);
      expect(page).not.toContain(`\`${name}\``);
    }
  });

  it.each([...OF_GATEWAY])('of the gateway: %s is gone, and the line says what replaces it', (name, instead) => {
    expect(() => loadConfig({ BACKEND_URL, [name]: '1' })).toThrow(`${name} is no longer a setting: ${instead}`);
    expect(`${name} ${instead}`).toMatch(/^[^\n]{20,200}$/);
    expect(loadConfig({ BACKEND_URL, [name]: '' })).toMatchObject({ ...LIMITS, ...derivedFrom(4096) });
  });

  it('say the value that a constant has now', () => {
    const lineOf = (name: string) => OF_GATEWAY.get(name) ?? OF_SIDECAR.get(name);
    expect(lineOf('MAX_STREAM_EVENTS')).toBe('a stream has at most 1,000,000 events');
    expect(lineOf('MAX_STREAM_BYTES')).toBe('a stream has at most 256 MiB');
    expect(lineOf('ATTEST_DEADLINE_MS')).toBe('an attestation takes at most 50 s');
  });
});

describe('a process', () => {
  it.each([
    ['gateway/main.ts', 'gateway', 'BATCH_PER_KEY', { BACKEND_URL, BATCH: 'per-key' }, []],
    ['sidecar/main.ts', 'sidecar', 'NVATTEST', { ATTESTER: 'nvattest' }, []],
    ['demo/twin/main.ts', 'sidecar', 'SIMULATED_GPUS', {}, ['--gpus', '2', '--root-dir', join(run, 'root')]],
  ] as const)('%s of the %s does not start with %s, and starts without', async (script, who, name, env, args) => {
    const settings = { PORT: '0', SIDECAR_SOCKET: join(run, `${who}.sock`), ...env };
    const refused = startProcess(script, args, { ...settings, [name]: '1' });
    expect((await refused.exited).code).toBe(1);
    const line = (OF_GATEWAY.get(name) ?? OF_SIDECAR.get(name)) as string;
    expect(refused.output()).toBe(`${who}: ${name} is no longer a setting: ${line}\n`);
    // A DRAIN_MS that is the gateway's stops no sidecar.
    const started = startProcess(script, args, { ...settings, [name]: '', DRAIN_MS: '1000' });
    try {
      await eventually(() => started.output().includes('"msg":"listening"'));
    } finally {
      await started.kill('SIGKILL');
    }
  });

  it('of a test has other constants, which the gateway itself does not read', async () => {
    const SIDECAR_SOCKET = join(run, 'none.sock');
    const wait_of = async (TEST_LIMITS: string | null) => {
      const gateway = await startGatewayProcess({
        BACKEND_URL,
        SIDECAR_SOCKET,
        ...(TEST_LIMITS === null ? { limits: { sidecar_wait_ms: 100 } } : { TEST_LIMITS }),
      });
      const began = performance.now();
      const body = '{"model":"m","messages":[{"role":"user","content":"Hi"}],"tee":true}';
      const signal = AbortSignal.timeout(2_000);
      const headers = { 'content-type': 'application/json' };
      const asked = fetch(`${gateway.url}/v1/chat/completions`, { method: 'POST', body, headers, signal });
      const status = await asked.then((response) => response.status).catch((error: Error) => error.name);
      await gateway.stop();
      return [status, performance.now() - began < 1_900];
    };
    expect(await wait_of(null)).toEqual([503, true]);
    expect(await wait_of('{"sidecar_wait_ms":100}')).toEqual(['TimeoutError', false]);
  });
});
