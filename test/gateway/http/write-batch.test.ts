// Writes of one turn go out together once turns carry several, each socket's in its order; a lone one never waits.
import type { Socket } from 'node:net';
import { PassThrough } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { chunkBatch, WriteBatch } from '../../../gateway/http/outgoing.ts';
import { PlainResponse } from '../../../gateway/http/plain-path/response.ts';

const batch = new WriteBatch();

/** As much of a socket as is asked of one. */
const socket = () => new PassThrough() as unknown as Socket & PassThrough;

function send(to: Socket & PassThrough, text: string): string {
  batch.add(to);
  to.write(text);
  return String(to.read() ?? '');
}

/** Turns of so many writes each, as a busy gateway has them. */
async function turns(count: number, writes: number, write: () => unknown = () => send(socket(), '.')): Promise<void> {
  for (let i = 0; i < count; i++) {
    for (let j = 0; j < writes; j++) write();
    await turn();
  }
}

describe('writes of one turn', () => {
  it('wait for each other while turns carry several, and no longer when they carry one', async () => {
    expect(send(socket(), 'alone')).toBe('alone');
    await turns(200, 40);
    const [one, other] = [socket(), socket()];
    expect([send(one, 'a'), send(other, 'b'), send(one, 'c')]).toEqual(['', '', '']);
    await turn();
    expect([String(one.read()), String(other.read())]).toEqual(['ac', 'b']);
    await turns(200, 1);
    expect(send(socket(), 'alone')).toBe('alone');
  });

  it('of one kind do not wait because those of another do', async () => {
    await turns(200, 40);
    expect(send(socket(), 'a')).toBe('');
    const [other, one] = [new WriteBatch(), socket()];
    other.add(one);
    one.write('b');
    expect(String(one.read())).toBe('b');
    await turn();
  });

  it('go out at once where a socket ends, and none is lost where more wait than may', async () => {
    await turns(200, 40);
    const ended = socket();
    batch.add(ended);
    ended.end('last');
    expect(String(ended.read())).toBe('last');
    await turn();
    // Those that had to wait no longer have been sent by the 256th.
    const sent = Array.from({ length: 300 }, socket).map((one) => [one, send(one, 'x')] as const);
    expect(sent.filter(([, text]) => text === 'x')).toHaveLength(2);
    expect(sent.slice(0, 256).map(([one, text]) => text || String(one.read()))).toEqual(Array(256).fill('x'));
    expect(sent[299]?.[0].read()).toBeNull();
    await turn();
    expect(String(sent[299]?.[0].read())).toBe('x');
  });
});

describe('a stream of an answer', () => {
  it('begins at once in a turn in which later chunks wait for each other', async () => {
    await turns(200, 40, () => chunkBatch.add(socket()));
    const client = socket();
    const sent = () => String(client.read() ?? '');
    const response = new PlainResponse(client, 5_000, () => {});
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(Buffer.from('first'));
    expect(sent()).toMatch(/^HTTP\/1\.1 200 OK\r\n.*\r\n\r\n5\r\nfirst\r\n$/s);
    response.write(Buffer.from('second'));
    expect(sent()).toBe('');
    await turn();
    expect(sent()).toBe('6\r\nsecond\r\n');
    response.write(Buffer.from('third'));
    expect(sent()).toBe('');
    response.end();
    await turn();
    expect(sent()).toBe('5\r\nthird\r\n0\r\n\r\n');
  });
});
