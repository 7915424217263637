// Answers of a confidential VM: the processor's session in each attestation, by itself, by its name alone; and sidecars that lie about it.
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { WebSocketServer } from 'ws';
import { createSimulatedCpu } from '../../../demo/twin/cpu.ts';
import { createSimulatedAttester } from '../../../demo/twin/gpu.ts';
import { PROTOCOL } from '../../../proto/attestation/frames.ts';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import { createSessions, type Sessions } from '../../../sidecar/cpu/sessions.ts';
import { appraiseSession } from '../../../verify/cpu.ts';
import { appraiseAttestation, verifyAttestation } from '../../../verify/index.ts';
import { collateralEnd } from '../../../verify/service.ts';
import {
  type Backend,
  chatAnswer,
  chatStream,
  DONE,
  delta,
  finish,
  role,
  startBackend,
  stream,
} from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { type FalseSidecar, startFalseSidecar } from '../../support/false-sidecar.ts';
import {
  eventually,
  type Folder,
  type RunningGateway,
  type RunningSidecar,
  type Service,
  startGateway,
  startService,
  startSidecar,
  temporaryFolder,
} from '../../support/harness.ts';
import { LAUNCH, LAUNCH_SHA256 } from '../../support/launch-file.ts';
import { parseSamples } from '../../telemetry/samples.ts';
import { expectError } from '../expect-error.ts';

type Session = NonNullable<Sessions['current']>;

const TEE = { ...CHAT, tee: true };
const CHALLENGE = 'c0'.repeat(32);

describe.each(['SEV_SNP', 'TDX'] as const)('with %s', (type) => {
  let service: Service;
  let folder: Folder;
  let simulatedRoot: string;

  beforeAll(async () => {
    folder = temporaryFolder();
    const collector = await createSimulatedCpu({ type, rootDir: folder.path });
    service = await startService({}, { cpu: { collector, required: true } });
    simulatedRoot = (service.sidecar.attester.simulated?.root ?? '') + (collector.simulated?.root ?? '');
  });
  beforeEach(() => {
    service.backend.script = chatAnswer('Hello.');
    service.backend.seen.length = 0;
  });
  afterAll(async () => {
    await service.close();
    folder.remove();
  });

  const current = async () => (await ask(`${service.gateway.url}/v1/attestation/session`, { method: 'GET' })).json();

  it('a whole answer carries the session and a signature over this answer', async () => {
    const got = await chat(service.gateway.url, TEE);
    const report = await appraiseAttestation(got.text, { simulatedRoot });
    expect(report.checks.filter(({ status }) => status === 'fail')).toEqual([]);
    expect(report.checks).toContainEqual(expect.objectContaining({ name: 'cpu_answer', status: 'pass' }));
    expect(report.claims.cpu).toMatchObject({ type, simulated: true });
    const kept = await ask(
      `${service.gateway.url}/v1/chat/completions/${got.headers['x-attestation-id']}/attestation`,
      { method: 'GET' },
    );
    expect(kept.json()).toEqual(got.json().attestation);
  });

  it('so does a stream', async () => {
    service.backend.script = chatStream(['Hel', 'lo.']);
    const got = await chat(service.gateway.url, { ...TEE, stream: true });
    const report = await appraiseAttestation(got.body, { simulatedRoot });
    expect(report.checks.filter(({ status }) => status === 'fail')).toEqual([]);
    expect(report.checks).toContainEqual(expect.objectContaining({ name: 'cpu_answer', status: 'pass' }));
  });

  it('the metrics say when session and collateral end', async () => {
    const { statement, collateral } = await current();
    const samples = parseSamples((await ask(`${service.gateway.url}/metrics`, { method: 'GET' })).text);
    const { not_after } = JSON.parse(statement);
    expect(samples.value('countersign_session_end_timestamp_seconds', { type })).toBe(not_after);
    const end = type === 'TDX' ? collateralEnd(collateral).getTime() / 1000 : null;
    expect(samples.value('countersign_collateral_end_timestamp_seconds', { type })).toBe(end);
  });

  it('an answer without tee carries nothing', async () => {
    expect((await chat(service.gateway.url, CHAT)).text).not.toContain('statement');
  });

  it('the current session is for everybody, one of its own for anybody who has a key', async () => {
    writeFileSync(join(folder.path, 'keys'), 'sesame\n');
    const { socket } = service.sidecar;
    const gateway = await startGateway({
      BACKEND_URL: service.backend.url,
      SIDECAR_SOCKET: socket,
      API_KEYS_FILE: join(folder.path, 'keys'),
      ALLOW_SIMULATED: '1',
    });
    const get = (query = '', headers = {}) =>
      ask(`${gateway.url}/v1/attestation/session${query}`, { method: 'GET', headers });
    await eventually(async () => (await get()).status === 200);
    expect(await appraiseSession((await get()).text, { simulatedRoot })).toMatchObject({ valid: true });
    expectError(await get(`?challenge=${CHALLENGE}`), 401, 'invalid_api_key');
    expect((await get(`?challenge=${CHALLENGE}`, { authorization: 'Bearer sesame' })).status).toBe(200);
    await gateway.close();
  });

  it('gives a session with a challenge, under the same key', async () => {
    const url = `${service.gateway.url}/v1/attestation/session`;
    const challenged = (await ask(`${url}?challenge=${CHALLENGE}`, { method: 'GET' })).json();
    const report = await appraiseSession(challenged, { simulatedRoot, expected: { challenge: CHALLENGE } });
    expect(report.checks.filter(({ status }) => status === 'fail')).toEqual([]);
    const keyOf = ({ statement }: { statement: string }) => JSON.parse(statement).key;
    expect(keyOf(challenged)).toBe(keyOf(await current()));
    for (const wrong of ['', 'c0', CHALLENGE.toUpperCase()])
      expectError(await ask(`${url}?challenge=${wrong}`, { method: 'GET' }), 400, 'invalid_request', 'challenge');
    expectError(await ask(url, { method: 'POST', body: '{}' }), 405, 'method_not_allowed');
  });

  it('the verify endpoint knows it, and a least level', async () => {
    const { text } = await chat(service.gateway.url, TEE);
    const verify = (query = '') => ask(`${service.gateway.url}/~sev_gpu@1.0/verify${query}`, { body: text });
    expect((await verify()).text).toBe('true');
    expectError(await verify('?min_level=gpu'), 422, 'policy_refused');
    expect((await verify('?min_level=none')).text).toBe('true');
    expectError(await verify('?min_level=cpu'), 400, 'invalid_request', 'min_level');
    const changed = JSON.parse(text);
    changed.attestation.cpu.signature = Buffer.alloc(64).toString('base64');
    expectError(
      await ask(`${service.gateway.url}/~sev_gpu@1.0/verify`, { body: JSON.stringify(changed) }),
      422,
      'answer_signature_invalid',
    );
  });

  it('/health names the processor', async () => {
    expect((await ask(`${service.gateway.url}/health`, { method: 'GET' })).json().sidecar.cpu).toBe(type);
  });
});

describe('a guest with a launch file', () => {
  it.each([
    ['SEV_SNP', 'host_data'],
    ['TDX', 'mrconfigid'],
  ] as const)('%s: says so in each session, and the caller finds it among its own', async (type, launch_in) => {
    const folder = temporaryFolder();
    const collector = await createSimulatedCpu({
      type,
      rootDir: folder.path,
      launch: Buffer.from(LAUNCH_SHA256, 'hex'),
    });
    const service = await startService({}, { cpu: { collector, required: true, launch: LAUNCH } });
    try {
      service.backend.script = chatAnswer('Hello.');
      const got = await chat(service.gateway.url, TEE);
      expect(got.json().attestation.cpu.launch).toBe(LAUNCH);
      const simulatedRoot = `${service.sidecar.attester.simulated?.root}${collector.simulated?.root}`;
      const { claims } = await verifyAttestation(got.text, { simulatedRoot });
      const [measurement, rtmrs] = [[claims.cpu?.measurement ?? ''], (claims.cpu?.rtmrs ?? []).map((one) => [one])];
      const [rtmr0 = [], rtmr1 = [], rtmr2 = [], rtmr3 = []] = rtmrs;
      const guest =
        launch_in === 'host_data'
          ? ({ type: 'SEV_SNP', measurement, launch_in } as const)
          : ({ type: 'TDX', mrtd: measurement, rtmr0, rtmr1, rtmr2, rtmr3, launch_in } as const);
      const known = (digest: string) => ({
        simulatedRoot,
        cpu: { reference: { version: 1, cpu: [guest], launch: [digest] } as const },
      });
      const report = await verifyAttestation(got.text, known(LAUNCH_SHA256));
      expect(report.claims.cpu?.software).toMatchObject({
        launch: LAUNCH_SHA256,
        images: { gateway: expect.anything() },
      });
      expect(report.level).toBe('none');
      const other = await appraiseAttestation(got.text, known('00'.repeat(32)));
      expect(other.checks).toContainEqual(expect.objectContaining({ name: 'cpu_software', code: 'software_mismatch' }));
    } finally {
      await service.close();
      folder.remove();
    }
  });
});

describe('a sidecar that is restarted', () => {
  let folder: Folder;
  let backend: Backend;
  let sidecar: RunningSidecar;
  let gateway: RunningGateway;

  beforeEach(async () => {
    folder = temporaryFolder();
    backend = await startBackend();
    sidecar = await begin();
    gateway = await startGateway({ BACKEND_URL: backend.url, SIDECAR_SOCKET: sidecar.socket });
  });
  afterEach(async () => {
    await gateway.close();
    await sidecar.close();
    await backend.close();
    folder.remove();
  });

  async function begin(options: { required?: boolean; breaks?: boolean } = {}) {
    const collector = await createSimulatedCpu({ type: 'TDX', rootDir: join(folder.path, 'simulated-root') });
    const broken = async () => {
      throw new Error('broken');
    };
    const { required = true, breaks = false } = options;
    return startSidecar(folder, {
      cpu: { collector: breaks ? { ...collector, collect: broken } : collector, required },
    });
  }

  const statementOf = (text: string) => JSON.parse(text).attestation.cpu.statement as string;

  it('mid-stream proves the answer under its new session', async () => {
    const before = statementOf((await chat(gateway.url, TEE)).text);
    let go = () => {};
    const restarted = new Promise<void>((resolve) => {
      go = resolve;
    });
    backend.script = async (request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(role() + delta('Hel'));
      await restarted;
      response.end(delta('lo.') + finish() + DONE);
      void request;
    };
    const streamed = chat(gateway.url, { ...TEE, stream: true });
    await eventually(() => backend.seen.length === 2);
    await sidecar.close();
    sidecar = await begin();
    go();
    const got = await streamed;
    const report = await appraiseAttestation(got.body, {
      simulatedRoot:
        (sidecar.attester.simulated?.root ?? '') +
        ((await createSimulatedCpu({ type: 'TDX', rootDir: join(folder.path, 'simulated-root') })).simulated?.root ??
          ''),
    });
    expect(report.checks.filter(({ status }) => status === 'fail')).toEqual([]);
    expect(report.checks).toContainEqual(expect.objectContaining({ name: 'cpu_answer', status: 'pass' }));
    expect(got.text).not.toContain(before);
  });

  it('without its processor refuses tee where it is required, with the reason, and answers without it otherwise', async () => {
    await sidecar.close();
    sidecar = await begin({ breaks: true });
    await eventually(async () => (await health()).trouble !== null);
    expect((await health()).trouble.message).toContain('cpu_unavailable');
    expectError(await chat(gateway.url, TEE), 503, 'attestation_unavailable');
    expect((await chat(gateway.url, CHAT)).status).toBe(200);
    await sidecar.close();
    sidecar = await begin({ breaks: true, required: false });
    await eventually(async () => (await health()).trouble === null && (await health()).status === 'connected');
    const { attestation } = (await chat(gateway.url, TEE)).json();
    expect(attestation).not.toHaveProperty('cpu');
    expectError(await ask(`${gateway.url}/v1/attestation/session`, { method: 'GET' }), 503, 'attestation_unavailable');
  });

  const health = async () => (await ask(`${gateway.url}/health`, { method: 'GET' })).json().sidecar;
});

describe('a sidecar without a processor', () => {
  it('has no sessions', async () => {
    const service = await startService();
    const url = `${service.gateway.url}/v1/attestation/session`;
    expectError(await ask(url, { method: 'GET' }), 404, 'not_found');
    expectError(await ask(`${url}?challenge=${CHALLENGE}`, { method: 'GET' }), 404, 'not_found');
    expect((await chat(service.gateway.url, TEE)).json().attestation).not.toHaveProperty('cpu');
    await service.close();
  });
});

describe('a sidecar that lies', () => {
  let folder: Folder;
  let backend: Backend;
  let sidecar: FalseSidecar;
  let gateway: RunningGateway | null = null;
  let sessions: Sessions | null = null;

  beforeEach(async () => {
    folder = temporaryFolder();
    backend = await startBackend();
  });
  afterEach(async () => {
    sessions?.close();
    await gateway?.close();
    await sidecar?.close();
    await backend.close();
    folder.remove();
    gateway = null;
  });

  /** What an honest sidecar with the false one's root sends. */
  async function honest() {
    const rootDir = join(folder.path, 'false-root');
    const attester = await createSimulatedAttester({ rootDir });
    const collector = await createSimulatedCpu({ type: 'TDX', rootDir });
    sessions = createSessions({
      collector,
      required: true,
      attest: (nonce, signal) => attester.attest(nonce, signal),
      onSession: () => {},
      onFailure: () => {},
      simulatedRoot: () => attester.simulated?.root ?? null,
    });
    await sessions.ready;
    const root = (attester.simulated?.root ?? '') + (collector.simulated?.root ?? '');
    return {
      twin: attester,
      session: sessions.current as Session,
      hello: { simulated: { root }, cpu: { type: 'TDX' } },
    };
  }

  const gatewayOf = async () => {
    gateway = await startGateway({
      BACKEND_URL: backend.url,
      SIDECAR_SOCKET: sidecar.socket,
      limits: { sidecar_wait_ms: 500 },
    });
    return gateway.url;
  };
  const refused = async (url: string) => (await ask(`${url}/health`, { method: 'GET' })).json().sidecar.refused;

  it('about its session is refused', async () => {
    const { twin, session, hello } = await honest();
    const member = JSON.parse(session.cpu);
    const report = Buffer.from(member.report, 'base64');
    report.writeUInt8((report[100] ?? 0) ^ 1, 100);
    const cpu = JSON.stringify({ ...member, report: report.toString('base64') });
    sidecar = await startFalseSidecar(folder, { twin, hello, session: { ...session, cpu } });
    const url = await gatewayOf();
    await eventually(async () => (await refused(url))?.code === 'cpu_signature_invalid');
    expectError(await chat(url, TEE), 503, 'attestation_unavailable');
  });

  it.each([
    ['a session that it never sent', { session: 'ab'.repeat(32) }, 'cpu_missing'],
    ['a signature that is none', {}, 'answer_signature_invalid'],
  ])('about %s in an answer is refused', async (_, lie, code) => {
    const { twin, session, hello } = await honest();
    const id = Buffer.from(await crypto.subtle.digest('SHA-256', Buffer.from(session.statement))).toString('hex');
    const signed = async () => ({ session: id, signature: randomBytes(64).toString('base64'), ...lie });
    sidecar = await startFalseSidecar(folder, { twin, hello, session, signed });
    const url = await gatewayOf();
    expectError(await chat(url, TEE), 503, 'attestation_unavailable');
    expect(await refused(url)).toMatchObject({ code });
  });

  it('that signs in a session which raw does not name is refused', async () => {
    const { twin, session, hello } = await honest();
    const id = Buffer.from(await crypto.subtle.digest('SHA-256', Buffer.from(session.statement))).toString('hex');
    const signed = async (_: unknown, nonce: Nonce) => {
      const { evidence } = await twin.attest(nonce, new AbortController().signal);
      return (await sessions?.signerIn(id)?.(nonce, evidence)) ?? null;
    };
    // The first raw names no session, because the one that was sent is still being checked.
    sidecar = await startFalseSidecar(folder, { twin, hello, session, signed, anySession: true });
    const url = await gatewayOf();
    expectError(await chat(url, TEE), 503, 'attestation_unavailable');
    expect(await refused(url)).toMatchObject({ code: 'session_mismatch' });
  });

  it('about its device is refused, whatever the key has signed', async () => {
    const { session, hello } = await honest();
    const id = Buffer.from(await crypto.subtle.digest('SHA-256', Buffer.from(session.statement))).toString('hex');
    const signed = async () => ({ session: id, signature: randomBytes(64).toString('base64') });
    // Its own twin is another device than the one of the session.
    sidecar = await startFalseSidecar(folder, { hello, session, signed });
    const url = await gatewayOf();
    expectError(await chat(url, TEE), 503, 'attestation_unavailable');
    expect(await refused(url)).toMatchObject({ code: 'cpu_devices_mismatch' });
  });
});

it('a sidecar of another version is refused in words that say what to do', async () => {
  const folder = temporaryFolder();
  const backend = await startBackend(stream([]));
  const socket = join(folder.path, 'sidecar.sock');
  const server = createServer();
  const sockets = new WebSocketServer({ server });
  const hello = {
    type: 'hello',
    protocol: 'countersign/1',
    attester: 'old',
    devices: [],
    simulated: null,
    trouble: null,
  };
  sockets.on('connection', (ws) => ws.send(JSON.stringify(hello)));
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  const gateway = await startGateway({
    BACKEND_URL: backend.url,
    SIDECAR_SOCKET: socket,
    limits: { sidecar_wait_ms: 300 },
  });
  const sidecar = async () => (await ask(`${gateway.url}/health`, { method: 'GET' })).json().sidecar;
  await eventually(async () => (await sidecar()).status === 'refused');
  const { refused } = await sidecar();
  expect(refused.code).toBe('other_protocol');
  expect(refused.message).toBe(
    `the sidecar speaks countersign/1 and this process ${PROTOCOL}: install one version of both`,
  );
  expectError(await chat(gateway.url, TEE), 503, 'attestation_unavailable');
  await gateway.close();
  for (const ws of sockets.clients) ws.terminate();
  await new Promise<void>((resolve) => server.close(() => resolve()));
  await backend.close();
  folder.remove();
});
