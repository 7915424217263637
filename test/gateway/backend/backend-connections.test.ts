// The backend client's connections: whose requests they carry, and when they are used again.
import type { Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import type { Problem } from '../../../gateway/base/problem.ts';
import { eventually } from '../../support/harness.ts';

import { ask, backend, client, OK, rest, sockets } from './backend-stage.ts';

describe('the connections of the backend client', () => {
  const NO = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno';
  /** Answers each first request of a connection, and says `more` so many milliseconds later; then answers late. */
  const saysMore = (more: string, behind_ms: number) => {
    const asked = new Map<Socket, number>();
    return backend((socket) => {
      const before = asked.get(socket) ?? 0;
      asked.set(socket, before + 1);
      if (before > 0) return void setTimeout(() => socket.write(OK), 50);
      socket.write(OK);
      setTimeout(() => socket.writable && socket.write(more), behind_ms);
    });
  };

  it.each([1, 2, 5, 10, 20])('take nothing for an answer that comes %i ms behind another one', async (behind_ms) => {
    const connections = await saysMore(NO, behind_ms);
    for (let i = 0; i < 10; i++) {
      // On a machine that stands still for a moment both come in one read: then there is no answer.
      expect((await ask()).body).not.toBe('no');
      if (i % 2 === 0) await new Promise((resolve) => setTimeout(resolve, behind_ms - 1));
    }
    expect(connections()).toBe(10);
  });

  it('carry requests of one owner each, however late more comes', async () => {
    await saysMore(NO, 60);
    await ask();
    await rest();
    expect(await ask('{}', true, undefined, 'another')).toMatchObject({ body: 'ok' });
    // Within one owner nobody can tell: HTTP/1.1 does not say which request an answer belongs to.
    await rest();
    await ask();
    await rest();
    expect(await ask()).toMatchObject({ body: expect.stringMatching(/^(ok|no)$/) });
  });

  it('carry nothing before and nothing after a request without an owner, and it says so', async () => {
    const asked: [number, string | undefined][] = [];
    const connections = await backend((socket, bytes, connection) => {
      asked.push([connection, /^connection: (.*)\r$/m.exec(bytes)?.[1]]);
      socket.write(OK);
    });
    for (const owner of ['one', null, null, 'one']) {
      await ask('{}', true, undefined, owner);
      await rest();
    }
    expect(asked).toEqual([
      [1, 'keep-alive'],
      [2, 'close'],
      [3, 'close'],
      [1, 'keep-alive'],
    ]);
    await eventually(() => [...sockets].filter((socket) => !socket.destroyed).length === 1);
    expect(connections()).toBe(3);
  });

  it('are no more than 1,024 of one owner when they are idle, and 2,048 of all', async () => {
    let release: (() => void)[] = [];
    await backend((socket) => void release.push(() => socket.write(OK)), 10_000);
    const open = () => [...sockets].filter((socket) => !socket.destroyed).length;
    const ofOwners = async (owners: readonly string[], each: number) => {
      const answers = owners.flatMap((owner) => Array.from({ length: each }, () => ask('{}', true, undefined, owner)));
      await eventually(() => release.length === answers.length);
      for (const go of release) go();
      release = [];
      await Promise.all(answers);
    };
    await ofOwners(['one'], 1_100);
    await eventually(() => open() === 1_024);
    await ofOwners(['two', 'three'], 600);
    await eventually(() => open() === 2_048);
  });

  it('of a client that retires are closed where they lie idle, the others at the end of what they carry', async () => {
    let end: (() => void) | null = null;
    await backend((socket, bytes) => {
      if (bytes.includes('slow')) end = () => void socket.write(OK);
      else socket.write(OK);
    });
    const slow = ask('slow');
    await ask();
    await eventually(() => end !== null);
    let retired = false;
    const over = client?.retire().then(() => {
      retired = true;
    });
    await eventually(() => [...sockets].filter((socket) => !socket.destroyed).length === 1, 2_000);
    expect(retired).toBe(false);
    (end as (() => void) | null)?.();
    expect(await slow).toMatchObject({ body: 'ok', problem: null });
    await over;
    await eventually(() => [...sockets].every((socket) => socket.destroyed));
  });

  const PATIENCE_OVER = 'HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno';
  it.each([
    ['is asked again on a fresh connection, if it may be', true, { status: 200, body: 'ok', problem: null }, 2],
    ['is not answered by it, if not', false, { status: null, problem: { code: 'backend_unreachable' } }, 1],
  ])('that a backend closes with a 408: a request that crosses it %s', async (_, repeatable, answer, connections) => {
    const asked = new Set<Socket>();
    const opened = await backend((socket) => {
      if (asked.has(socket)) socket.end(PATIENCE_OVER);
      else socket.write(OK);
      asked.add(socket);
    });
    await ask();
    await rest();
    expect(await ask('{}', repeatable)).toMatchObject(answer);
    expect(opened()).toBe(connections);
  });

  it('hand on a 408 that is an answer: on a fresh connection, or one that stays open', async () => {
    await backend((socket) => socket.end(PATIENCE_OVER));
    expect(await ask()).toMatchObject({ status: 408, body: 'no' });
    await client?.close();
    const connections = await backend((socket) => socket.write(PATIENCE_OVER.replace('Connection: close\r\n', '')));
    for (let i = 0; i < 2; i++) {
      expect(await ask()).toMatchObject({ status: 408, body: 'no' });
      await rest();
    }
    expect(connections()).toBe(1);
  });
});

describe('a handler of an answer', () => {
  it.each(['head', 'data', 'end'] as const)('that throws in its %s has failed, and nobody else', async (where) => {
    await backend((socket) => socket.write(OK));
    const does = (step: string) => () => {
      if (step === where) throw new RangeError('too deep');
    };
    const problem = await new Promise<Problem>((fail) =>
      client?.call(
        { method: 'GET', path: '/', headers: {}, body: null, repeatable: true, owner: 'one' },
        { head: does('head'), data: does('data'), end: does('end'), fail },
      ),
    );
    expect(problem.status).toBeGreaterThanOrEqual(500);
    expect((await ask()).body).toBe('ok');
  });
});
