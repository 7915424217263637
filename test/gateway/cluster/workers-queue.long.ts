// One queue for the attestations of all workers: its turns, its bound, and what becomes of a worker's part when that ends.
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { chatAnswer } from '../../support/backend.ts';
import { CHAT, chat } from '../../support/client.ts';
import { type GatewayProcess, startGatewayProcess } from '../../support/gateway-process.ts';
import { eventually, type Service, startService } from '../../support/harness.ts';

const COLLECTION_MS = 150;
const bearer = (name: string) => ({ authorization: `Bearer key-${name}` });
let service: Service;
let gateway: GatewayProcess;

beforeEach(async () => {
  service = await startService({}, { collectionMs: COLLECTION_MS });
  service.backend.script = chatAnswer('Hello.');
});
afterEach(async () => {
  await gateway.stop('SIGTERM');
  await service.close();
});

/** Two workers, each of which has found the sidecar. */
async function start(env: Record<string, string> = {}): Promise<void> {
  const file = join(service.folder.path, 'keys');
  const line = (name: string) => `${name}:sha256:${createHash('sha256').update(`key-${name}`).digest('hex')}`;
  writeFileSync(file, ['many', 'one'].map(line).join('\n'));
  gateway = await startGatewayProcess({
    BACKEND_URL: service.backend.url,
    SIDECAR_SOCKET: service.sidecar.socket,
    API_KEYS_FILE: file,
    WORKERS: '2',
    ...env,
  });
  await whole(2);
}
const logged = (msg: string) => gateway.lines().filter((line) => line.msg === msg);
/** So many workers have begun, those that have ended included. */
const whole = (times: number) =>
  eventually(() => logged('listening').length === times && logged('sidecar').length === times, 60_000);
const workers = () => logged('listening').map(({ pid }) => pid as number);
/** Once all workers have ended, their successors have another free port. */
const url = () => {
  const last = logged('listening').at(-1) as { address: { port: number } };
  const { port } = last.address;
  return `http://127.0.0.1:${port}`;
};
const flood = (count: number, ended: () => void) =>
  Array.from({ length: count }, (_, i) =>
    chat(url(), { ...CHAT, tee: true, user: `${i}` }, bearer('many')).then(ended, () => {}),
  );
const attested = async (name: string) => {
  const got = await chat(url(), { ...CHAT, tee: true, user: name }, bearer(name));
  expect(got.json().attestation, got.text).toBeDefined();
};

describe('the queue of two workers', () => {
  it('has a turn for each key, whichever worker it meets', async () => {
    await start();
    let ended = 0;
    const many = flood(24, () => ended++);
    await eventually(() => ended > 2);
    for (let i = 0; i < 3; i++) {
      const before = ended;
      await attested('one');
      // One that was being collected, one that was ready, and those being checked or on their way: on a busy machine a few more.
      expect(ended - before).toBeLessThanOrEqual(8);
    }
    expect(ended).toBeLessThan(24);
    await Promise.all(many);
  }, 90_000);

  it('deals out again what a worker held or waited for that is killed', async () => {
    await start({ MAX_ATTESTATIONS_IN_FLIGHT: '1', ATTEST_TIMEOUT_MS: '5000' });
    const many = flood(24, () => {});
    await eventually(() => service.backend.seen.length === 24);
    // One of them holds the only permit.
    for (const pid of workers()) process.kill(pid, 'SIGKILL');
    await Promise.all(many);
    await whole(4);
    await attested('one');
    await attested('many');
  }, 120_000);

  it('lets no more than so many wait, and refuses the latest of the one who has most', async () => {
    await start({ MAX_ATTESTATIONS_WAITING: '4', MAX_TEE_PER_KEY: '0' });
    const got = Array.from({ length: 12 }, (_, i) => chat(url(), { ...CHAT, tee: true, user: `${i}` }, bearer('many')));
    await eventually(() => service.backend.seen.length === 12);
    await attested('one');
    const all = await Promise.all(got);
    const refused = all.filter(({ status }) => status === 503);
    expect(refused.length).toBeGreaterThan(3);
    for (const one of refused) {
      expect(one.json().error.code).toBe('overloaded');
      expect(one.headers['retry-after']).toBe('2');
    }
    expect(all.filter(({ status }) => status === 200).length).toBe(12 - refused.length);
  }, 90_000);
});
