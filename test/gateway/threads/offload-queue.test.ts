import { Worker } from 'node:worker_threads';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { ANYONE } from '../../../gateway/keys/keys.ts';
import { createOffload } from '../../../gateway/threads/offload.ts';
import { CLIENT, client } from './here.ts';

const BODY = Buffer.from(`{"messages":[{"role":"user","content":"${'a'.repeat(300_000)}"}]}`);

describe('the line before the thread that reads large requests', () => {
  const offload = createOffload();
  afterAll(() => offload.close());
  afterEach(() => vi.restoreAllMocks());
  const read = (by = CLIENT) => offload.parse('chat', BODY, ANYONE, by) as Promise<unknown>;
  const named = (reading: Promise<unknown>) =>
    reading.then(
      () => 'read',
      ({ name, code }) => code ?? name,
    );

  it('gives the thread one after the other, and nothing of those who left', async () => {
    await read();
    const posted = vi.spyOn(Worker.prototype, 'postMessage');
    const [first, leaving, disconnected] = [client('a'), client('b'), client('c')];
    disconnected.disconnect();
    const all = [read(first), read(leaving), read(disconnected), read()].map(named);
    expect(posted).toHaveBeenCalledTimes(1);
    leaving.disconnect();
    expect(await Promise.all(all)).toEqual(['read', 'ClientGone', 'ClientGone', 'read']);
    expect(posted).toHaveBeenCalledTimes(2);
  });

  it('takes each owner in turn', async () => {
    const order: string[] = [];
    const [a, b] = [client('a'), client('b')];
    const requests: [string, typeof a][] = [
      ['a1', a],
      ['a2', a],
      ['a3', a],
      ['b1', b],
    ];
    await Promise.all(requests.map(([name, by]) => read(by).then(() => order.push(name))));
    expect(order).toEqual(['a1', 'a2', 'b1', 'a3']);
  });

  it('listens no longer to a client whose turn has come', async () => {
    const by = client('a');
    await Promise.all([read(by), read(by)]);
    expect((by.outgoing as unknown as NodeJS.EventEmitter).listenerCount('close')).toBe(0);
  });

  it('tells all who wait when the thread is ended, and goes on', async () => {
    const lost = [read(), read(), read(client('b'))].map(named);
    await offload.close();
    expect(await Promise.all(lost)).toEqual(['overloaded', 'overloaded', 'overloaded']);
    expect(await named(read())).toBe('read');
  });
});
