import { X509Certificate } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { type ConnectionOptions, connect } from 'node:tls';
import OpenAI from 'openai';
import { Agent, fetch } from 'undici';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { loadConfig } from '../../../gateway/config.ts';
import { readCredentials, watchCredentials } from '../../../gateway/http/server.ts';
import { chatAnswer, chatStream } from '../../support/backend.ts';
import { writeCertificate } from '../../support/certificate.ts';
import { CHAT } from '../../support/client.ts';
import { type GatewayProcess, startGatewayProcess } from '../../support/gateway-process.ts';
import { eventually, temporaryFolder } from '../../support/harness.ts';
import { useService } from '../../support/service.ts';

const service = useService();
const folder = temporaryFolder();
let gateway: GatewayProcess | null = null;

afterEach(async () => {
  if (gateway !== null && gateway.child.exitCode === null) await gateway.kill('SIGKILL');
  gateway = null;
});
afterAll(() => folder.remove());

async function start() {
  const certificate = writeCertificate(folder.path);
  gateway = await startGatewayProcess({
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
    await expect(globalThis.fetch(gateway.url.replace('https', 'http'))).rejects.toThrow();
    await expect(handshake(gateway.url, {}), 'a client that does not know the certificate').rejects.toThrow();
  });

  it('speaks TLS 1.3, and 1.2 with forward-secret authenticated ciphers; nothing older or weaker', async () => {
    const { pem: ca, gateway } = await start();
    expect((await handshake(gateway.url, { ca })).protocol).toBe('TLSv1.3');
    const old = await handshake(gateway.url, { ca, maxVersion: 'TLSv1.2' });
    expect(old.cipher).toMatch(/^ECDHE-ECDSA-(AES\d+-GCM|CHACHA20)/);
    for (const weak of [
      { maxVersion: 'TLSv1.1', minVersion: 'TLSv1', ciphers: 'DEFAULT@SECLEVEL=0' },
      { maxVersion: 'TLSv1.2', ciphers: 'ECDHE-ECDSA-AES128-SHA' },
      { maxVersion: 'TLSv1.2', ciphers: 'AES128-GCM-SHA256' },
    ] as const)
      await expect(handshake(gateway.url, { ca, ...weak })).rejects.toThrow();
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
