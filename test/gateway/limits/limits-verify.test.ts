import { request } from 'node:http';
import { connect } from 'node:net';
import { Worker } from 'node:worker_threads';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addressOf } from '../../../gateway/limits/rates.ts';
import { chatAnswer } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually } from '../../support/harness.ts';
import { expectError } from '../expect-error.ts';
import { type Stage, startStage } from './limits-stage.ts';

// Hostile bodies take a verifier seconds, and more on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

let stage: Stage;

beforeAll(async () => {
  stage = await startStage();
  stage.service.backend.script = chatAnswer('Hello.');
});
afterAll(() => stage.close());

const PATH = '/~sev_gpu@1.0/verify';
const verify = (url: string, body: string | Buffer, headers = {}) => ask(`${url}${PATH}`, { body, headers });
const attested = async (url: string) => (await chat(url, { ...CHAT, tee: true })).text;

/** Valid JSON that would take a parser long, and a GiB. */
const hostile = (mib: number) => Buffer.from(`[${'{"a":[1]},'.repeat((mib * 1024 * 1024) / 10)}1]`);
/** As much of it as is parsed, each object of another shape, which takes longest. */
const costly = Buffer.from(`[${Array.from({ length: 320_000 }, (_, i) => `{"k${i}":1}`).join()}]`);

describe('the verify endpoint, open to everybody,', () => {
  it('takes bodies of a size, and only so many a second from one address', async () => {
    const url = await stage.gateway({
      MAX_VERIFY_BYTES: '65536',
      MAX_VERIFY_PER_SECOND: '2',
      CLIENT_ADDRESS_HEADER: 'X-Forwarded-For',
    });
    const from = (address: string) => ({ 'x-forwarded-for': `forged, ${address}` });
    expectError(await verify(url, 'x'.repeat(70_000), from('10.0.0.9')), 413, 'body_too_large');
    const body = await attested(url);
    const got = await Promise.all([1, 2, 3].map(() => verify(url, body, from('10.0.0.1'))));
    expect(got.filter(({ text }) => text === 'true')).toHaveLength(2);
    for (const refused of got.filter(({ text }) => text !== 'true')) {
      expectError(refused, 429, 'rate_limit_exceeded');
      expect([refused.headers['retry-after'], refused.headers['x-ratelimit-limit-requests']]).toEqual(['1', '2']);
    }
    expect((await verify(url, body, from('10.0.0.2'))).text).toBe('true');
  });

  it('knows an address by the connection, or by the header of a trusted proxy, an IPv6 network as one', () => {
    const socket = (remoteAddress: string) => ({ remoteAddress }) as never;
    const address = (given: string | undefined, header: string | null = 'x-forwarded-for') =>
      addressOf(given === undefined ? {} : { 'x-forwarded-for': given }, socket('::ffff:192.0.2.1'), header);
    expect(address('10.0.0.1', null)).toBe('192.0.2.1');
    expect(address(undefined)).toBe('192.0.2.1');
    expect(address('6.6.6.6, 10.0.0.1')).toBe('10.0.0.1');
    expect(address('2001:db8:1:2:3:4:5:6')).toBe('2001:db8:1:2::/64');
    expect(address('2001:DB8::1')).toBe('2001:db8:0:0::/64');
    expect(address('::1')).toBe('0:0:0:0::/64');
    // With a port, as some proxies write it, it is the same.
    expect(address('10.0.0.1:40001')).toBe('10.0.0.1');
    for (const given of ['[2001:db8:1:2::7]', '[2001:db8:1:2::8]:40001'])
      expect(address(given)).toBe('2001:db8:1:2::/64');
  });

  it('reads no more of a large body that it refuses, and its client has the answer', async () => {
    const url = await stage.gateway({ MAX_VERIFY_BYTES: '65536' });
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    const closed = new Promise((resolve) => socket.on('close', resolve).on('error', () => {}));
    let response = '';
    socket.on('data', (chunk) => {
      response += chunk;
    });
    socket.write(`POST ${PATH} HTTP/1.1\r\nhost: h\r\ncontent-length: 500000000\r\n\r\n`);
    const megabyte = Buffer.alloc(1024 * 1024);
    let sent = 0;
    const send = () => {
      while (socket.writable && sent++ < 500) if (!socket.write(megabyte)) return;
    };
    socket.on('drain', send);
    await eventually(() => response !== '');
    send();
    await closed;
    expect(response).toMatch(/^HTTP\/1\.1 413 .*"code":"body_too_large"/s);
    // What the system keeps on both sides.
    expect(sent).toBeLessThan(30);
  });

  it('has room for a few large bodies, and keeps it for those that come', async () => {
    const url = await stage.gateway({ MAX_VERIFY_BYTES: '1000000', CLIENT_ADDRESS_HEADER: 'x-forwarded-for' });
    const large = ' '.repeat(999_000);
    const from = (n: number) => ({ 'x-forwarded-for': `10.0.0.${n}` });
    const slow = [1, 2, 3, 4].map((n) => announced(url, large, from(n)));
    for (const { outgoing } of slow) outgoing.write(' ');
    await eventually(async () => (await verify(url, large, from(5))).status === 503);
    // Nothing comes, and it has not given way: it is not read on, and not in the way either.
    await eventually(async () => (await verify(url, large, from(5))).status === 400);
    for (const { outgoing, response } of slow) {
      outgoing.end(large.slice(1));
      expect(await response).toBe(400);
    }
    const one = [1, 1, 1, 1].map((n) => announced(url, large, from(n)));
    for (const { outgoing, response } of one) {
      outgoing.write(' ');
      response.catch(() => {});
    }
    await eventually(async () => (await verify(url, large, from(1))).status === 503);
    // Of one address all four are not held against another.
    expect((await verify(url, large, from(5))).status).toBe(400);
    for (const { outgoing } of one) outgoing.destroy();
  });

  it('has so many places, which a body takes when it is here', async () => {
    const url = await stage.gateway({ MAX_VERIFY_CONCURRENT: '1' });
    const body = await attested(url);
    const slow = Array.from({ length: 40 }, () => announced(url, body));
    for (const { outgoing } of slow) outgoing.write(body.slice(0, 10));
    for (let i = 0; i < 3; i++) expect((await verify(url, body)).text).toBe('true');
    const got = await Promise.all([verify(url, costly), verify(url, costly), verify(url, costly)]);
    // One is verified, one waits.
    expect(got.map(({ status }) => status).sort()).toEqual([400, 400, 503]);
    for (const refused of got.filter(({ status }) => status === 503)) {
      expectError(refused, 503, 'overloaded');
      expect(refused.headers['retry-after']).toBe('1');
    }
    for (const { outgoing, response } of slow) {
      outgoing.end(body.slice(10));
      expect(await response).toBe(200);
    }
  });

  it('has no more of them for clients that leave', async () => {
    const url = await stage.gateway({ MAX_VERIFY_CONCURRENT: '1' });
    const posted = vi.spyOn(Worker.prototype, 'postMessage');
    const leaver = request(`${url}${PATH}`, { method: 'POST' }).on('error', () => {});
    leaver.end(costly);
    await eventually(() => posted.mock.calls.length === 1, 30_000);
    leaver.destroy();
    await new Promise((resolve) => setTimeout(resolve, 50));
    const got = await Promise.all([verify(url, costly), verify(url, costly)]);
    expect(got.map(({ status }) => status).sort()).toEqual([400, 503]);
    posted.mockRestore();
  });

  it('refuses what would take a GiB to parse before it is parsed, and goes on where a little less is', async () => {
    const url = await stage.gateway({});
    const used = process.cpuUsage();
    for (const body of [hostile(15), Buffer.from('['.repeat(15_000_000)), Buffer.from('"'.repeat(15_000_000))]) {
      const { status, text } = await verify(url, body);
      expect([status, JSON.parse(text).error.code]).toEqual([413, 'body_too_large']);
    }
    console.log(`three bodies of 15 MB refused: ${Math.round(sum(process.cpuUsage(used)) / 1e3)} ms of CPU`);
    expectError(await verify(url, costly), 400, 'not_an_attestation');
    // What raw holds is counted too, though for JSON it is one string.
    const attestation = { raw: '['.repeat(1_500_000), nonce: 'a'.repeat(64), token: 't' };
    expectError(await verify(url, JSON.stringify(attestation)), 413, 'body_too_large');
  });

  it('verifies small bodies while large ones wait, which are verified one after the other', async () => {
    const url = await stage.gateway({});
    const body = await attested(url);
    expect((await verify(url, body)).text).toBe('true');
    let done = false;
    const large = Promise.all(Array.from({ length: 3 }, () => verify(url, costly))).then((all) => {
      done = true;
      return all.map(({ status }) => status);
    });
    let small = 0;
    while (!done) {
      expect((await verify(url, body)).text).toBe('true');
      small++;
    }
    expect(small).toBeGreaterThan(3);
    expect(await large).toEqual([400, 400, 400]);
  });

  it('works in a thread of its own: what takes it seconds takes the thread that chats next to nothing', async () => {
    const url = await stage.gateway({});
    expect((await verify(url, '{}')).status).toBe(400);
    const [all, own] = [process.cpuUsage(), process.threadCpuUsage()];
    for (const got of await Promise.all([costly, costly].map((body) => verify(url, body))))
      expect([got.status, got.json().error.code]).toEqual([400, 'not_an_attestation']);
    const total = sum(process.cpuUsage(all));
    const chatting = sum(process.threadCpuUsage(own));
    console.log(
      `verifying 2 costly bodies: ${Math.round(total / 1e3)} ms of CPU, of them ${Math.round(chatting / 1e3)} ms in the thread that chats`,
    );
    // Sending and receiving the bodies, which this test does in the same thread, included.
    expect(chatting / total).toBeLessThan(0.3);
  });

  it.each([
    ['small', '{"hangs":1}'],
    ['large', `{"hangs":"${'1'.repeat(300_000)}"}`],
  ])('ends what takes too long, and it alone: a %s body', async (_name, hanging) => {
    const url = await stage.gateway({ VERIFY_TIMEOUT_MS: '3000' });
    const body = await attested(url);
    await eventually(async () => (await verify(url, body)).text === 'true', 60_000);
    // The thread never says anything of this one.
    const post = Worker.prototype.postMessage;
    const posted = vi.spyOn(Worker.prototype, 'postMessage').mockImplementation(function (this: Worker, message) {
      if (!Buffer.from(message.job.body).includes('hangs')) post.call(this, message);
    });
    let done = false;
    const hung = verify(url, hanging).finally(() => {
      done = true;
    });
    let right = 0;
    while (!done) {
      expect((await verify(url, body)).text).toBe('true');
      right++;
    }
    expectError(await hung, 503, 'overloaded');
    expect(right).toBeGreaterThan(3);
    posted.mockRestore();
    expectError(await verify(url, hanging), 400, 'not_an_attestation');
  });
});

/** A request whose head is sent. */
function announced(url: string, body: string, headers = {}) {
  const length = { 'content-length': body.length };
  const outgoing = request(`${url}${PATH}`, { method: 'POST', headers: { ...length, ...headers } });
  const response = new Promise<number>((resolve, reject) =>
    outgoing.on('response', (incoming) => resolve(incoming.resume().statusCode ?? 0)).on('error', reject),
  );
  outgoing.flushHeaders();
  return { outgoing, response };
}

const sum = ({ user, system }: { user: number; system: number }) => user + system;
