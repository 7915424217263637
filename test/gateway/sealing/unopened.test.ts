// Sealed requests that are not open yet: so many in total and from one address, in bounded memory; and a rate at which they are opened.
import { connect, type Socket } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { MAX_UNOPENED, MAX_UNOPENED_BYTES, MAX_UNOPENED_OF_ADDRESS } from '../../../gateway/base/memory-bounds.ts';
import { CHAT } from '../../support/client.ts';
import { eventually, type Service, startServiceWithProcessor } from '../../support/harness.ts';
import {
  currentKey,
  FROM_ANYWHERE,
  messageOf,
  open,
  post,
  sealedAsk,
  sealMessage,
  textOf,
} from '../../support/sealed-client.ts';

const BODY = JSON.stringify(CHAT);
let service: Service;
let url: string;

beforeAll(async () => {
  service = await startServiceWithProcessor(FROM_ANYWHERE);
  url = service.gateway.url;
});
afterAll(() => service.close());

interface HalfSent {
  readonly socket: Socket;
  /** What was answered so far. */
  answer(): string;
}
const clients: HalfSent[] = [];
afterEach(() => {
  for (const { socket } of clients.splice(0)) socket.destroy();
});

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Sends the beginning of so many sealed requests. */
async function sendHalf(count: number, address: string, bytes: () => Promise<Buffer> | Buffer): Promise<HalfSent[]> {
  const sent: HalfSent[] = [];
  for (let i = 0; i < count; i++) {
    let answer = '';
    const socket = connect(Number(new URL(url).port), '127.0.0.1')
      .on('error', () => {})
      .on('data', (data) => {
        answer += data;
      });
    const head = `POST /ohttp HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: ${address}\r\ncontent-type: message/ohttp-chunked-req\r\ncontent-length: 1000000\r\n\r\n`;
    socket.write(Buffer.concat([Buffer.from(head), await bytes()]));
    sent.push({ socket, answer: () => answer });
    // Only so many are opened at once.
    if (i % 16 === 0) await sleep(20);
  }
  clients.push(...sent);
  await sleep(100);
  return sent;
}

const EMPTY = Buffer.alloc(0);
const answered = (sent: readonly HalfSent[], status: number) =>
  sent.filter(({ answer }) => answer().startsWith(`HTTP/1.1 ${status} `));
/** The outer status of a whole sealed request from an address. */
async function statusFrom(address: string): Promise<number> {
  const { request, chunks } = await sealMessage(await currentKey(url), messageOf({ body: BODY }));
  const outer = await post(url, chunks, { 'x-forwarded-for': address });
  if (outer.status !== 200) return outer.status;
  return (await open(request, outer.body)).status;
}

describe('sealed requests that are not open yet', () => {
  it('are so many from one address; another one is served, and so is this one once they are gone', async () => {
    const sent = await sendHalf(MAX_UNOPENED_OF_ADDRESS + 10, '192.0.2.1', () => EMPTY);
    await eventually(() => answered(sent, 429).length === 10);
    for (const { answer } of answered(sent, 429)) {
      expect(answer()).toContain('"code":"rate_limit_exceeded"');
      expect(answer()).toMatch(/\r\nretry-after: 1\r\n/);
    }
    expect(await statusFrom('192.0.2.1')).toBe(429);
    expect(await statusFrom('192.0.2.2')).toBe(200);
    for (const { socket } of sent) socket.destroy();
    await eventually(async () => (await statusFrom('192.0.2.1')) === 200);
  });

  it('are so many in total: past that the latest of an address with most gives way, and a newcomer is served', async () => {
    const addresses = ['192.0.2.1', '192.0.2.2', '192.0.2.3', '192.0.2.4'];
    expect(addresses.length * MAX_UNOPENED_OF_ADDRESS).toBe(MAX_UNOPENED);
    const sent: HalfSent[] = [];
    for (const address of addresses) sent.push(...(await sendHalf(MAX_UNOPENED_OF_ADDRESS, address, () => EMPTY)));
    expect(sent.filter(({ answer }) => answer() !== '')).toEqual([]);
    for (let i = 1; i <= 3; i++) {
      const [newcomer] = await sendHalf(1, `198.51.100.${i}`, () => EMPTY);
      await eventually(() => answered(sent, 503).length === i);
      expect(newcomer?.answer()).toBe('');
    }
    expect(answered(sent, 503)[0]?.answer()).toContain('"code":"overloaded"');
    expect(await statusFrom('198.51.100.9')).toBe(200);
  });

  it('are no longer counted when they are open: the rest of their bodies may come late', async () => {
    const large = JSON.stringify({ ...CHAT, messages: [{ role: 'user', content: 'x'.repeat(60_000) }] });
    const key = await currentKey(url);
    const begun = async () =>
      Buffer.concat((await sealMessage(key, messageOf({ body: large }))).chunks).subarray(0, 40_000);
    await sendHalf(MAX_UNOPENED_OF_ADDRESS, '192.0.2.1', begun);
    await eventually(async () => (await statusFrom('192.0.2.1')) === 200);
  });

  it('hold what the plan counts for them, with a head of the largest size', async () => {
    setFlagsFromString('--expose-gc');
    const collectGarbage = runInNewContext('gc') as () => void;
    const used = async () => {
      for (let i = 0; i < 3; i++) {
        await sleep(50);
        collectGarbage();
      }
      const { heapUsed, external } = process.memoryUsage();
      return heapUsed + external;
    };
    const key = await currentKey(url);
    const long = { 'x-long': 'y'.repeat(31_000) };
    const begun = async () =>
      Buffer.concat((await sealMessage(key, messageOf({ body: BODY, headers: long }))).chunks).subarray(0, 32_000);
    await sendHalf(32, '192.0.2.9', begun);
    const before = await used();
    const sent: HalfSent[] = [];
    for (const address of ['192.0.2.1', '192.0.2.2', '192.0.2.3'])
      sent.push(...(await sendHalf(MAX_UNOPENED_OF_ADDRESS, address, begun)));
    expect(sent.filter(({ answer }) => answer() !== '')).toEqual([]);
    // The sockets of both sides are in this process.
    expect((await used()) - before).toBeLessThan((MAX_UNOPENED_BYTES * sent.length) / MAX_UNOPENED);
    expect(await statusFrom('192.0.2.5')).toBe(200);
  });

  it('have a rate by address, before anything is read; another address is served', async () => {
    const outers = await Promise.all(
      Array.from({ length: 600 }, () => post(url, [], { 'x-forwarded-for': '192.0.2.77' })),
    );
    const texts = await Promise.all(outers.map(textOf));
    const refused = texts.filter((text) => text.includes('200 requests a second for sealed requests from one address'));
    expect(refused.length).toBeGreaterThan(0);
    expect(new Set(outers.map(({ status }) => status))).toEqual(new Set([400, 429]));
    expect((await sealedAsk(url, { body: BODY })).status).toBe(200);
    await eventually(async () => (await statusFrom('192.0.2.77')) === 200);
  });
});
