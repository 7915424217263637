// SECRETS=sealed: a gateway that waits for its secrets answers nothing else, takes them from the launch's operator only, sealed to its own
// session, and once. After each refusal the right sender still gets in.
import { readFileSync } from 'node:fs';
import { type AddressInfo, connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { hasKeys, loadConfig, type Secrets } from '../../../gateway/base/config.ts';
import { createHttpServer } from '../../../gateway/http/server.ts';
import { loadKeys } from '../../../gateway/keys/keys-file.ts';
import { buildWaitingApp } from '../../../gateway/waiting.ts';
import { MAX_SECRETS_BYTES, SECRETS_PATH } from '../../../proto/attestation/secrets.ts';
import { writeCertificate } from '../../support/certificate.ts';
import { ask, CHAT } from '../../support/client.ts';
import { type Folder, type RunningSidecar, SILENT, startGateway, temporaryFolder } from '../../support/harness.ts';
import { COMPOSE, LAUNCH } from '../../support/launch-file.ts';
import { post, textOf } from '../../support/sealed-client.ts';
import {
  bodyOf,
  launchWith,
  newOperator,
  postSealed,
  sealBody,
  sendSecrets,
  startGuest,
  statementOf,
} from '../../support/secrets.ts';
import { expectDeclared } from '../routes/openapi-document.ts';

const operator = newOperator();
const stranger = newOperator();
const KEYS = 'sk-first\nsk-second\n';
const GOOD = { 'api-keys': KEYS };

interface Waiting {
  readonly url: string;
  readonly secrets: Promise<Secrets>;
  /** What has been taken so far. */
  readonly taken: () => Secrets | null;
  close(): Promise<void>;
}

async function startWaiting(sidecar: RunningSidecar, env: Record<string, string> = {}): Promise<Waiting> {
  const settings = { BACKEND_URL: 'http://127.0.0.1:1/v1', SECRETS: 'sealed', ALLOW_SIMULATED: '1', ...env };
  const config = loadConfig({ ...settings, SIDECAR_SOCKET: sidecar.socket });
  const built = buildWaitingApp(config, SILENT);
  const server = createHttpServer(built.app.fetch, { ...config, tls: null }, SILENT);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  let taken: Secrets | null = null;
  void built.secrets.then((secrets) => {
    taken = secrets;
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    secrets: built.secrets,
    taken: () => taken,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await built.close();
    },
  };
}

let folder: Folder;
let guest: Awaited<ReturnType<typeof startGuest>>;
beforeAll(async () => {
  folder = temporaryFolder();
  guest = await startGuest(folder, launchWith(operator.sha256));
});
afterAll(async () => {
  await guest.close();
  folder.remove();
});

const get = (url: string) => ask(url, { method: 'GET' });

describe('a gateway that waits for its secrets', () => {
  let waiting: Waiting;
  beforeAll(async () => {
    waiting = await startWaiting(guest);
    await statementOf(waiting.url);
  });
  afterAll(() => waiting.close());

  it('says so in /health, and gives its session to everybody', async () => {
    const health = await get(`${waiting.url}/health`);
    expect([health.status, health.json().status, health.json().sidecar.cpu]).toEqual([503, 'waiting', 'SEV_SNP']);
    expectDeclared('GET /health', health, 503);
    const session = await get(`${waiting.url}/v1/attestation/session`);
    expect([session.status, JSON.parse(session.json().launch).operator]).toEqual([200, operator.sha256]);
  });

  it.each([
    ['GET', '/'],
    ['GET', '/metrics'],
    ['GET', '/usage'],
    ['GET', '/v1/models'],
    ['GET', SECRETS_PATH],
    ['POST', '/ohttp'],
    ['POST', '/admin/keys'],
    ['POST', '/v1/chat/completions'],
    ['POST', '/~sev_gpu@1.0/verify'],
  ])('answers nothing else: %s %s', async (method, path) => {
    const got = await ask(waiting.url + path, { method, ...(method === 'POST' ? { body: '{}' } : {}) });
    expect([got.status, got.json().error.code, got.headers['retry-after']]).toEqual([503, 'waiting_for_secrets', '5']);
  });

  it('answers nothing else inside of a seal either', async () => {
    const request = await sealBody(await statementOf(waiting.url), JSON.stringify(CHAT), '/v1/chat/completions');
    expect(await postSealed(waiting.url, request)).toMatchObject({ status: 503, code: 'waiting_for_secrets' });
  });
});

/** Sends what is wrong. Returns status and code. */
type Wrong = (url: string) => Promise<{ readonly status: number; readonly code: string | null }>;

async function sealed(url: string, make: (statement: string) => unknown) {
  const statement = await statementOf(url);
  return postSealed(url, await sealBody(statement, make(statement)));
}

const WRONG: readonly (readonly [what: string, status: number, code: string, wrong: Wrong])[] = [
  [
    'in the clear',
    400,
    'sealed_malformed',
    async (url) => {
      const body = JSON.stringify(bodyOf(await statementOf(url), operator, GOOD));
      const got = await ask(url + SECRETS_PATH, { body });
      return { status: got.status, code: got.json().error.code };
    },
  ],
  ['by another operator', 403, 'secrets_refused', (url) => sealed(url, (one) => bodyOf(one, stranger, GOOD))],
  [
    'by another key under the operator’s name',
    403,
    'secrets_refused',
    (url) => sealed(url, (one) => ({ ...bodyOf(one, stranger, GOOD), operator: operator.spki.toString('base64') })),
  ],
  [
    'that were not signed',
    403,
    'secrets_refused',
    (url) => sealed(url, (one) => ({ ...bodyOf(one, operator, GOOD), secrets: { 'api-keys': 'sk-other\n' } })),
  ],
  [
    'without one that was signed',
    403,
    'secrets_refused',
    (url) => sealed(url, (one) => ({ ...bodyOf(one, operator, { ...GOOD, 'backend-api-key': 'x' }), secrets: GOOD })),
  ],
  [
    'under another name than was signed',
    403,
    'secrets_refused',
    (url) => sealed(url, (one) => ({ ...bodyOf(one, operator, GOOD), secrets: { 'backend-api-key': KEYS } })),
  ],
  [
    'signed for a session of another gateway',
    422,
    'sealed_key_unknown',
    async (url) => {
      const other = temporaryFolder();
      const elsewhere = await startGuest(other, launchWith(operator.sha256));
      const there = await startWaiting(elsewhere);
      try {
        const statement = await statementOf(there.url);
        return await sealed(url, () => bodyOf(statement, operator, GOOD));
      } finally {
        await there.close();
        await elsewhere.close();
        other.remove();
      }
    },
  ],
  [
    'signed for what is no statement',
    422,
    'sealed_key_unknown',
    (url) => sealed(url, () => bodyOf('{"purpose":"countersign.session.v1"}', operator, GOOD)),
  ],
  [
    'of unknown names',
    400,
    'invalid_request',
    (url) => sealed(url, (one) => bodyOf(one, operator, { ...GOOD, 'ssh-key': 'x' })),
  ],
  ['that are none', 400, 'invalid_request', (url) => sealed(url, (one) => bodyOf(one, operator, {}))],
  ['that are no JSON', 400, 'invalid_json', (url) => sealed(url, () => '{"secrets":')],
  ['that are no object', 400, 'invalid_request', (url) => sealed(url, () => '[]')],
  [
    'whose keys are none',
    400,
    'invalid_request',
    (url) => sealed(url, (one) => bodyOf(one, operator, { 'api-keys': 'a:sha256:0' })),
  ],
  [
    'whose TLS key is missing',
    400,
    'invalid_request',
    (url) => sealed(url, (one) => bodyOf(one, operator, { ...GOOD, 'tls.crt': 'x' })),
  ],
  [
    'whose TLS key is another’s',
    400,
    'invalid_request',
    async (url) => {
      const { pem } = writeCertificate(folder.path, 1);
      const { keyFile } = writeCertificate(folder.path, 2);
      const pair = { 'tls.crt': pem, 'tls.key': readFileSync(keyFile, 'utf8') };
      return sealed(url, (statement) => bodyOf(statement, operator, { ...GOOD, ...pair }));
    },
  ],
  [
    'whose key for the backend is none',
    400,
    'invalid_request',
    (url) => sealed(url, (one) => bodyOf(one, operator, { ...GOOD, 'backend-api-key': 'a b' })),
  ],
  [
    'of more than a MiB',
    413,
    'body_too_large',
    (url) => sealed(url, (one) => bodyOf(one, operator, { 'api-keys': 'x'.repeat(MAX_SECRETS_BYTES) })),
  ],
  [
    'that are cut off',
    400,
    'sealed_malformed',
    async (url) => {
      const statement = await statementOf(url);
      const { request, chunks } = await sealBody(
        statement,
        bodyOf(statement, operator, { 'api-keys': 'sk-long\n'.repeat(9_000) }),
      );
      const bytes = Buffer.concat(chunks);
      return postSealed(url, { request, chunks: [bytes.subarray(0, bytes.length - 20_000)] });
    },
  ],
  [
    'that came before',
    409,
    'sealed_replayed',
    async (url) => {
      const statement = await statementOf(url);
      const once = await sealBody(statement, bodyOf(statement, stranger, GOOD));
      expect(await postSealed(url, once)).toMatchObject({ status: 403 });
      return postSealed(url, once);
    },
  ],
];

const RELEASE = '{"bundle":{},"status":null}';

describe('secrets', () => {
  it.each(WRONG)('%s are refused, and the right ones are taken after it', async (_, status, code, wrong) => {
    const waiting = await startWaiting(guest);
    try {
      expect(await wrong(waiting.url)).toMatchObject({ status, code });
      expect(waiting.taken()).toBeNull();
      expect(await sendSecrets(waiting.url, operator, GOOD)).toMatchObject({ status: 200 });
      expect(await waiting.secrets).toEqual({ api_keys: KEYS, tls: null, backend_api_key: null, release: null });
    } finally {
      await waiting.close();
    }
  });

  it('of 100 MB are refused before any of it is read, or when the first MiB is opened', async () => {
    const waiting = await startWaiting(guest);
    try {
      await statementOf(waiting.url);
      const headers = { 'content-type': 'message/ohttp-chunked-req', 'content-length': String(100 * 1024 * 1024) };
      const early = await post(waiting.url, [], headers, { path: SECRETS_PATH, whole: false });
      expect([early.status, JSON.parse(await textOf(early)).error.code]).toEqual([413, 'body_too_large']);
      expect(await sendSecrets(waiting.url, operator, GOOD)).toMatchObject({ status: 200 });
    } finally {
      await waiting.close();
    }
  });

  it('are taken once a start: TLS, keys, the key for the backend and a release', async () => {
    const waiting = await startWaiting(guest);
    try {
      const { pem, keyFile } = writeCertificate(folder.path);
      const key = readFileSync(keyFile, 'utf8');
      const all = {
        'api-keys': KEYS,
        'tls.crt': pem,
        'tls.key': key,
        'backend-api-key': 'sk-backend\n',
        'release.json': RELEASE,
      };
      const bad = await sendSecrets(waiting.url, operator, { ...all, 'release.json': '{"status":null}' });
      expect(bad).toMatchObject({ status: 400, code: 'invalid_request', param: 'release.json' });
      expect(await sendSecrets(waiting.url, operator, all)).toMatchObject({ status: 200, text: '{"status":"taken"}' });
      const again = await sendSecrets(waiting.url, operator, { 'api-keys': 'sk-third\n' });
      expect(again).toMatchObject({ status: 409, code: 'secrets_not_expected' });
      const tls = { cert: pem, key };
      expect(await waiting.secrets).toEqual({ api_keys: KEYS, tls, backend_api_key: 'sk-backend', release: RELEASE });
    } finally {
      await waiting.close();
    }
  });

  it('need keys where others than this machine can connect', async () => {
    const waiting = await startWaiting(guest, { HOST: '0.0.0.0' });
    try {
      const refused = await sendSecrets(waiting.url, operator, { 'backend-api-key': 'sk-backend' });
      expect(refused).toMatchObject({ status: 400, code: 'invalid_request', param: 'api-keys' });
      expect(await sendSecrets(waiting.url, operator, GOOD)).toMatchObject({ status: 200 });
    } finally {
      await waiting.close();
    }
  });

  it.each([
    ['whose launch file names no operator', LAUNCH, /names no operator/],
    ['without a launch file', null, /has no launch file/],
  ])('are taken by no guest %s', async (_, launch, why) => {
    const own = temporaryFolder();
    const nobodys = await startGuest(own, launch);
    const waiting = await startWaiting(nobodys);
    try {
      const got = await sendSecrets(waiting.url, operator, GOOD);
      expect(got).toMatchObject({ status: 403, code: 'secrets_refused', text: expect.stringMatching(why) });
      expect(waiting.taken()).toBeNull();
      expect((await get(`${waiting.url}/health`)).json().status).toBe('waiting');
    } finally {
      await waiting.close();
      await nobodys.close();
      own.remove();
    }
  });

  it('count where the sender goes as soon as they are sent', async () => {
    for (const wait_ms of [0, 1, 2, 4, 8]) {
      const cut = await startWaiting(guest);
      try {
        const statement = await statementOf(cut.url);
        const { chunks } = await sealBody(statement, bodyOf(statement, operator, GOOD));
        const { port, hostname } = new URL(cut.url);
        const head = `POST ${SECRETS_PATH} HTTP/1.1\r\nhost: a\r\ncontent-type: message/ohttp-chunked-req\r\ncontent-length:`;
        const body = Buffer.concat(chunks);
        const socket = connect(Number(port), hostname);
        await new Promise((resolve) =>
          socket.write(Buffer.concat([Buffer.from(`${head} ${body.length}\r\n\r\n`), body]), resolve),
        );
        await new Promise((resolve) => setTimeout(resolve, wait_ms));
        socket.destroy();
        await new Promise((resolve) => setTimeout(resolve, 50));
        // Taken, or still waited for; nothing in between.
        const again = await sendSecrets(cut.url, operator, GOOD);
        expect([again.status, cut.taken() !== null]).toEqual([expect.toBeOneOf([200, 409]), true]);
      } finally {
        await cut.close();
      }
    }
  });

  it('of yesterday are none after a restart, and the operator sends them again', async () => {
    const before = await startWaiting(guest);
    const statement = await statementOf(before.url);
    const recorded = await sealBody(statement, bodyOf(statement, operator, GOOD));
    expect(await postSealed(before.url, recorded)).toMatchObject({ status: 200 });
    await before.close();
    const after = await startWaiting(guest);
    try {
      await statementOf(after.url);
      expect(await postSealed(after.url, recorded)).toMatchObject({ status: 422, code: 'sealed_key_unknown' });
      // The guest itself could open what it got, and seal it anew: the signature is for another session.
      expect(await sealed(after.url, () => bodyOf(statement, operator, GOOD))).toMatchObject({ status: 422 });
      expect(after.taken()).toBeNull();
      expect(await sendSecrets(after.url, operator, GOOD)).toMatchObject({ status: 200 });
    } finally {
      await after.close();
    }
  });
});

describe('a gateway that waits for no secrets', () => {
  it('says so', async () => {
    const gateway = await startGateway({ BACKEND_URL: 'http://127.0.0.1:1/v1', SIDECAR_SOCKET: guest.socket });
    try {
      const got = await ask(gateway.url + SECRETS_PATH, { body: '{}' });
      expect([got.status, got.json().error.code]).toEqual([409, 'secrets_not_expected']);
      expectDeclared(`POST ${SECRETS_PATH}`, got, 409);
    } finally {
      await gateway.close();
    }
  });

  it.each([
    ['API_KEYS_FILE', '/keys'],
    ['TLS_CERT_FILE', '/cert'],
    ['BACKEND_API_KEY', 'x'],
    ['BACKEND_API_KEY_FILE', '/key'],
  ])('because %s says where one is does not start with SECRETS=sealed', (name, value) => {
    const env = { BACKEND_URL: 'http://127.0.0.1:1/v1', SECRETS: 'sealed', TLS_KEY_FILE: '/key', [name]: value };
    const { TLS_KEY_FILE, ...rest } = env;
    expect(() => loadConfig(name === 'TLS_CERT_FILE' ? env : rest)).toThrow(`${name} and SECRETS=sealed are both set`);
    expect(loadConfig({ ...rest, [name]: '' }).secrets).toBe('sealed');
  });

  it.each([
    [{ SEALED: 'off' }, /^SECRETS=sealed needs sealed requests/],
    [{ REUSE_PORT: '1', ATTESTATION_STORE_URL: 'redis://127.0.0.1:6379' }, /^SECRETS=sealed needs a port of its own/],
  ])('cannot be asked to with %j', (more, why) => {
    const env = { BACKEND_URL: 'http://127.0.0.1:1/v1', SECRETS: 'sealed' };
    expect(() => loadConfig({ ...env, ...more })).toThrow(why);
    expect(loadConfig({ ...env, HOST: '0.0.0.0' }).secrets).toBe('sealed');
  });
});

it('compose.measured.yaml has the gateway wait, and leaves it no file of a secret', () => {
  const { environment, secrets } = JSON.parse(COMPOSE).services.gateway;
  const set = Object.entries<string | null>(environment).filter(([, value]) => value !== null);
  const config = loadConfig({ HOST: '0.0.0.0', ...Object.fromEntries(set) });
  expect([config.secrets, config.api_keys_file, config.tls, secrets]).toEqual(['sealed', null, null, undefined]);
});

describe('keys that came sealed', () => {
  const received = { api_keys: 'sk-user\n', tls: null, backend_api_key: null, release: null };

  it('are asked for as those of a file are', async () => {
    const keys = loadKeys({ api_keys_file: null, received, max_body_bytes: 1024 }, SILENT);
    expect(keys.authenticate({ authorization: 'Bearer sk-user' }).name).toBe('line-1');
    expect(() => keys.authenticate({ authorization: 'Bearer sk-other' })).toThrow(/API key/);
    expect(hasKeys({ api_keys_file: null, received })).toBe(true);
    expect(hasKeys({ api_keys_file: null, received: { ...received, api_keys: null } })).toBe(false);
  });
});
