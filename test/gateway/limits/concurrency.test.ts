// Who has a place: one whose request is here. And no key has all of them, unless somebody said that it may.
import { connect, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { loadConfig } from '../../../gateway/base/config.ts';
import { Problem } from '../../../gateway/base/problem.ts';
import { ANYONE, type Caller, NO_LIMITS } from '../../../gateway/keys/keys.ts';
import { createConcurrency } from '../../../gateway/limits/concurrency.ts';
import { chatAnswer } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually } from '../../support/harness.ts';
import { expectError } from '../expect-error.ts';
import { bearer, holdResponses, type Stage, startStage } from './limits-stage.ts';

const MiB = 1024 * 1024;
const caller = (name: string, limits = {}): Caller => ({ owner: name, name, limits: { ...NO_LIMITS, ...limits } });
const refusal = (does: () => unknown) => {
  try {
    does();
  } catch (error) {
    if (error instanceof Problem) return error.code;
    throw error;
  }
  return null;
};

describe('a key for which nothing is said', () => {
  const limits = (env: Record<string, string>) =>
    loadConfig({ BACKEND_URL: 'http://x/v1', API_KEYS_FILE: 'keys', ...env });

  it('has half of the places, of the streams, of the waiting attestations and of the bytes', () => {
    const config = limits({ MAX_CONCURRENT_REQUESTS: '8', MAX_HELD_BYTES: String(200 * MiB) });
    const concurrency = createConcurrency({ ...config, max_streams: 6, max_attestations_waiting: 4 });
    const taken = Array.from({ length: 4 }, () => concurrency.acquire(caller('many')));
    expect(refusal(() => concurrency.acquire(caller('many')))).toBe('rate_limit_exceeded');
    for (const permit of taken) permit.received();
    const of = (does: (permit: (typeof taken)[number]) => unknown) =>
      taken.map((permit) => refusal(() => does(permit)));
    expect(of((permit) => permit.stream())).toEqual([null, null, null, 'rate_limit_exceeded']);
    expect(of((permit) => permit.tee())).toEqual([null, null, 'rate_limit_exceeded', 'rate_limit_exceeded']);
    expect(of((permit) => permit.hold(50 * MiB))).toEqual([null, null, 'rate_limit_exceeded', 'rate_limit_exceeded']);
    // Its own line goes before, and another key finds what is left.
    const free = caller('free', { concurrent: 0, streams: 0, tee: 0 });
    const others = Array.from({ length: 4 }, () => concurrency.acquire(free));
    for (const permit of others) permit.received();
    expect(others.map((permit) => refusal(() => permit.stream()))).toEqual([null, null, null, 'overloaded']);
    expect(others.map((permit) => refusal(() => permit.tee()))).toEqual([null, null, null, null]);
    expect(refusal(() => others[0]?.hold(100 * MiB))).toBeNull();
    expect(refusal(() => concurrency.acquire(free))).toBe('overloaded');
    for (const permit of [...taken, ...others]) permit.release();
    expect(refusal(() => concurrency.acquire(caller('many')).hold(100 * MiB))).toBeNull();
  });

  it('has room for the largest request and its answer, whatever half is', () => {
    const concurrency = createConcurrency(limits({ MAX_HELD_BYTES: String(50 * MiB) }));
    expect(refusal(() => concurrency.acquire(caller('a')).hold(48 * MiB))).toBeNull();
    expect(refusal(() => concurrency.acquire(caller('b')).hold(48 * MiB))).toBe('overloaded');
  });

  it('may hold what its line says: a number of bytes, or with 0 everything', () => {
    const concurrency = createConcurrency(limits({}));
    const little = caller('a', { held_bytes: 16 * MiB });
    expect(refusal(() => concurrency.acquire(little).hold(16 * MiB))).toBeNull();
    expect(refusal(() => concurrency.acquire(little).hold(1))).toBe('rate_limit_exceeded');
    expect(refusal(() => concurrency.acquire({ ...little, name: 'b' }).hold(0, 16 * MiB + 1))).toBe(
      'rate_limit_exceeded',
    );
    expect(refusal(() => concurrency.acquire(caller('c', { held_bytes: 0 })).hold(144 * MiB))).toBeNull();
  });

  it('has everything where there are no keys: everybody is one caller', () => {
    const config = loadConfig({ BACKEND_URL: 'http://x/v1', MAX_CONCURRENT_REQUESTS: '4' });
    const concurrency = createConcurrency({ ...config, max_attestations_waiting: 2 });
    const taken = Array.from({ length: 4 }, () => concurrency.acquire(ANYONE));
    for (const permit of taken) permit.received();
    expect(taken.map((permit) => refusal(() => permit.stream()))).toEqual([null, null, 'overloaded', 'overloaded']);
    expect(taken.map((permit) => refusal(() => permit.tee()))).toEqual([null, null, null, null]);
    expect(refusal(() => taken[0]?.hold(160 * MiB))).toBeNull();
    expect(refusal(() => taken[1]?.hold(1))).toBe('overloaded');
    expect(refusal(() => concurrency.acquire(ANYONE))).toBe('overloaded');
  });
});

describe('requests of which only the head is here', () => {
  let stage: Stage;
  const sockets: Socket[] = [];
  beforeAll(async () => {
    stage = await startStage();
  });
  afterEach(() => {
    for (const socket of sockets.splice(0)) socket.destroy();
  });
  afterAll(() => stage.close());

  /** Half of them with a length, half of them without; none for the plain path, which waits a second for the rest. */
  const heads = (url: string, count: number, key: string | null) =>
    Promise.all(
      Array.from(
        { length: count },
        (_, i) =>
          new Promise<void>((resolve) => {
            const path = i % 2 === 0 ? '/v1/embeddings' : '/v1/chat/completions';
            const length = i % 2 === 0 ? 'content-length: 100' : 'transfer-encoding: chunked';
            const authorization = key === null ? '' : `authorization: Bearer key-${key}\r\n`;
            const head = `POST ${path} HTTP/1.1\r\nhost: x\r\n${authorization}content-type: application/json\r\n${length}\r\n\r\n`;
            const socket = connect(Number(new URL(url).port), '127.0.0.1', () => socket.write(head, () => resolve()));
            socket.on('error', () => {});
            sockets.push(socket);
          }),
      ),
    );

  it('take no place from those that are here, neither another key’s nor, without keys, anybody’s', async () => {
    stage.service.backend.script = chatAnswer('Hello.');
    for (const keys of [['* concurrent=0', 'many', 'one'], undefined]) {
      const url = await stage.gateway({ MAX_CONCURRENT_REQUESTS: '8', limits: { max_connections: 100 } }, keys);
      await heads(url, 40, keys === undefined ? null : 'many');
      await new Promise((resolve) => setTimeout(resolve, 200));
      const headers = keys === undefined ? {} : bearer('one');
      for (let i = 0; i < 3; i++) expect((await chat(url, CHAT, headers)).status).toBe(200);
      // Nor from their own key's.
      expect((await chat(url, CHAT, keys === undefined ? {} : bearer('many'))).status).toBe(200);
    }
  });

  it('count among what their key may have at once, so that they too have an end', async () => {
    stage.service.backend.script = chatAnswer('Hello.');
    const url = await stage.gateway({ MAX_CONCURRENT_REQUESTS: '8' }, ['many', 'one']);
    await heads(url, 4, 'many');
    await new Promise((resolve) => setTimeout(resolve, 200));
    expectError(await chat(url, CHAT, bearer('many')), 429, 'rate_limit_exceeded');
    expect((await chat(url, CHAT, bearer('one'))).status).toBe(200);
    for (const socket of sockets.splice(0)) socket.destroy();
    await eventually(async () => (await chat(url, CHAT, bearer('many'))).status === 200);
  });

  it('are refused when their body is here and the places are not, on a connection that stays usable', async () => {
    const url = await stage.gateway({ MAX_CONCURRENT_REQUESTS: '1' }, ['* concurrent=0', 'a', 'b']);
    const { port } = new URL(url);
    const body = JSON.stringify(CHAT);
    const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer key-a\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`;
    let received = '';
    const socket = connect(Number(port), '127.0.0.1', () => socket.write(`POST /v1/embeddings${head.slice(25)}`));
    socket.on('data', (bytes) => {
      received += bytes;
    });
    sockets.push(socket);
    await new Promise((resolve) => setTimeout(resolve, 100));
    const held = holdResponses(stage.service);
    const first = chat(url, CHAT, bearer('b'));
    await eventually(() => held.count === 1);
    socket.write(body);
    await eventually(() => received.includes('"overloaded"'));
    expect(received).toMatch(/^HTTP\/1\.1 503 /);
    held.release();
    expect((await first).status).toBe(200);
    received = '';
    socket.write(head + body);
    await eventually(() => received.includes('Hello.'));
    expect(received).toMatch(/^HTTP\/1\.1 200 /);
  });

  it('of a stranger, of a wrong path or past the rate are answered without their body', async () => {
    const url = await stage.gateway({}, ['a rps=1']);
    const send = (path: string, key: string) =>
      new Promise<string>((resolve) => {
        const head = `POST ${path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer key-${key}\r\ncontent-length: 100\r\n\r\n`;
        const socket = connect(Number(new URL(url).port), '127.0.0.1', () => socket.write(head));
        sockets.push(socket.once('data', (bytes) => resolve(String(bytes).slice(9, 12))));
      });
    expect(await send('/v1/embeddings', 'nobody')).toBe('401');
    expect(await send('/nothing', 'a')).toBe('404');
    expectError(await ask(`${url}/v1/chat/completions`, { body: '{', headers: bearer('a') }), 400, 'invalid_json');
    expect(await send('/v1/embeddings', 'a')).toBe('429');
  });
});
