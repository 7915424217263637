// Strangers that send most of the head of a sealed request each, from many addresses, and begin again when they are let go.
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { currentKey, messageOf, sealMessage } from '../../support/sealed-client.ts';
import { attack, dialedMany } from './attack.ts';

interface Options {
  readonly connections: number;
  /** Of the head of the inner request. */
  readonly bytes: number;
}

const AT_ONCE = 50;
const REST_MS = 50;
const HEAD =
  'POST /ohttp HTTP/1.1\r\nhost: h\r\ncontent-type: message/ohttp-chunked-req\r\ncontent-length: 1000000\r\n\r\n';

attack<Options>(async (given) => {
  const { port, url, options } = given;
  const key = await currentKey(url);
  const open = new Set<Socket>();
  const answers: Record<string, number> = {};
  let sent = 0;
  for (let from = 1; given.goesOn(); from = (from % 200) + 1) {
    const missing = Math.min(AT_ONCE, options.connections - open.size);
    for (const socket of missing > 0 ? await dialedMany(port, missing, from) : []) {
      const { chunks } = await sealMessage(key, messageOf({ headers: { 'x-long': 'x'.repeat(options.bytes) } }));
      const whole = Buffer.concat(chunks);
      open.add(socket);
      sent++;
      socket.once('data', (bytes) => {
        const status = String(bytes).slice(9, 12);
        answers[status] = (answers[status] ?? 0) + 1;
      });
      socket.once('end', () => socket.destroy());
      socket.once('close', () => open.delete(socket));
      socket.write(Buffer.concat([Buffer.from(HEAD), whole.subarray(0, Math.floor(whole.length * 0.9))]));
    }
    await sleep(REST_MS);
  }
  for (const socket of open) socket.destroy();
  return { sent, answers };
});
