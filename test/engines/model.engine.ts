import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ask } from '../support/client.ts';
import { type Folder, temporaryFolder } from '../support/harness.ts';
import { type LlamaServer, MODEL, missing, startLlamaServer } from './llama-server.ts';
import { writeModel } from './model.ts';
import { VOCABULARY } from './vocabulary.ts';

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

describe('the seeded model', () => {
  it('is the same file twice, and on every machine', () => {
    const written = sha256(writeModel('1'));
    expect(sha256(writeModel('1'))).toBe(written);
    expect(written).toBe('ee8eb991e0bdfd7bdd142dd37cd07567e0d62dabe5dbbae3807fc69443fa3d9c');
  });

  it('is another file under another seed', () => {
    expect(sha256(writeModel('2'))).not.toBe(sha256(writeModel('1')));
  });
});

describe.skipIf(missing !== null)(
  `llama-server over the seeded model${missing === null ? '' : ` (no ${missing})`}`,
  () => {
    let folder: Folder;
    let engine: LlamaServer;

    beforeAll(async () => {
      folder = temporaryFolder();
      engine = await startLlamaServer(folder);
    });
    afterAll(async () => {
      await engine?.close();
      folder.remove();
    });

    it('loads it and says what it is', async () => {
      const models = (await ask(`${engine.url}/models`, { method: 'GET' })).json();
      expect(models.data).toHaveLength(1);
      expect(models.data[0]).toMatchObject({ id: MODEL, meta: { n_vocab: VOCABULARY.length, n_embd: 64 } });
    });
  },
);
