// A backend that says more than it was asked: a second answer, some milliseconds behind the first.

import { writeFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chatBody } from '../../support/backend.ts';
import { chat } from '../../support/client.ts';
import { type RunningGateway, startGateway } from '../../support/harness.ts';
import { useService } from '../../support/service.ts';

const service = useService();
let gateway: RunningGateway;
let server: Server;
let behind_ms = 0;

const wire = (content: string) => {
  const body = chatBody(content);
  return `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
};
/** To the first request on a connection the answer comes at once, and more behind it; to those after it late, so that there is time for more. */
const LATE_MS = 100;

beforeAll(async () => {
  server = createServer((socket) => {
    let asked = 0;
    socket.on('error', () => {});
    socket.on('data', (bytes) => {
      const who = /"model":"([a-z-]+)"/.exec(bytes.toString())?.[1];
      if (asked++ > 0) return void setTimeout(() => socket.writable && socket.write(wire(`to ${who}`)), LATE_MS);
      socket.write(wire(`to ${who}`));
      setTimeout(() => socket.writable && socket.write(wire(`behind ${who}`)), behind_ms);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const keys = join(service.folder.path, 'keys');
  writeFileSync(keys, 'key-one\nkey-two\n');
  gateway = await startGateway({
    BACKEND_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    SIDECAR_SOCKET: service.sidecar.socket,
    API_KEYS_FILE: keys,
  });
});
afterAll(async () => {
  await gateway.close();
  await new Promise((resolve) => server.close(resolve));
});

const ask = (key: string, tee: boolean) =>
  chat(
    gateway.url,
    { model: tee ? 'proven' : key, messages: [{ role: 'user', content: 'Hi' }], ...(tee ? { tee } : {}) },
    { authorization: `Bearer ${key}` },
  );

/** The second of two requests, again and again, with a pause between them. */
async function seconds(
  first: string,
  second: string,
  tee: boolean,
  pauses: readonly [behind: number, pause: number][],
) {
  const all: string[] = [];
  for (const [behind, pause_ms] of pauses)
    for (let i = 0; i < 5; i++) {
      behind_ms = behind;
      await ask(first, false);
      await sleep(pause_ms);
      all.push((await ask(second, tee)).text);
    }
  return all;
}

describe('what a backend says that nobody asked for', () => {
  // 60 ms behind an answer its connection has rested: what keeps it from another key is whose it is.
  const PAUSES: [number, number][] = [
    [5, 0],
    [10, 0],
    [20, 0],
    [60, 0],
    [60, 40],
  ];

  it("is never another key's answer", async () => {
    const answers = await seconds('key-one', 'key-two', false, PAUSES);
    expect(answers.filter((text) => text.includes('key-one'))).toEqual([]);
    expect(answers.filter((text) => text.includes('to key-two')).length).toBeGreaterThan(answers.length / 2);
  });

  it('is never attested', async () => {
    const answers = await seconds('key-one', 'key-one', true, PAUSES);
    expect(answers.filter((text) => /behind|key-one/.test(text))).toEqual([]);
    expect(answers.filter((text) => text.includes('"attestation"')).length).toBeGreaterThan(answers.length / 2);
  });
});
