import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addressOf } from '../../../gateway/limits/rates.ts';
import { chatAnswer } from '../../support/backend.ts';
import { CHAT, chat } from '../../support/client.ts';
import { eventually } from '../../support/harness.ts';
import { expectError } from '../expect-error.ts';
import { type Stage, startStage } from './limits-stage.ts';
import { announced, PATH, verify } from './verify-requests.ts';

// Large bodies take a verifier seconds on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

let stage: Stage;

beforeAll(async () => {
  stage = await startStage();
  stage.service.backend.script = chatAnswer('Hello.');
});
afterAll(() => stage.close());

const attested = async (url: string) => (await chat(url, { ...CHAT, tee: true })).text;

describe('the verify endpoint, open to everybody,', () => {
  it('takes bodies of a size, and only so many a second from one address', async () => {
    const url = await stage.gateway({
      CLIENT_ADDRESS_HEADER: 'X-Forwarded-For',
      limits: { max_verify_bytes: 65_536, max_verify_per_second: 2 },
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
    const url = await stage.gateway({ limits: { max_verify_bytes: 65_536 } });
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
    const url = await stage.gateway({
      CLIENT_ADDRESS_HEADER: 'x-forwarded-for',
      limits: { max_verify_bytes: 1_000_000 },
    });
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
});
