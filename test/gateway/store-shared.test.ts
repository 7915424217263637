import { afterEach, expect, it, vi } from 'vitest';
import { createMemoryStore } from '../../gateway/attestation/store-memory.ts';
import { type Client, type Connection, createSharedStore } from '../../gateway/attestation/store-shared.ts';
import type { Owner } from '../../gateway/keys/keys.ts';

const OWNER = 'owner' as Owner;
const options = { attestation_ttl_ms: 3_600_000, max_answer_ms: 3_600_000, attest_timeout_ms: 60_000 };

afterEach(() => void vi.useRealTimers());

it('what runs is renewed as pending until it is kept or dropped', async () => {
  vi.useFakeTimers();
  const asked: string[] = [];
  const client = {
    set: async (key: string, value: string | Buffer, { expiration }: { expiration: { value: number } }) =>
      void asked.push(`set ${key.length} ${value} ${expiration.value}`),
    del: async () => void asked.push('del'),
  } as unknown as Client;
  const connection: Connection = { isReady: true, run: (command) => command(client), close: async () => {} };
  const memory = createMemoryStore({ ...options, attestation_store_bytes: 1_000_000 });
  const store = createSharedStore(connection, memory, memory, options);
  const sent = async (pass_ms: number) => {
    await vi.advanceTimersByTimeAsync(pass_ms);
    return asked.splice(0).map((one) => one.replace(/^set \d+ /, ''));
  };
  store.begin(OWNER, 'a');
  store.begin(OWNER, 'b');
  expect(await sent(0)).toEqual(['pending 60000', 'pending 60000']);
  expect(await sent(20_000)).toEqual(['pending 60000', 'pending 60000']);
  store.keep(OWNER, 'a', null, Buffer.from('{}'));
  expect(await sent(20_000)).toEqual(['{} 3600000', 'pending 60000']);
  store.drop(OWNER, 'b');
  expect(await sent(60_000)).toEqual(['del']);
  await store.close();
});
