// One key floods the GPU with answers to attest: how long another key waits for its one.
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { chatAnswer } from '../support/backend.ts';
import { CHAT, chat } from '../support/client.ts';
import { type Folder, temporaryFolder } from '../support/harness.ts';
import { Stage } from './stage.ts';
import { sleep } from './words.ts';

const FLOOD = 100;
const PROBES = 4;
/** Of those that the other key waits for: one is being collected, one is ready behind it. */
const COLLECTIONS = 2;
/** What is no collection: connections, the backend, signing and checking, on a machine that others use too. */
const REST_MS = 600;

let stage: Stage | null = null;
let folder: Folder;
afterEach(async () => {
  await stage?.close();
  stage = null;
  folder.remove();
});

const bearer = (name: string) => ({ authorization: `Bearer key-${name}` });

async function start(collection_ms: number): Promise<Stage> {
  folder = temporaryFolder();
  const keys = join(folder.path, 'keys');
  const lines = ['many', 'one'].map((name) => {
    const digest = createHash('sha256').update(`key-${name}`).digest('hex');
    return `${name}:sha256:${digest}`;
  });
  writeFileSync(keys, lines.join('\n'));
  const started = await Stage.start({
    gateway: { API_KEYS_FILE: keys, ATTEST_TIMEOUT_MS: '600000' },
    sidecar: { args: ['--collection-ms', String(collection_ms)] },
  });
  started.backend.script = chatAnswer('Hello.');
  return started;
}

describe('a gateway', () => {
  it.for([300, 1_000])(
    'one key with a hundred answers to attest makes another wait for two collections of %i ms',
    async (collection_ms) => {
      stage = await start(collection_ms);
      const { url } = stage;
      let number = 0;
      let ended = 0;
      let goesOn = true;
      const ask = async (name: string) => {
        const got = await chat(url, { ...CHAT, tee: true, user: `${name} ${number++}` }, bearer(name));
        if (goesOn) expect(got.json().attestation).toBeDefined();
      };
      const flood = Array.from({ length: FLOOD }, async () => {
        while (goesOn) {
          await ask('many');
          ended++;
        }
      });
      // Cut when the stage closes.
      for (const one of flood) one.catch(() => {});
      await sleep(4 * collection_ms + 1_000);
      const waits: { wait_ms: number; others: number }[] = [];
      for (let i = 0; i < PROBES; i++) {
        const [before, began_ms] = [ended, performance.now()];
        await ask('one');
        const wait_ms = Math.round(performance.now() - began_ms - collection_ms);
        waits.push({ wait_ms, others: ended - before });
        await sleep(Math.random() * collection_ms);
      }
      goesOn = false;
      console.log(`${collection_ms} ms: ${JSON.stringify(waits)}`);
      for (const { wait_ms, others } of waits) {
        expect(wait_ms).toBeLessThan(COLLECTIONS * collection_ms + REST_MS);
        // One more may be on its way to its client already.
        expect(others).toBeLessThanOrEqual(COLLECTIONS + 1);
      }
    },
  );
});
