// `countersign secrets send` before a gateway with SECRETS=sealed, as processes: who gets the secrets, and where they lie.

import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, request as httpRequest, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { MAX_SECRETS_BYTES, SECRETS_PATH } from '../../proto/attestation/secrets.ts';
import { appraiseSession } from '../../verify/cpu.ts';
import { found, newCanary } from '../secrecy/canary.ts';
import { filePlaces, processPlaces } from '../secrecy/places.ts';
import { type Backend, chatAnswer, startBackend } from '../support/backend.ts';
import { writeCertificate } from '../support/certificate.ts';
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts';
import { eventually, type Folder, temporaryFolder } from '../support/harness.ts';
import { WEIGHTS } from '../support/launch-file.ts';
import { startCommand, startProcess } from '../support/process.ts';
import { launchWith, newOperator, sealBody, startGuest, statementOf } from '../support/secrets.ts';

const KEY = newCanary('apikey');
const BACKEND_KEY = newCanary('backendkey');
/** As docs/operate.md says: makes the operator's key, and prints what the launch file names. */
const MAKE_KEY = `openssl genpkey -algorithm ed25519 -out operator.pem
openssl pkey -in operator.pem -pubout -outform DER | sha256sum | cut -c1-64`;
/** What the operator has; and what the guest may write into. */
let desk: Folder;
let room: Folder;
let backend: Backend;
let guest: Awaited<ReturnType<typeof startGuest>>;
let gateway: GatewayProcess;

const file = (name: string, text: string): string => {
  const path = join(desk.path, name);
  writeFileSync(path, text);
  return path;
};

beforeAll(async () => {
  desk = temporaryFolder();
  room = temporaryFolder();
  backend = await startBackend();
  const { stdout } = spawnSync('sh', ['-c', MAKE_KEY], { cwd: desk.path, encoding: 'utf8' });
  guest = await startGuest(room, launchWith(stdout.trim()));
  file('root.pem', guest.root);
  file('keys', `${KEY.text}\n`);
  file('backend', `${BACKEND_KEY.text}\n`);
});
afterAll(async () => {
  await guest.close();
  await backend.close();
  desk.remove();
  room.remove();
});
beforeEach(async () => {
  backend.script = chatAnswer('Hello.');
  gateway = await start();
});
afterEach(() => gateway.stop());

const start = (env: Record<string, string> = {}) =>
  startGatewayProcess({
    BACKEND_URL: backend.url,
    SIDECAR_SOCKET: guest.socket,
    SECRETS: 'sealed',
    AUDIT_LOG: join(room.path, 'audit.jsonl'),
    ...env,
  });

const COMMON = () => [
  '--operator-key',
  join(desk.path, 'operator.pem'),
  '--allow-simulated',
  join(desk.path, 'root.pem'),
];
const TEST = () => [...COMMON(), '--offline', '--min-level', 'none'];
const SECRETS = () => [`api-keys=${join(desk.path, 'keys')}`, `backend-api-key=${join(desk.path, 'backend')}`];

async function send(...args: string[]): Promise<{ readonly code: number | null; readonly output: string }> {
  const child = startProcess('bin/countersign.js', ['secrets', ...args]);
  return { code: (await child.exited).code, output: child.output() };
}

const sendTo = (url: string, ...more: string[]) => send('send', url, ...TEST(), ...more, ...SECRETS());

function chat(url: string, key: string | null): Promise<number> {
  const headers = { 'content-type': 'application/json', ...(key === null ? {} : { authorization: `Bearer ${key}` }) };
  const body = '{"model":"m","messages":[{"role":"user","content":"Hi"}]}';
  return fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body }).then(({ status }) => status);
}

describe('countersign secrets send', { timeout: 60_000 }, () => {
  it('sends nothing where the release that is named is not to be had', async () => {
    const args = [...COMMON(), '--offline', '--release', 'owner/repo', ...SECRETS()];
    const { code, output } = await send('send', gateway.url, ...args);
    expect([code, output]).toEqual([3, expect.stringContaining('release_unavailable')]);
    expect((await sendTo(gateway.url, '--release', 'owner/repo')).output).toContain('release_unavailable');
    expect(await chat(gateway.url, KEY.text)).toBe(503);
  });

  it('opens the doors of a gateway that waits, and nothing of it lies on a disk or in a log', async () => {
    expect(await chat(gateway.url, KEY.text)).toBe(503);
    const sent = await sendTo(gateway.url);
    expect([sent.code, sent.output.match(/^(?:verified|taken|serves) .*$/gm)]).toEqual([
      0,
      [
        'verified  a session of level none',
        'taken     the guest has its secrets',
        `serves    ${gateway.url} (/health: ok)`,
      ],
    ]);
    expect([
      await chat(gateway.url, KEY.text),
      await chat(gateway.url, 'sk-other'),
      await chat(gateway.url, null),
    ]).toEqual([200, 401, 401]);
    expect(backend.seen.at(-1)?.headers.authorization).toBe(`Bearer ${BACKEND_KEY.text}`);
    await eventually(() => existsSync(join(room.path, 'audit.jsonl')));

    const twice = await sendTo(gateway.url);
    expect(twice).toEqual({ code: 1, output: expect.stringContaining('waits for no secrets: its /health says ok') });
    const places = [
      { name: 'log', content: gateway.output() },
      { name: 'command', content: sent.output + twice.output },
      ...processPlaces('gateway', gateway.child.pid as number),
      ...filePlaces(room.path, 'room'),
    ];
    expect(places.map(({ name }) => name)).toContain('room/audit.jsonl');
    expect(
      places.filter(({ content }) => found(content, [KEY, BACKEND_KEY]).length > 0).map(({ name }) => name),
    ).toEqual([]);
    // The search finds what is there.
    expect(found(readFileSync(join(desk.path, 'keys')), [KEY])).toEqual(['apikey']);
  });

  it('brings a certificate, with which the gateway serves from then on', async () => {
    const { certFile, keyFile } = writeCertificate(desk.path);
    const { code, output } = await sendTo(gateway.url, `tls.crt=${certFile}`, `tls.key=${keyFile}`);
    expect([code, output]).toEqual([0, expect.stringMatching(/\nserves {4}https:\S+ \(\/health: ok\)\n$/)]);
    const url = gateway.url;
    expect(url).toMatch(/^https:/);
    const { exited } = startCommand('curl', [
      ...['-sf', '-m', '20', '--cacert', certFile],
      ...['-H', `authorization: Bearer ${KEY.text}`, `${url}/v1/models`],
    ]);
    expect((await exited).code).toBe(0);
    const check = startProcess('gateway/healthcheck.ts', [], {
      BACKEND_URL: backend.url,
      SECRETS: 'sealed',
      PORT: new URL(url).port,
    });
    expect([(await check.exited).code, check.output()]).toEqual([0, '/health answers 200\n']);
  });

  it('sends nothing to a guest that is not on the list', async () => {
    const listOf = (name: string, measurement: string, launch: string) => {
      const cpu = [{ type: 'SEV_SNP', measurement: [measurement], launch_in: 'host_data' }];
      return file(name, JSON.stringify({ version: 1, cpu, launch: [launch] }));
    };
    await statementOf(gateway.url);
    const session = await (await fetch(`${gateway.url}/v1/attestation/session`)).text();
    const { claims } = await appraiseSession(session, { simulatedRoot: guest.root });
    const launch = JSON.parse(JSON.parse(session).statement).launch;
    const reference = listOf('other.json', 'ab'.repeat(48), launch);
    const refused = await sendTo(gateway.url, '--reference', reference);
    expect(refused).toEqual({ code: 1, output: expect.stringContaining('countersign: measurement_mismatch: ') });
    const level = await send('send', gateway.url, ...COMMON(), '--offline', '--reference', reference, ...SECRETS());
    expect(level.code).toBe(1);
    const few = await sendTo(gateway.url, '--min-level', 'gpu');
    expect(few).toEqual({ code: 1, output: expect.stringContaining('countersign: level_too_low: ') });
    const listed = ['--reference', listOf('listed.json', claims.cpu?.measurement ?? '', launch)];
    const weights = await sendTo(gateway.url, ...listed, '--weights', 'ab'.repeat(32));
    expect(weights).toEqual({ code: 1, output: expect.stringContaining('countersign: weights_mismatch: ') });
    const posts = gateway.lines().filter(({ method, route }) => method === 'POST' && route === SECRETS_PATH);
    expect(posts).toEqual([]);
    expect(await sendTo(gateway.url, ...listed, '--weights', WEIGHTS.verity_root)).toMatchObject({ code: 0 });
  });

  it('is refused by another operator’s guest, and the right operator still gets in', async () => {
    const other = file('other.pem', newOperator().pem);
    const refused = await send('send', gateway.url, ...TEST(), '--operator-key', other, ...SECRETS());
    expect(refused).toEqual({
      code: 1,
      output: expect.stringContaining('countersign: secrets_refused: Another operator'),
    });
    expect(await sendTo(gateway.url)).toMatchObject({ code: 0 });
  });

  it('signs for the new session where the guest restarts in between', async () => {
    const { port } = new URL(gateway.url);
    let restarted: Promise<void> | null = null;
    // What stands on the way restarts the guest at the second post, which has the secrets.
    let posts = 0;
    const between = await proxyTo(Number(port), async (method) => {
      if (method !== 'POST' || ++posts !== 2) return;
      restarted ??= (async () => {
        await gateway.kill('SIGKILL');
        gateway = await start({ PORT: port });
        await statementOf(gateway.url);
      })();
      await restarted;
    });
    try {
      expect(await sendTo(between.url)).toMatchObject({ code: 0 });
      expect(posts).toBeGreaterThan(2);
      expect(await chat(gateway.url, KEY.text)).toBe(200);
    } finally {
      await between.close();
    }
  });

  it('says that the guest left, and sends again when it is back', async () => {
    const { port } = new URL(gateway.url);
    let posts = 0;
    const between = await proxyTo(Number(port), async (method) => {
      if (method === 'POST' && ++posts === 2) await gateway.kill('SIGKILL');
    });
    const left = await sendTo(between.url);
    await between.close();
    expect(left).toEqual({ code: 1, output: expect.stringMatching(/left in the middle|edge_refused/) });
    expect(await sendTo(`http://127.0.0.1:${port}`)).toMatchObject({
      code: 2,
      output: expect.stringContaining('cannot be reached'),
    });
    gateway = await start({ PORT: port });
    expect(await sendTo(gateway.url)).toMatchObject({ code: 0 });
  });
});

it('reads no /health of megabytes', { timeout: 40_000 }, async () => {
  const server = createServer((_, outgoing) => outgoing.end(JSON.stringify({ status: 'waiting', x: 'x'.repeat(1e6) })));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const sent = await sendTo(`http://127.0.0.1:${port}`);
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  expect(sent).toEqual({ code: 2, output: expect.stringContaining('cannot be reached') });
  expect(await sendTo(gateway.url)).toMatchObject({ code: 0 });
});

/** A proxy that calls `before` ahead of each request. */
async function proxyTo(port: number, before: (method: string) => Promise<void>) {
  const server: Server = createServer((incoming, outgoing) => {
    void before(incoming.method ?? '').then(() => {
      const { method = 'GET', url = '/', headers } = incoming;
      const onward = httpRequest({ host: '127.0.0.1', port, path: url, method, headers, agent: false }, (response) => {
        outgoing.writeHead(response.statusCode ?? 502, response.headers);
        response.pipe(outgoing);
      });
      onward.on('error', () => outgoing.destroy());
      incoming.pipe(onward);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}

describe('a gateway that waits', { timeout: 40_000 }, () => {
  it('goes on at SIGHUP, which has nothing to read again, and ends at SIGTERM', async () => {
    gateway.child.kill('SIGHUP');
    const health = async () => (await fetch(`${gateway.url}/health`)).json();
    expect(await health()).toMatchObject({ status: 'waiting' });
    expect((await gateway.kill('SIGTERM')).code).toBe(0);
    gateway = await start();
    expect(await health()).toMatchObject({ status: 'waiting' });
  });
});

describe('a post of 100 MB', { timeout: 40_000 }, () => {
  it('is refused, takes no memory, and the right one is taken after it', async () => {
    await statementOf(gateway.url);
    const rss = () => Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${gateway.child.pid}/status`, 'utf8'))?.[1]);
    const before = rss();
    const statement = await statementOf(gateway.url);
    const { chunks } = await sealBody(statement, JSON.stringify('x'.repeat(2 * MAX_SECRETS_BYTES)));
    const rest = Buffer.alloc(1024 * 1024);
    // Without its length, so that it is read until too much of it was opened.
    const outcome = await new Promise<number | string>((resolve) => {
      const outgoing = httpRequest(
        `${gateway.url}${SECRETS_PATH}`,
        { method: 'POST', headers: { 'content-type': 'message/ohttp-chunked-req', 'transfer-encoding': 'chunked' } },
        (response) => response.resume().on('end', () => resolve(response.statusCode ?? 0)),
      );
      outgoing.on('error', (error: NodeJS.ErrnoException) => resolve(String(error.code)));
      const parts = [...chunks.slice(0, -1), ...Array.from({ length: 98 }, () => rest)];
      const write = () => {
        const part = parts.shift();
        if (part === undefined) outgoing.end();
        else outgoing.write(part, (error) => (error ? undefined : write()));
      };
      write();
    });
    // The error itself is sealed.
    expect([200, 'EPIPE', 'ECONNRESET']).toContain(outcome);
    expect(rss() - before).toBeLessThan(64 * 1024);
    const posts = () => gateway.lines().filter(({ method }) => method === 'POST');
    await eventually(() => posts().length > 0);
    expect(posts().map(({ route, status }) => [route, status])).toContainEqual([SECRETS_PATH, 413]);
    expect(await sendTo(gateway.url)).toMatchObject({ code: 0 });
    expect(MAX_SECRETS_BYTES).toBe(1024 * 1024);
  });
});

describe('its command line', () => {
  const usage = async (...args: string[]) => {
    const { code, output } = await send(...args);
    expect(code).toBe(2);
    return output;
  };

  it('names what is missing or wrong, and nothing of a secret', async () => {
    const url = 'http://127.0.0.1:1';
    const key = ['--operator-key', join(desk.path, 'operator.pem')];
    expect(await usage('send', url, ...SECRETS())).toContain('secrets needs --operator-key FILE');
    expect(await usage('send', url, ...key, ...SECRETS())).toContain('secrets needs --reference FILE');
    expect(await usage('show', url, ...TEST(), ...SECRETS())).toContain('write send URL NAME=FILE');
    expect(await usage('send', url, ...TEST())).toContain('write send URL NAME=FILE');
    expect(await usage('send', url, ...TEST(), 'ssh-key=x')).toContain(
      'ssh-key=x: not NAME=FILE with a name of api-keys',
    );
    expect(await usage('send', url, ...TEST(), ...SECRETS(), ...SECRETS())).toContain('api-keys is given twice');
    expect(await usage('send', 'guest', ...TEST(), ...SECRETS())).toContain('URL guest: not an http(s) URL');
    expect(await usage('send', url, ...TEST(), `api-keys=${file('empty', '')}`)).toContain('empty: empty');
    const large = file('large', 'x'.repeat(MAX_SECRETS_BYTES));
    expect(await usage('send', url, ...TEST(), `api-keys=${large}`)).toContain('more than 512 KiB together');
    const wrong = ['--operator-key', join(desk.path, 'keys'), '--min-level', 'none'];
    const output = await usage('send', url, ...wrong, ...SECRETS());
    expect(output).toContain(
      'not an Ed25519 private key in PEM\nnext: openssl genpkey -algorithm ed25519 -out operator.pem',
    );
    expect(found(output, [KEY])).toEqual([]);
    expect(await usage('send', url, ...TEST(), ...SECRETS())).toContain('cannot be reached, or is no gateway');
  });
});
