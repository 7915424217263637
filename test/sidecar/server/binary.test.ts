import { createHash } from 'node:crypto';
import { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { WebSocket } from 'ws';
import { attestedHeadSchema, attestedMembersSchema, splitBinaryFrame } from '../../../proto/attestation/frames.ts';
import { type Folder, type RunningSidecar, startSidecar, temporaryFolder } from '../../support/harness.ts';

let folder: Folder;
let sidecar: RunningSidecar;
let ws: WebSocket;
let frames: { data: Buffer; isBinary: boolean }[];
let arrived: (() => void) | null;

beforeEach(async () => {
  folder = temporaryFolder();
  sidecar = await startSidecar(folder);
  ws = new WebSocket(`ws+unix://${sidecar.socket}:/`, { perMessageDeflate: false, maxPayload: 1 << 28 });
  frames = [];
  arrived = null;
  ws.on('message', (data, isBinary) => {
    frames.push({ data: data as Buffer, isBinary });
    arrived?.();
  });
  await next(); // hello
});
afterEach(async () => {
  ws.terminate();
  await sidecar.close();
  folder.remove();
});

async function next() {
  if (frames.length === 0)
    await new Promise<void>((resolve) => {
      arrived = resolve;
    });
  return frames.shift() as { data: Buffer; isBinary: boolean };
}

const ask = (id: string, raw: string | Buffer) =>
  ws.send(Buffer.concat([Buffer.from(`{"type":"attest","id":"${id}"}\n`), Buffer.from(raw as string)]));
const rawOf = (bytes: number) => `{"request":{},"response":{"é":"${'x'.repeat(bytes)}"},"timestamp":1700000000}`;

describe('raw in a binary frame', () => {
  // The larger ones are looked at on a thread of their own.
  it.each([10, 100_000, 200_000, 4_000_000])('of %i bytes is answered in binary with its own hash', async (bytes) => {
    ask('one', rawOf(bytes));
    const { data, isBinary } = await next();
    expect(isBinary).toBe(true);
    const { head, payload: carried } = splitBinaryFrame(data);
    expect(attestedHeadSchema.parse(JSON.parse(head))).toMatchObject({
      type: 'attested',
      id: 'one',
      nonce: createHash('sha256').update(rawOf(bytes)).digest('hex'),
    });
    const members = attestedMembersSchema.parse(JSON.parse(new TextDecoder().decode(carried)));
    expect(members.token).toContain('JWT');
    expect(members.evidence).toHaveLength(1);
  });

  it('is answered together with what is answered in the same turn, each under its own id', async () => {
    const written = vi.spyOn(Socket.prototype, '_writev' as 'write');
    const ids = Array.from({ length: 10 }, (_, n) => `id${n}`);
    for (const id of ids) ask(id, rawOf(10));
    const answered: unknown[] = [];
    while (answered.length < ids.length) answered.push(JSON.parse(splitBinaryFrame((await next()).data).head).id);
    // A WebSocket frame is a head and its payload.
    const pieces = written.mock.calls.map(([chunks]) => (chunks as unknown as unknown[]).length);
    written.mockRestore();
    expect(answered).toEqual(ids);
    expect(Math.max(...pieces)).toBe(2 * ids.length);
  });

  it('may come in fragments', async () => {
    ws.send(Buffer.from('{"type":"attest","id":"f"}\n'), { fin: false });
    ws.send(Buffer.from(rawOf(5)), { fin: true });
    expect(splitBinaryFrame((await next()).data).head).toContain('"id":"f"');
  });

  it.each([
    ['no JSON', 'hello'],
    ['not the three members', '{"request":{},"timestamp":1}'],
    ['not UTF-8', Buffer.from([0x7b, 0xff, 0x7d])],
    ['large and not JSON', 'x'.repeat(300_000)],
    ['large and not UTF-8', Buffer.alloc(300_000, 0xff)],
  ])('that is %s is refused by its id, and the next one is answered', async (_, raw) => {
    ask('bad', raw);
    const { data, isBinary } = await next();
    expect(isBinary).toBe(false);
    expect(JSON.parse(String(data))).toMatchObject({ type: 'failed', id: 'bad', code: 'invalid_raw' });
    ask('good', rawOf(200_000));
    expect(splitBinaryFrame((await next()).data).head).toContain('"id":"good"');
  });

  it.each([
    ['without a head', 'no line feed'],
    ['with a head that is no JSON', 'head\nraw'],
    ['with a head of another kind', '{"type":"cancel","id":"a"}\nraw'],
    ['with a nonce in its head', `{"type":"attest","id":"a","nonce":"${'ab'.repeat(32)}"}\n${rawOf(1)}`],
  ])('%s is no frame of the protocol', async (_, text) => {
    ws.send(Buffer.from(text));
    expect(JSON.parse(String((await next()).data))).toMatchObject({ type: 'failed', id: null, code: 'invalid_frame' });
  });
});
