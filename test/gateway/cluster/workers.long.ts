import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { chatAnswer, chatBody, chatStream } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { type GatewayProcess, startGatewayProcess } from '../../support/gateway-process.ts';
import { eventually, type Service, startService } from '../../support/harness.ts';
import { expectError } from '../expect-error.ts';

const key = (name: string) => ({ authorization: `Bearer key-${name}` });
let service: Service;
let gateway: GatewayProcess;

beforeEach(async () => {
  service = await startService();
});
afterEach(async () => {
  await gateway.stop('SIGTERM');
  await service.close();
});

/** Two workers, each of which has said that it listens and found the sidecar. */
async function start(keys: readonly string[] = ['a'], env: Record<string, string> = {}): Promise<void> {
  const file = join(service.folder.path, 'keys');
  const lines = keys.map((line) => {
    const [name = '', ...settings] = line.split(' ');
    return [`${name}:sha256:${createHash('sha256').update(`key-${name}`).digest('hex')}`, ...settings].join(' ');
  });
  writeFileSync(file, lines.join('\n'));
  gateway = await startGatewayProcess({
    BACKEND_URL: service.backend.url,
    SIDECAR_SOCKET: service.sidecar.socket,
    API_KEYS_FILE: file,
    WORKERS: '2',
    ...env,
  });
  await bothListen(Number(env.WORKERS ?? 2));
}
const logged = (msg: string) => gateway.lines().filter((line) => line.msg === msg);
const bothListen = (times: number) =>
  eventually(() => logged('listening').length === times && logged('sidecar').length === times);
/** In the order in which they began. */
const workers = () => logged('listening').map(({ pid }) => pid as number);

describe('two workers', () => {
  it('find an attestation whichever of them made it, and only for the key that asked', async () => {
    await start(['a', 'b']);
    const { headers } = await chat(gateway.url, { ...CHAT, tee: true }, key('a'));
    const id = String(headers['x-attestation-id']);
    const get = (name: string) =>
      ask(`${gateway.url}/v1/chat/completions/${id}/attestation`, { method: 'GET', headers: key(name) });
    // Each on a connection of its own: they are dealt out in turn.
    const found = await Promise.all(Array.from({ length: 8 }, () => get('a')));
    expect(found.map(({ status }) => status)).toEqual(Array(8).fill(200));
    expect(new Set(found.map(({ text }) => text)).size).toBe(1);
    expect(found[0]?.json().nonce).toMatch(/^[0-9a-f]{64}$/);
    expect((await Promise.all(Array.from({ length: 4 }, () => get('b')))).map(({ status }) => status)).toEqual(
      Array(4).fill(404),
    );
  });

  it('find at once past one that stands still, and say 503 where that one may have it, not 404', async () => {
    await start(['a'], { WORKERS: '3' });
    // One connection to each, on which it can still be asked: new ones would be dealt to the one that stands still too.
    const made = new Map<number, { agent: Agent; id: string }>();
    while (made.size < 3) {
      const agent = new Agent({ keepAlive: true, maxSockets: 1 });
      const body = JSON.stringify({ ...CHAT, tee: true });
      const id = (await ask(`${gateway.url}/v1/chat/completions`, { headers: key('a'), body, agent })).headers[
        'x-attestation-id'
      ] as string;
      const line = () => gateway.lines().find((one) => one.id === id);
      await eventually(() => line() !== undefined);
      made.set(line()?.pid as number, { agent, id });
    }
    const [one, two, three] = [...made.keys()] as [number, number, number];
    const get = (of: number, id = made.get(of)?.id) =>
      ask(`${gateway.url}/v1/chat/completions/${id}/attestation`, {
        method: 'GET',
        headers: key('a'),
        agent: made.get(one)?.agent as Agent,
      });
    process.kill(three, 'SIGSTOP');
    try {
      const started = performance.now();
      expect((await get(two)).status).toBe(200);
      expect(performance.now() - started).toBeLessThan(1_500);
      const unknown = await get(three);
      expectError(unknown, 503, 'store_unavailable');
      expect(unknown.headers['retry-after']).toBe('1');
    } finally {
      process.kill(three, 'SIGCONT');
    }
    await eventually(async () => (await get(three)).status === 200);
    expect((await get(one, 'nobody')).status).toBe(404);
    for (const { agent } of made.values()) agent.destroy();
  });

  it('know of a stream that still runs in the other one', async () => {
    await start();
    service.backend.script = chatStream(Array(60).fill('word '), 25);
    const statuses: number[] = [];
    let retrievals: Promise<unknown> | null = null;
    await new Promise<void>((resolve, reject) => {
      const upstream = request(
        `${gateway.url}/v1/chat/completions`,
        { method: 'POST', headers: { ...key('a'), 'content-type': 'application/json' } },
        (stream) => {
          const url = `${gateway.url}/v1/chat/completions/${stream.headers['x-attestation-id']}/attestation`;
          retrievals = Promise.all(
            Array.from({ length: 4 }, async () => {
              statuses.push((await ask(url, { method: 'GET', headers: key('a') })).status);
            }),
          );
          stream.resume().on('end', resolve).on('error', reject);
        },
      );
      upstream.on('error', reject).end(JSON.stringify({ ...CHAT, stream: true, tee: true }));
    });
    await retrievals;
    expect(statuses).toEqual([425, 425, 425, 425]);
  });

  it("count a key's places together, and give them back, also those of a worker that dies", async () => {
    await start(['a concurrent=2', 'b']);
    let release: () => void = () => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    service.backend.script = async (_request, response) => {
      await released;
      const body = chatBody('Hello.');
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': body.length }).end(body);
    };
    const responses = Array.from({ length: 6 }, () => chat(gateway.url, CHAT, key('a')));
    await eventually(() => service.backend.seen.length === 2);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(service.backend.seen).toHaveLength(2);
    // Another key is not touched by it.
    const other = chat(gateway.url, CHAT, key('b'));
    await eventually(() => service.backend.seen.length === 3);
    release();
    const statuses = (await Promise.all(responses)).map(({ status }) => status).sort();
    expect(statuses).toEqual([200, 200, 429, 429, 429, 429]);
    expect((await other).status).toBe(200);

    service.backend.script = () => {}; // never answers
    const lost = Array.from({ length: 2 }, () => chat(gateway.url, CHAT, key('a')).catch(() => null));
    await eventually(() => service.backend.seen.length === 5);
    // One after the other: a port of 0 is another port once nobody listens.
    for (const [i, pid] of workers().entries()) {
      process.kill(pid, 'SIGKILL');
      await bothListen(3 + i);
    }
    await Promise.all(lost);
    expect(logged('a worker ended')).toHaveLength(2);
    service.backend.script = chatAnswer('Back.');
    const back = await Promise.all(Array.from({ length: 2 }, () => chat(gateway.url, CHAT, key('a'))));
    expect(back.map(({ status }) => status)).toEqual([200, 200]);
  });

  it('each have room for the largest body that is allowed, however little their share is', async () => {
    const bytes = 1024 * 1024;
    await start(['a'], { MAX_BODY_BYTES: String(bytes), MAX_HELD_BYTES: String(bytes) });
    const body = JSON.stringify({ ...CHAT, user: '' });
    const largest = body.replace('"user":""', `"user":"${'x'.repeat(bytes - body.length)}"`);
    const got = [await chat(gateway.url, largest, key('a')), await chat(gateway.url, largest, key('a'))];
    expect(got.map(({ status }) => status)).toEqual([200, 200]);
  });

  it('each have room for the largest attested answer to the largest body too', async () => {
    const MiB = 1024 * 1024;
    await start(['a'], {
      MAX_BODY_BYTES: String(MiB),
      MAX_ANSWER_BYTES: String(MiB),
      MAX_HELD_BYTES: String(12 * MiB),
    });
    service.backend.script = chatAnswer('x'.repeat(0.9 * MiB));
    const large = { ...CHAT, tee: true, user: 'x'.repeat(0.9 * MiB) };
    const got = [await chat(gateway.url, large, key('a')), await chat(gateway.url, large, key('a'))];
    expect(got.map(({ status }) => status)).toEqual([200, 200]);
  });

  it('refuse as overloaded while their primary cannot count, and lose no place by it', async () => {
    await start(['a concurrent=1']);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    // On a connection that a worker has already: the primary deals out new ones.
    const again = () =>
      ask(`${gateway.url}/v1/chat/completions`, { headers: key('a'), body: JSON.stringify(CHAT), agent });
    expect((await again()).status).toBe(200);
    gateway.child.kill('SIGSTOP');
    const refused = await again();
    gateway.child.kill('SIGCONT');
    expectError(refused, 503, 'overloaded');
    expect(refused.headers['retry-after']).toBe('1');
    await eventually(async () => (await again()).status === 200, 3_000);
    agent.destroy();
  });

  it('count requests a second together', async () => {
    await start(['a rps=4']);
    const got = await Promise.all(Array.from({ length: 12 }, () => chat(gateway.url, CHAT, key('a'))));
    const allowed = got.filter(({ status }) => status === 200).length;
    // A second may turn while they come.
    expect(allowed).toBeGreaterThanOrEqual(4);
    expect(allowed).toBeLessThanOrEqual(8);
    expect(got.filter(({ status }) => status === 429)).toHaveLength(12 - allowed);
  });

  it('find what another made and count requests a second together also while a shared store is away', async () => {
    await start(['a', 'b rps=4'], { ATTESTATION_STORE_URL: 'redis://127.0.0.1:1' });
    const { headers } = await chat(gateway.url, { ...CHAT, tee: true }, key('a'));
    const get = (id: unknown) =>
      ask(`${gateway.url}/v1/chat/completions/${id}/attestation`, { method: 'GET', headers: key('a') });
    const found = await Promise.all(Array.from({ length: 4 }, () => get(headers['x-attestation-id'])));
    expect(found.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    // Another gateway may have made it.
    expectError(await get('nobody'), 503, 'store_unavailable');
    const started = performance.now();
    const got = await Promise.all(Array.from({ length: 16 }, () => chat(gateway.url, CHAT, key('b'))));
    const seconds = 1 + Math.floor((performance.now() - started) / 1_000);
    const allowed = got.filter(({ status }) => status === 200).length;
    expect(allowed).toBeGreaterThanOrEqual(4);
    expect(allowed).toBeLessThanOrEqual(4 * seconds);
    expect(got.filter(({ status }) => status === 429)).toHaveLength(16 - allowed);
  });

  it('say their numbers together also while one stands still', async () => {
    await start(['a'], { METRICS_PORT: '0', METRICS_HOST: '127.0.0.1' });
    for (let i = 0; i < 4; i++) await chat(gateway.url, CHAT, key('a'));
    const port = JSON.stringify(logged('metrics')[0]?.address).match(/"port":(\d+)/)?.[1];
    const count = async () => {
      const { status, text } = await ask(`http://127.0.0.1:${port}/metrics`, { method: 'GET' });
      return [status, /^http_server_request_duration_seconds_count\{.*chat.*\} (\d+)/m.exec(text)?.[1]];
    };
    expect(await count()).toEqual([200, '4']);
    const [pid] = workers() as [number];
    process.kill(pid, 'SIGSTOP');
    try {
      expect(await count()).toEqual([200, '4']);
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    await eventually(() => logged('a worker does not answer').length === 1);
  });

  it('end with their primary, after what they were asked', async () => {
    await start();
    service.backend.script = chatStream(Array(30).fill('word '), 20);
    const streams = Array.from({ length: 4 }, () => chat(gateway.url, { ...CHAT, stream: true, tee: true }, key('a')));
    await eventually(() => service.backend.seen.length === 4);
    const pids = workers();
    expect((await gateway.kill('SIGTERM')).code).toBe(0);
    for (const response of await Promise.all(streams)) {
      expect(response.complete).toBe(true);
      expect(response.payloads().at(-1)).toBe('[DONE]');
      expect(response.text).toContain('"attestation"');
    }
    for (const pid of pids) expect(() => process.kill(pid, 0)).toThrow('ESRCH');
  });

  it('do not leave a worker behind when their primary is killed', async () => {
    await start();
    const pids = workers();
    await gateway.kill('SIGKILL');
    const gone = (pid: number) => {
      try {
        process.kill(pid, 0);
        return false;
      } catch {
        return true;
      }
    };
    await eventually(() => pids.every(gone));
  });

  it.each(['2', '1'])(
    'go on at a SIGHUP where there are no certificates to read again, as one process does: WORKERS=%s',
    async (count) => {
      if (count === '2') await start();
      else gateway = await startGatewayProcess({ BACKEND_URL: service.backend.url, WORKERS: count });
      service.backend.script = chatStream(Array(20).fill('word '), 25);
      const running = chat(gateway.url, { ...CHAT, stream: true }, key('a'));
      await eventually(() => service.backend.seen.length === 1);
      for (const pid of new Set([gateway.child.pid as number, ...workers()])) process.kill(pid, 'SIGHUP');
      expect((await running).payloads().at(-1)).toBe('[DONE]');
      expect(logged('a worker ended')).toEqual([]);
      expect(gateway.child.signalCode).toBeNull();
    },
  );

  it('end at once, with one clear line, on a port that is taken', async () => {
    await start();
    const { port } = new URL(gateway.url);
    await expect(startGatewayProcess({ BACKEND_URL: service.backend.url, WORKERS: '2', PORT: port })).rejects.toThrow(
      'EADDRINUSE',
    );
  });
});
