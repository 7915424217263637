// Where a key may go: routes that manage the backend.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Problem } from '../../../gateway/base/problem.ts';
import { ANYONE, type Caller, checkRoute, NO_LIMITS } from '../../../gateway/keys/keys.ts';
import { ask } from '../../support/client.ts';
import { expectError } from '../expect-error.ts';
import { bearer, type Stage, startStage } from '../limits/limits-stage.ts';

const ORDINARY: Caller = { owner: 'a', name: 'a', limits: NO_LIMITS };
const ADMIN: Caller = { ...ORDINARY, limits: { ...NO_LIMITS, admin: true } };

const refusal = (does: () => unknown): Problem | null => {
  try {
    does();
  } catch (error) {
    if (error instanceof Problem) return error;
    throw error;
  }
  return null;
};

/** What each server's clients ask for. */
const OPEN = [
  'POST /responses',
  'GET /responses/resp_1',
  'POST /responses/resp_1/cancel',
  'DELETE /responses/resp_1',
  'POST /messages',
  'POST /messages/count_tokens',
  'POST /embeddings',
  'POST /rerank',
  'POST /score',
  'POST /classify',
  'POST /pooling',
  'POST /moderations',
  'POST /tokenize',
  'POST /detokenize',
  'POST /audio/transcriptions',
  'POST /audio/speech',
  'POST /images/generations',
  'POST /images/edits',
  'POST /videos',
  'POST /files',
  'GET /files',
  'GET /files/f1/content',
  'DELETE /files/f1',
  'POST /uploads/u1/parts',
  'POST /batches',
  'POST /batches/b1/cancel',
  'GET /models',
  'GET /models/meta-llama/Llama-3.1-8B',
  'GET /models/org/load',
  'GET /models/load_lora_adapter',
  'POST /chat/completions/batch',
  'GET /chat/completions/c1',
  'DELETE /chat/completions/c1',
  'POST /conversations',
  'DELETE /conversations/c1/items/i1',
  'POST /threads/t1/runs',
  'DELETE /vector_stores/v1/files/f1',
  'POST /generate_stream',
  'POST /infill',
  'POST /fim/completions',
  'GET /realtime',
  'GET /health',
];
const CLOSED = [
  'POST /load_lora_adapter',
  'POST /unload_lora_adapter',
  'POST /Load_LoRA_Adapter',
  'POST /load_lora_adapter/',
  'POST //load_lora_adapter?x=/files',
  'POST /lo%61d_lora_adapter',
  'POST /load_lora_adapter;a=b',
  'POST /load_lora_adapter%20',
  'POST /v1/load_lora_adapter',
  'POST /api/v1/models/load',
  'GET /metrics',
  'POST /sleep',
  'POST /wake_up',
  'GET /is_sleeping',
  'POST /reset_prefix_cache',
  'POST /collective_rpc',
  'GET /server_info',
  'POST /scale_elastic_ep',
  'GET /flush_cache',
  'POST /update_weights_from_disk',
  'GET /get_weights_by_name',
  'POST /release_memory_occupation',
  'POST /abort_request',
  'GET /get_server_info',
  'GET /start_profile',
  'GET /slots',
  'POST /slots/0',
  'GET /props',
  'POST /lora-adapters',
  'POST /models/load',
  'POST /models/unload',
  'POST /models',
  'GET /models/sse',
  'DELETE /models/m',
  'DELETE /models',
  'POST /internal/model/load',
  'POST /model/load',
  'POST /model/embedding/load',
  'POST /sampling/override/switch',
  'POST /terminate',
  'POST /nodes/add',
  'POST /pull',
  'DELETE /delete',
  'POST /fine_tuning/jobs',
  'GET /organization/users',
  'POST /key/generate',
  'DELETE /files',
  'DELETE /batches/b1',
  'DELETE /anything/a1',
  'DELETE /',
];
const route = (caller: Caller, line: string) => {
  const [method = '', path = ''] = line.split(' ');
  return refusal(() => checkRoute(caller, method, path));
};

describe('a route of the backend', () => {
  it.each(OPEN)('%s is for every key', (line) => {
    expect(route(ORDINARY, line)).toBeNull();
  });

  it.each(CLOSED)('%s is for admin keys', (line) => {
    expect(route(ORDINARY, line)).toMatchObject({ code: 'permission_denied' });
    expect(route(ADMIN, line)).toBeNull();
    // Without keys anybody who is on the machine is its owner.
    expect(route(ANYONE, line)).toBeNull();
  });
});

describe('a management route', () => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await startStage();
    stage.service.backend.script = (seen, response) =>
      void response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ url: seen.url }));
  });
  afterAll(() => stage.close());

  it('is refused by its head, asks the backend nothing, and says what an admin key is; an admin key has it', async () => {
    const url = await stage.gateway({}, ['ordinary', 'root admin']);
    const body = '{"lora_name":"a","lora_path":"/a"}';
    stage.service.backend.seen.length = 0;
    for (const path of ['/v1/load_lora_adapter', '/v1/v1/load_lora_adapter', '/v1//LOAD_lora_adapter']) {
      const got = await ask(url + path, { body, headers: bearer('ordinary') });
      expectError(got, 403, 'permission_denied');
      expect(got.json().error.message).toContain('countersign keys add NAME --admin');
    }
    expectError(
      await ask(`${url}/v1/models/m`, { method: 'DELETE', headers: bearer('ordinary') }),
      403,
      'permission_denied',
    );
    expect(stage.service.backend.seen).toHaveLength(0);
    const allowed = await ask(`${url}/v1/load_lora_adapter`, { body, headers: bearer('root') });
    expect([allowed.status, allowed.json().url]).toEqual([200, '/v1/load_lora_adapter']);
    expect((await ask(`${url}/v1/files/f1`, { method: 'DELETE', headers: bearer('ordinary') })).status).toBe(200);
  });

  it('is the owner’s of a machine without API keys', async () => {
    const { url } = stage.service.gateway;
    expect((await ask(`${url}/v1/load_lora_adapter`, { body: '{}' })).status).toBe(200);
  });
});
