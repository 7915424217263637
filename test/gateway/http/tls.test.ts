import { X509Certificate } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { type ConnectionOptions, connect } from 'node:tls';
import OpenAI from 'openai';
import { Agent, fetch } from 'undici';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadConfig } from '../../../gateway/base/config.ts';
import { readCredentials, watchCredentials } from '../../../gateway/http/tls.ts';
import { chatAnswer, chatStream } from '../../support/backend.ts';
import { writeCertificate } from '../../support/certificate.ts';
import { CHAT } from '../../support/client.ts';
import { type GatewayProcess, startGatewayProcess } from '../../support/gateway-process.ts';
import {
  alert,
  CLOSE_NOTIFY,
  clientHello,
  record,
  type Stranger,
  speak,
  TLS_1_1,
  TLS_1_2,
  UNKNOWN_CA,
} from '../../support/handshakes.ts';
import { eventually, type GatewaySettings, temporaryFolder } from '../../support/harness.ts';
import { expectRefused, healthOn } from '../../support/refusals.ts';
import { useService } from '../../support/service.ts';

const service = useService();
const folder = temporaryFolder();
let gateway: GatewayProcess | null = null;

afterEach(async () => {
  await gateway?.stop();
  gateway = null;
});
afterAll(() => folder.remove());

async function start(env: GatewaySettings = {}) {
  const certificate = writeCertificate(folder.path);
  gateway = await startGatewayProcess({
    ...env,
    BACKEND_URL: service.backend.url,
    SIDECAR_SOCKET: service.sidecar.socket,
    TLS_CERT_FILE: certificate.certFile,
    TLS_KEY_FILE: certificate.keyFile,
  });
  return { ...certificate, gateway };
}

/** What a handshake agrees on. @throws when there is none. */
function handshake(url: string, options: ConnectionOptions) {
  const { hostname, port } = new URL(url);
  return new Promise<{ protocol: string | null; cipher: string; serial: string }>((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port), ...options }, () => {
      const serial = socket.getPeerX509Certificate()?.serialNumber ?? '';
      resolve({ protocol: socket.getProtocol(), cipher: socket.getCipher().name, serial });
      socket.destroy();
    });
    socket.on('error', reject);
  });
}

describe('TLS of the gateway itself', () => {
  it("serves the OpenAI client, whole and streamed, and curl's plain HTTP not at all", async () => {
    const { pem, gateway } = await start();
    const agent = new Agent({ connect: { ca: pem } });
    const client = new OpenAI({
      baseURL: `${gateway.url}/v1`,
      apiKey: 'any',
      maxRetries: 0,
      fetch: ((input: string, init: object) => fetch(input, { ...init, dispatcher: agent })) as never,
    });
    const body = { model: 'm', messages: [{ role: 'user' as const, content: 'x' }] };
    service.backend.script = chatAnswer('over TLS');
    expect((await client.chat.completions.create(body)).choices[0]?.message.content).toBe('over TLS');
    service.backend.script = chatStream(['over', ' TLS']);
    let text = '';
    for await (const chunk of await client.chat.completions.create({
      ...body,
      stream: true,
      tee: true,
    } as never as typeof body & { stream: true }))
      text += chunk.choices[0]?.delta.content ?? '';
    expect(text).toBe('over TLS');
    await agent.close();
    await expectRefused(
      () => globalThis.fetch(gateway.url.replace('https', 'http')),
      /other side closed/,
      () => healthy(gateway.url, pem),
    );
    // The client itself refuses, where it does not know the certificate.
    await expectRefused(
      () => handshake(gateway.url, {}),
      /SELF_SIGNED_CERT/,
      () => healthy(gateway.url, pem),
    );
  });

  it('speaks TLS 1.3, and 1.2 with forward-secret authenticated ciphers; nothing older or weaker', async () => {
    const { pem: ca, gateway } = await start();
    expect((await handshake(gateway.url, { ca })).protocol).toBe('TLSv1.3');
    const old = await handshake(gateway.url, { ca, maxVersion: 'TLSv1.2' });
    expect(old.cipher).toMatch(/^ECDHE-ECDSA-(AES\d+-GCM|CHACHA20)/);
    for (const [weak, why] of [
      [{ maxVersion: 'TLSv1.1', minVersion: 'TLSv1', ciphers: 'DEFAULT@SECLEVEL=0' }, /ALERT_PROTOCOL_VERSION/],
      [{ maxVersion: 'TLSv1.2', ciphers: 'ECDHE-ECDSA-AES128-SHA' }, /ALERT_HANDSHAKE_FAILURE/],
      [{ maxVersion: 'TLSv1.2', ciphers: 'AES128-GCM-SHA256' }, /ALERT_HANDSHAKE_FAILURE/],
    ] as const)
      await expectRefused(
        () => handshake(gateway.url, { ca, ...weak }),
        why,
        () => healthy(gateway.url, ca),
      );
  });

  it('takes a renewed certificate at SIGHUP; a wrong pair leaves the old one in use', async () => {
    const { pem, gateway, keyFile } = await start();
    expect((await handshake(gateway.url, { ca: pem })).serial).toBe('01');
    const renewed = writeCertificate(folder.path, 2);
    gateway.child.kill('SIGHUP');
    await eventually(
      async () => (await handshake(gateway.url, { ca: renewed.pem }).catch(() => null))?.serial === '02',
    );
    writeFileSync(keyFile, 'no key');
    gateway.child.kill('SIGHUP');
    await eventually(() => gateway.lines().some((line) => line.msg === 'certificate not renewed'));
    expect((await handshake(gateway.url, { ca: renewed.pem })).serial).toBe('02');
  });

  it('sees that a file changed', async () => {
    const { certFile, keyFile, pem } = writeCertificate(folder.path, 3);
    expect(new X509Certificate(pem).serialNumber).toBe('03');
    let changed = 0;
    const end = watchCredentials({ tls_cert_file: certFile, tls_key_file: keyFile }, () => changed++, 20);
    await new Promise((resolve) => setTimeout(resolve, 60));
    writeCertificate(folder.path, 4);
    await eventually(() => changed > 0);
    end();
  });

  it('needs both files, and that they belong together: one line says what is wrong', () => {
    const { certFile, keyFile } = writeCertificate(folder.path, 5);
    const other = temporaryFolder();
    const { keyFile: otherKey } = writeCertificate(other.path, 6);
    const env = { BACKEND_URL: 'http://127.0.0.1:1/v1' };
    expect(() => loadConfig({ ...env, TLS_CERT_FILE: certFile })).toThrow(/^TLS_CERT_FILE and TLS_KEY_FILE are set/);
    expect(() => readCredentials({ tls_cert_file: `${certFile}.no`, tls_key_file: keyFile })).toThrow(
      /^TLS_CERT_FILE .*ENOENT/,
    );
    expect(() => readCredentials({ tls_cert_file: certFile, tls_key_file: otherKey })).toThrow(
      /^TLS_KEY_FILE is not the key/,
    );
    expect(() => readCredentials({ tls_cert_file: keyFile, tls_key_file: keyFile })).toThrow(
      /^TLS_CERT_FILE and TLS_KEY_FILE/,
    );
    other.remove();
  });
});

/** The gateway serves a new connection. */
async function healthy(url: string, ca: string): Promise<void> {
  const agent = new Agent({ connect: { ca } });
  expect((await fetch(`${url}/health`, { dispatcher: agent })).status).toBe(200);
  await agent.close();
}

const TLS_1_2_ONLY = { versions: [TLS_1_2] };
const HELLO = clientHello();
const GARBAGE = Buffer.from(Array.from({ length: 300 }, (_, i) => (i * 89 + 7) % 256));
const FATAL = 2;
const WARNING = 1;

describe('a handshake that fails', () => {
  /** The next test has a new one where a handshake has ended it, so that no failure is hidden behind another. */
  let attacked: Awaited<ReturnType<typeof start>> | null = null;
  beforeEach(async () => {
    const serves = attacked !== null && (await healthOn(attacked.gateway.url).catch(() => null)) !== null;
    if (!serves) attacked = await start({ limits: { headers_timeout_ms: 300 } });
    gateway = null;
  });
  afterAll(() => attacked?.gateway.stop());

  it.each<[string, Stranger]>([
    ['plain HTTP', { sends: Buffer.from('GET / HTTP/1.1\r\nhost: h\r\n\r\n'), ending: 'waits' }],
    ['ALPN with h2 only', { sends: clientHello({ alpn: ['h2'] }), ending: 'waits' }],
    ['TLS 1.1 only', { sends: clientHello({ versions: [TLS_1_1] }), ending: 'waits' }],
    ['no cipher in common', { sends: clientHello({ ciphers: [0x002f] }), ending: 'waits' }],
    [
      'a client that distrusts the certificate, TLS 1.2',
      { sends: clientHello(TLS_1_2_ONLY), replies: alert(FATAL, UNKNOWN_CA), ending: 'waits' },
    ],
    [
      'a client that distrusts the certificate, TLS 1.3',
      { sends: HELLO, replies: alert(FATAL, UNKNOWN_CA), ending: 'waits' },
    ],
    ['garbage', { sends: GARBAGE, ending: 'waits' }],
    ['garbage after the ServerHello', { sends: HELLO, replies: GARBAGE, ending: 'waits' }],
    ['silence until the timeout', { sends: Buffer.alloc(0), ending: 'waits' }],
    ['silence after half a ClientHello', { sends: HELLO.subarray(0, 80), ending: 'waits' }],
    ['silence after the ServerHello', { sends: HELLO, ending: 'waits' }],
    ['a reset in the middle of the ClientHello', { sends: HELLO.subarray(0, 80), ending: 'resets' }],
    ['a reset after the ServerHello', { sends: HELLO, replies: Buffer.alloc(0), ending: 'resets' }],
    ['a reset at once', { sends: Buffer.alloc(0), ending: 'resets' }],
    ['an end at once', { sends: Buffer.alloc(0), ending: 'ends' }],
    ['an end after half a ClientHello', { sends: HELLO.subarray(0, 80), ending: 'ends' }],
    ['an end after the ServerHello', { sends: HELLO, replies: Buffer.alloc(0), ending: 'ends' }],
    ['a record that is too long', { sends: record(22, Array(70_000).fill(0), 0xffff), ending: 'waits' }],
    ['an empty record', { sends: record(22, []), ending: 'ends' }],
    ['close_notify at once', { sends: alert(WARNING, CLOSE_NOTIFY), ending: 'ends' }],
    ['a fatal alert at once', { sends: alert(FATAL, 40), ending: 'waits' }],
  ])('ends its own connection only: %s', async (_name, stranger) => {
    const { pem, gateway } = attacked as NonNullable<typeof attacked>;
    await speak(gateway.url, stranger);
    await healthy(gateway.url, pem);
    expect(gateway.child.exitCode).toBeNull();
  });
});

describe('a request over TLS', () => {
  it('is answered with what an answer over HTTP says', async () => {
    const { pem, gateway } = await start();
    service.backend.script = chatAnswer('a');
    const agent = new Agent({ connect: { ca: pem } });
    const got = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      body: JSON.stringify({ ...CHAT, tee: true }),
      dispatcher: agent,
    });
    expect([got.status, got.headers.get('cache-control')]).toEqual([200, 'no-store']);
    expect(await got.json()).toHaveProperty('attestation.nonce');
    await agent.close();
  });
});
