import { request } from 'node:http';
import { Worker } from 'node:worker_threads';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addressOf } from '../../gateway/limits/address.ts';
import { chatAnswer } from '../backend.ts';
import { ask, CHAT, chat } from '../client.ts';
import { eventually } from '../harness.ts';
import { expectError } from './expect-error.ts';
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

/** Valid JSON that takes a parser long. */
const hostile = (mib: number) => Buffer.from(`[${'{"a":[1]},'.repeat((mib * 1024 * 1024) / 10)}1]`);

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

  it('has so many places, and refuses past them before the body is read', async () => {
    const url = await stage.gateway({ MAX_VERIFY_CONCURRENT: '1' });
    const body = await attested(url);
    const slow = request(`${url}${PATH}`, { method: 'POST', headers: { 'content-length': body.length } });
    const answer = new Promise<number>((resolve, reject) =>
      slow.on('response', (incoming) => resolve(incoming.resume().statusCode ?? 0)).on('error', reject),
    );
    slow.write(body.slice(0, 10));
    await eventually(async () => (await verify(url, 'no JSON')).status === 503, 30_000);
    const refused = await verify(url, body);
    expectError(refused, 503, 'overloaded');
    expect(refused.headers['retry-after']).toBe('1');
    expect((await chat(url, CHAT)).status).toBe(200);
    slow.end(body.slice(10));
    expect(await answer).toBe(200);
    await eventually(async () => (await verify(url, body)).text === 'true', 60_000);
  });

  it('has no more of them for clients that leave', async () => {
    const url = await stage.gateway({ MAX_VERIFY_CONCURRENT: '1' });
    const body = await attested(url);
    const posted = vi.spyOn(Worker.prototype, 'postMessage');
    const leaver = request(`${url}${PATH}`, { method: 'POST' }).on('error', () => {});
    leaver.end(hostile(15));
    await eventually(() => posted.mock.calls.length === 1, 30_000);
    leaver.destroy();
    await new Promise((resolve) => setTimeout(resolve, 50));
    expectError(await verify(url, body), 503, 'overloaded');
    await eventually(async () => (await verify(url, body)).text === 'true', 60_000);
    posted.mockRestore();
  });

  it('works in a thread of its own: what takes it seconds takes the thread that chats next to nothing', async () => {
    const url = await stage.gateway({});
    expect((await verify(url, '{}')).status).toBe(400);
    const bodies = Array.from({ length: 2 }, () => hostile(15));
    const [all, own] = [process.cpuUsage(), process.threadCpuUsage()];
    for (const got of await Promise.all(bodies.map((body) => verify(url, body))))
      expect([got.status, got.json().error.code]).toEqual([400, 'not_an_attestation']);
    const total = sum(process.cpuUsage(all));
    const chatting = sum(process.threadCpuUsage(own));
    console.log(
      `verifying 2 hostile bodies: ${Math.round(total / 1e3)} ms of CPU, of them ${Math.round(chatting / 1e3)} ms in the thread that chats`,
    );
    // Sending and receiving the bodies, which this test does in the same thread, included.
    expect(chatting / total).toBeLessThan(0.3);
  });

  it('ends what takes too long, and goes on', async () => {
    const url = await stage.gateway({ VERIFY_TIMEOUT_MS: '3000' });
    const body = await attested(url);
    await eventually(async () => (await verify(url, body)).text === 'true', 60_000);
    const large = hostile(15);
    const long = await Promise.all(Array.from({ length: 12 }, () => verify(url, large)));
    expect(long.some(({ status }) => status === 503)).toBe(true);
    for (const got of long.filter(({ status }) => status === 503)) expectError(got, 503, 'overloaded');
    await eventually(async () => (await verify(url, body)).text === 'true', 60_000);
  });
});

const sum = ({ user, system }: { user: number; system: number }) => user + system;
