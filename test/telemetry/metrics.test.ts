import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { PICKER_METRICS } from '../../gateway/telemetry/metrics-server.ts';
import { expectError } from '../gateway/expect-error.ts';
import { answer, chatAnswer, chatStream, DONE, delta, event, finish, role, stream } from '../support/backend.ts';
import { ask, CHAT, chat } from '../support/client.ts';
import { eventually, type Service, startGateway, startService, startSidecar } from '../support/harness.ts';
import { startProcess } from '../support/process.ts';
import { parseSamples, type Samples } from './samples.ts';

let service: Service;
beforeAll(async () => {
  service = await startService({}, { collectionMs: 20 });
});
beforeEach(() => {
  service.backend.script = chatAnswer('Hello.');
});
afterAll(() => service.close());

const get = (path: string, url = service.gateway.url) => ask(url + path, { method: 'GET' });
const samples = async (url = service.gateway.url): Promise<Samples> => parseSamples((await get('/metrics', url)).text);

/** What `name` grew by while `act` ran. A request is counted when its answer is out, so this waits. */
async function growth(act: () => Promise<unknown>, name: string, labels: Record<string, string>, by: number) {
  const before = (await samples()).value(name, labels) ?? 0;
  await act();
  await eventually(async () => ((await samples()).value(name, labels) ?? 0) - before >= by);
  expect(((await samples()).value(name, labels) ?? 0) - before).toBe(by);
}

const ROUTE = '/v1/chat/completions';

describe('requests', () => {
  it('are counted and timed by method, route, status and tee', async () => {
    const plain = { http_request_method: 'POST', http_route: ROUTE, http_response_status_code: '200', tee: 'none' };
    const name = 'http_server_request_duration_seconds_count';
    await growth(() => chat(service.gateway.url, CHAT), name, plain, 1);
    await growth(() => chat(service.gateway.url, { ...CHAT, tee: true }), name, { ...plain, tee: 'attested' }, 1);
    await growth(() => chat(service.gateway.url, '{'), name, { ...plain, http_response_status_code: '400' }, 1);
    await growth(() => get('/nowhere/at/all'), name, { http_route: '/*', http_response_status_code: '404' }, 1);
    await growth(() => get('/v1/models'), name, { http_route: '/v1/*', http_request_method: 'GET' }, 1);
  });

  it('are seen while they run', async () => {
    let release: (() => void) | null = null;
    service.backend.script = (_request, response) => {
      release = () => void response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    };
    const running = chat(service.gateway.url, CHAT);
    await eventually(() => release !== null);
    // One more is the request for the metrics.
    await eventually(async () => (await samples()).value('http_server_active_requests') === 2);
    (release as (() => void) | null)?.();
    await running;
    await eventually(async () => (await samples()).value('http_server_active_requests') === 1);
  });

  it('have a time to the first token and between tokens when they are streamed', async () => {
    const labels = { gen_ai_operation_name: 'chat', gen_ai_request_model: 'scripted' };
    const before = await samples();
    service.backend.script = chatStream(['a', 'b', 'c', 'd'], 30);
    await chat(service.gateway.url, { ...CHAT, stream: true });
    const count = 'gen_ai_server_time_per_output_token_seconds_count';
    await eventually(async () => ((await samples()).value(count, labels) ?? 0) > (before.value(count, labels) ?? 0));
    const after = await samples();
    const grown = (name: string, more = {}) =>
      (after.value(name, { ...labels, ...more }) ?? 0) - (before.value(name, { ...labels, ...more }) ?? 0);
    expect(grown('gen_ai_server_time_to_first_token_seconds_count')).toBe(1);
    expect(grown('gen_ai_server_time_per_output_token_seconds_sum')).toBeGreaterThan(0.02);
    expect(grown('gen_ai_server_time_per_output_token_seconds_sum')).toBeLessThan(0.5);
    expect(grown('gen_ai_server_request_duration_seconds_sum')).toBeGreaterThan(0.15);
    expect(after.value('countersign_stream_longest_gap_seconds_count')).toBeGreaterThan(0);
  });

  it("have their tokens by the backend's count, where tokens are counted", async () => {
    const env = { BACKEND_URL: service.backend.url, SIDECAR_SOCKET: service.sidecar.socket };
    const counting = await startGateway({ ...env, AUDIT_LOG: join(service.folder.path, 'audit.jsonl') });
    await chat(counting.url, CHAT);
    service.backend.script = stream([role(), delta('a'), finish(), DONE]);
    await chat(counting.url, { ...CHAT, stream: true });
    const name = 'gen_ai_client_token_usage';
    const of = (type: string) => ({ gen_ai_token_type: type, gen_ai_operation_name: 'chat' });
    await eventually(async () => (await samples(counting.url)).value(`${name}_count`, of('input')) === 1);
    const counted = await samples(counting.url);
    expect([counted.value(`${name}_sum`, of('input')), counted.value(`${name}_sum`, of('output'))]).toEqual([3, 2]);
    // The stream has no count.
    expect(counted.value('gen_ai_server_request_duration_seconds_count')).toBe(2);
    await counting.close();
    expect((await samples()).value(`${name}_count`)).toBeNull();
  });

  it('have a label for a model that the backend lists, and none for any other text, though the backend serves it', async () => {
    service.backend.script = chatAnswer('Hello.');
    for (let i = 0; i < 20; i++) await chat(service.gateway.url, { ...CHAT, model: `junk-${i}` });
    await chat(service.gateway.url, CHAT);
    await eventually(
      async () =>
        ((await samples()).value('gen_ai_server_request_duration_seconds_count', { gen_ai_request_model: 'other' }) ??
          0) >= 20,
    );
    const names = (await samples()).values('gen_ai_server_request_duration_seconds_count', 'gen_ai_request_model');
    expect([...names].sort()).toEqual(['other', 'scripted']);
  });
});

describe('attestations', () => {
  it('are timed from end to end, and phase by phase as the sidecar tells it', async () => {
    const before = await samples();
    await Promise.all([1, 2, 3].map((seed) => chat(service.gateway.url, { ...CHAT, seed, tee: true })));
    const name = 'countersign_attestation_duration_seconds_count';
    await eventually(async () => ((await samples()).value(name) ?? 0) - (before.value(name) ?? 0) === 3);
    const after = await samples();
    const spent = (phase: string) =>
      (after.value('countersign_attestation_phase_duration_seconds_sum', { phase }) ?? 0) -
      (before.value('countersign_attestation_phase_duration_seconds_sum', { phase }) ?? 0);
    expect(spent('collection')).toBeGreaterThan(0.055);
    // Two at the sidecar at once: the second and the third each wait there for one collection.
    expect(spent('queue')).toBeGreaterThan(0.03);
    expect(spent('appraisal')).toBeGreaterThan(0);
    expect(spent('check')).toBeGreaterThan(0);
    expect(after.value('countersign_store_entries')).toBeGreaterThan(2);
    expect(after.value('countersign_store_bytes')).toBeGreaterThan(10_000);
    expect(after.value('countersign_signing_queue_depth')).toBe(0);
  });

  it("go with the sidecar's state, its restarts and what had to be asked for again", async () => {
    await eventually(async () => (await samples()).value('countersign_sidecar_state', { state: 'connected' }) === 1);
    expect((await samples()).value('countersign_sidecar_trouble')).toBe(0);
    // No processor signs here.
    expect((await samples()).value('countersign_session_end_timestamp_seconds')).toBeNull();
    const connections = (await samples()).value('countersign_sidecar_connections_total') ?? 0;
    await service.sidecar.close();
    await eventually(async () => (await samples()).value('countersign_sidecar_state', { state: 'connecting' }) === 1);
    expect((await samples()).value('countersign_sidecar_state', { state: 'connected' })).toBe(0);
    const waits = chat(service.gateway.url, { ...CHAT, tee: true });
    const again = await startSidecar(service.folder, { collectionMs: 400, drainMs: 0 });
    // It waits for the sidecar first, then for its signature.
    await eventually(async () => {
      const now = await samples();
      const connected = now.value('countersign_sidecar_state', { state: 'connected' }) === 1;
      return connected && now.value('countersign_signing_queue_depth') === 1;
    });
    await again.close();
    const third = await startSidecar(service.folder);
    expect((await waits).status).toBe(200);
    expect((await samples()).value('countersign_sidecar_connections_total')).toBe(connections + 2);
    expect((await samples()).value('countersign_attestation_retries_total')).toBeGreaterThanOrEqual(1);
    await third.close();
    (service as { sidecar: unknown }).sidecar = await startSidecar(service.folder, { collectionMs: 20 });
    await eventually(async () => (await samples()).value('countersign_sidecar_state', { state: 'connected' }) === 1);
  });
});

describe('what goes wrong', () => {
  it('is counted by code: our refusals, and how the backend failed', async () => {
    const refused = (code: string) => ['countersign_refusals_total', { code }, 1] as const;
    await growth(() => chat(service.gateway.url, '{'), ...refused('invalid_json'));
    await growth(() => chat(service.gateway.url, { ...CHAT, tee: 'yes' }), ...refused('invalid_request'));
    const backend = (code: string) => ['countersign_backend_errors_total', { code }, 1] as const;
    service.backend.script = answer('{"error":{"message":"slow down"}}', 429);
    await growth(() => chat(service.gateway.url, CHAT), ...backend('http_429'));
    service.backend.script = answer('teapot', 418);
    await growth(() => chat(service.gateway.url, CHAT), ...backend('http_4xx'));
    service.backend.script = stream([role(), delta('a'), null]);
    await growth(() => chat(service.gateway.url, { ...CHAT, stream: true }), ...backend('backend_bad_response'));
    service.backend.script = stream([role(), event({ error: { message: 'CUDA' } })]);
    await growth(
      () => chat(service.gateway.url, { ...CHAT, stream: true, tee: true }),
      ...backend('backend_bad_response'),
    );
  });

  it('is counted at the verify endpoint by the check that failed', async () => {
    const { attestation } = (await chat(service.gateway.url, { ...CHAT, tee: true })).json();
    const verify = (body: object) => ask(`${service.gateway.url}/~sev_gpu@1.0/verify`, { body: JSON.stringify(body) });
    const counted = (code: string) => ['countersign_verifications_total', { code }, 1] as const;
    await growth(() => verify(attestation), ...counted('valid'));
    await growth(() => verify({ ...attestation, nonce: '0'.repeat(64) }), ...counted('raw_hash_mismatch'));
    await growth(() => verify({ nothing: 1 }), ...counted('not_an_attestation'));
  });
});

describe('the endpoint', () => {
  it('says how the process is, and only GET is allowed', async () => {
    const got = await get('/metrics');
    expect(got.headers['content-type']).toMatch(/^text\/plain; version=0\.0\.4/);
    const { types } = parseSamples(got.text);
    for (const name of ['nodejs_eventloop_lag_seconds', 'process_resident_memory_bytes', 'process_open_fds'])
      expect(types.has(name), name).toBe(true);
    expectError(await ask(`${service.gateway.url}/metrics`, { method: 'POST', body: '' }), 405, 'method_not_allowed');
  });

  it('has a small part for pickers, and is gzipped for whom accepts it', async () => {
    const { url } = service.gateway;
    const picked = await get('/metrics/picker');
    expect(picked.headers['content-type']).toMatch(/^text\/plain; version=0\.0\.4/);
    const { types, value } = parseSamples(picked.text);
    expect([...types.keys()]).toEqual(PICKER_METRICS);
    for (const name of PICKER_METRICS) expect(value(name)).toBe((await samples()).value(name));
    expect(picked.body.length).toBeLessThan(1024);
    expectError(await ask(`${url}/metrics/picker`, { method: 'POST', body: '' }), 405, 'method_not_allowed');
    for (const path of ['/metrics', '/metrics/picker']) {
      const zipped = await ask(url + path, { method: 'GET', headers: { 'accept-encoding': 'gzip' } });
      expect([zipped.headers['content-encoding'], zipped.headers.vary]).toEqual(['gzip', 'origin, accept-encoding']);
      const text = gunzipSync(zipped.body).toString('utf8');
      expect(parseSamples(text).value('http_server_active_requests')).toBe(1);
      const plain = await ask(url + path, { method: 'GET', headers: { 'accept-encoding': 'gzip;q=0' } });
      expect(plain.headers['content-encoding']).toBeUndefined();
      if (path === '/metrics') expect(zipped.body.length).toBeLessThan(plain.body.length / 4);
    }
  });

  it('carries nothing of a request but what is listed', async () => {
    const secret = 'xyzzy-prompt-canary';
    service.backend.script = chatAnswer('xyzzy-answer-canary');
    const headers = { authorization: 'Bearer xyzzy-key-canary', 'user-agent': 'xyzzy-agent' };
    await chat(service.gateway.url, { ...CHAT, messages: [{ role: 'user', content: secret }], tee: true }, headers);
    await get('/v1/xyzzy-path?xyzzy=1');
    expect((await get('/metrics')).text).not.toContain('xyzzy');
  });

  it('is a 404 on the main port as soon as there are keys or METRICS_PORT, and says where to look', async () => {
    const keys = join(service.folder.path, 'keys');
    writeFileSync(keys, 'key-one\n');
    const env = { BACKEND_URL: service.backend.url, SIDECAR_SOCKET: service.sidecar.socket };
    const locked = await startGateway({ ...env, API_KEYS_FILE: keys });
    const got = await ask(`${locked.url}/metrics`, { method: 'GET', headers: { authorization: 'Bearer key-one' } });
    expectError(got, 404, 'not_found');
    expect(got.json().error.message).toContain('METRICS_PORT');
    await locked.close();
    const moved = await startGateway({ ...env, METRICS_PORT: '19999' });
    expect((await get('/metrics', moved.url)).json().error.message).toContain('port 19999');
    await moved.close();
  });

  it('has METRICS_PORT to itself', async () => {
    const env = { BACKEND_URL: service.backend.url, SIDECAR_SOCKET: service.sidecar.socket, ALLOW_SIMULATED: '1' };
    const gateway = startProcess('gateway/main.ts', [], { ...env, PORT: '0', METRICS_PORT: '0' });
    const port = () => /"port":(\d+)[^\n]*"msg":"metrics"/.exec(gateway.output())?.[1];
    await eventually(() => port() !== undefined, 10_000);
    const url = `http://127.0.0.1:${port()}`;
    expect((await samples(url)).value('countersign_build_info')).toBe(1);
    expect([...parseSamples((await get('/metrics/picker', url)).text).types.keys()]).toEqual(PICKER_METRICS);
    const zipped = await ask(`${url}/metrics`, { method: 'GET', headers: { 'accept-encoding': 'gzip, br' } });
    expect(parseSamples(gunzipSync(zipped.body).toString('utf8')).value('countersign_build_info')).toBe(1);
    expect((await get('/v1/models', url)).status).toBe(404);
    expect((await get('/health', url)).status).toBe(404);
    // A web page's name that was made to mean this machine.
    const named = (host: string) => ask(`${url}/metrics`, { method: 'GET', headers: { host } });
    const statuses = ['evil.example:9090', 'localhost:9090', 'gateway:9090', '10.0.0.7:9090'].map(
      async (host) => (await named(host)).status,
    );
    expect(await Promise.all(statuses)).toEqual([403, 200, 200, 200]);
    await gateway.kill('SIGTERM');
  });
});
