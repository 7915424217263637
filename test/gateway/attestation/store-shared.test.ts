import { hash } from 'node:crypto';
import { afterEach, expect, it, vi } from 'vitest';
import { bundleOf } from '../../../gateway/attestation/bundle.ts';
import type { AttestationParts, Bundle } from '../../../gateway/attestation/interfaces.ts';
import { createMemoryStore } from '../../../gateway/attestation/store-memory.ts';
import { createSharedStore } from '../../../gateway/attestation/store-shared.ts';
import type { Client, Connection } from '../../../gateway/base/store-connection.ts';
import type { Owner } from '../../../gateway/keys/keys.ts';

/** An attestation that shares nothing. */
const alone = (json: string): AttestationParts => ({
  start: Buffer.from(json.slice(0, -1)),
  own: '',
  signed: null,
  bundle: null,
});
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
  const connection: Connection = {
    isReady: true,
    isCluster: false,
    run: (command) => command(client),
    close: async () => {},
  };
  const memory = createMemoryStore({ ...options, attestation_store_bytes: 1_000_000 });
  const store = createSharedStore(connection, memory, options);
  const sent = async (pass_ms: number) => {
    await vi.advanceTimersByTimeAsync(pass_ms);
    return asked.splice(0).map((one) => one.replace(/^set \d+ /, ''));
  };
  store.begin(OWNER, 'a');
  store.begin(OWNER, 'b');
  expect(await sent(0)).toEqual(['pending 60000', 'pending 60000']);
  expect(await sent(20_000)).toEqual(['pending 60000', 'pending 60000']);
  store.keep(OWNER, 'a', null, alone('{}'), false);
  expect(await sent(20_000)).toEqual([
    '&{"own":"","signed":null,"compact":false,"bundle":null}\n{ 3600000',
    'pending 60000',
  ]);
  store.drop(OWNER, 'b');
  expect(await sent(60_000)).toEqual(['del']);
  await store.close();
});

it('what a batch has in common is on the server once, and another gateway puts each answer together', async () => {
  const server = new Map<string, Buffer>();
  const commands = {
    set: async (key: string, value: string | Buffer) => void server.set(key, Buffer.from(value)),
    get: async (key: string) => server.get(key) ?? null,
  };
  const client = { ...commands, withTypeMapping: () => commands } as unknown as Client;
  const connection: Connection = {
    isReady: true,
    isCluster: false,
    run: (command) => command(client),
    close: async () => {},
  };
  const gateway = () => {
    const memory = createMemoryStore({ ...options, attestation_store_bytes: 1_000_000 });
    return createSharedStore(connection, memory, options);
  };
  const [one, other] = [gateway(), gateway()];
  const members = { nonce: 'ab'.repeat(32), json: Buffer.from(`"token":"${'t'.repeat(5_000)}"`) };
  const session = { id: 'cd'.repeat(32), statement: 's', cpu: '{"type":"TDX"}', gpu: '[]' };
  const bundle = bundleOf(members, session) as Bundle;
  expect(hash('sha256', bundle.json)).toBe(bundle.sha256);
  const ids = ['a', 'b', 'c'];
  for (const id of ids) {
    const start = Buffer.from(`{"raw":"é of ${id}"`);
    const signed = { session: session.id, signature: 'sig' };
    const proof = { start, own: `,"batch":"${id}"`, signed, bundle: bundleOf(members, session) };
    one.keep(OWNER, id, `completion-${id}`, proof, id === 'c');
  }
  await vi.waitFor(() => expect(server.size).toBe(7));
  expect([...server.values()].filter((value) => value.includes('"token"'))).toHaveLength(1);
  const forms = {
    a: { token: 't'.repeat(5_000), batch: 'a', cpu: { type: 'TDX', signature: 'sig' } },
    b: { token: 't'.repeat(5_000), batch: 'b', cpu: { type: 'TDX', signature: 'sig' } },
    c: { batch: 'c', cpu: { statement_sha256: session.id, signature: 'sig' }, bundle: bundle.sha256 },
  };
  for (const [id, form] of Object.entries(forms))
    for (const by of [id, `completion-${id}`]) {
      const found = await other.find(OWNER, by);
      expect(JSON.parse(found?.state === 'ready' ? found.json.toString() : '')).toEqual({ raw: `é of ${id}`, ...form });
      expect(await one.find(OWNER, by)).toEqual(found);
    }
  for (const gateway of [one, other]) expect(await gateway.findBundle(bundle.sha256)).toEqual(bundle.json);
  expect(await other.findBundle('ef'.repeat(32))).toBeNull();
  // Without the common part an answer is not found, and never half of it.
  server.delete([...server].find(([, value]) => value.includes('"token"'))?.[0] ?? '');
  expect(await other.find(OWNER, 'a')).toBeNull();
  await Promise.all([one.close(), other.close()]);
});

it('a bundle that could not be stored is stored with the next attestation that shares it', async () => {
  const server = new Map<string, Buffer>();
  let isDown = true;
  const commands = {
    set: async (key: string, value: string | Buffer) => {
      if (isDown) throw new Error('down');
      server.set(key, Buffer.from(value));
    },
    get: async (key: string) => server.get(key) ?? null,
    del: async (key: string) => void server.delete(key),
  };
  const client = { ...commands, withTypeMapping: () => commands } as unknown as Client;
  const connection: Connection = {
    isReady: true,
    isCluster: false,
    run: (command) => command(client),
    close: async () => {},
  };
  const gateway = () =>
    createSharedStore(connection, createMemoryStore({ ...options, attestation_store_bytes: 1_000_000 }), options);
  const [one, other] = [gateway(), gateway()];
  const session = { id: 'cd'.repeat(32), statement: 's', cpu: '{"type":"TDX"}', gpu: '[]' };
  const keep = (id: string) =>
    one.keep(OWNER, id, null, { ...alone(`{"raw":"${id}"}`), bundle: bundleOf(null, session) }, false);
  keep('lost');
  await vi.waitFor(async () => expect(await other.find(OWNER, 'lost')).toBeNull());
  isDown = false;
  keep('kept');
  await vi.waitFor(async () => expect(await other.find(OWNER, 'kept')).toMatchObject({ state: 'ready' }));
  expect(await other.find(OWNER, 'lost')).toBeNull();
  await Promise.all([one.close(), other.close()]);
});

it('another gateway finds an attestation by every id of its completion, and by none that a backend made of ours', async () => {
  const server = new Map<string, Buffer>();
  const commands = {
    set: async (key: string, value: string | Buffer, { condition }: { condition?: 'NX' }) => {
      if (condition === undefined || !server.has(key)) server.set(key, Buffer.from(value));
    },
    get: async (key: string) => server.get(key) ?? null,
    del: async (key: string) => void server.delete(key),
  };
  const client = { ...commands, withTypeMapping: () => commands } as unknown as Client;
  const connection: Connection = {
    isReady: true,
    isCluster: false,
    run: (command) => command(client),
    close: async () => {},
  };
  const gateway = () => {
    const memory = createMemoryStore({ ...options, attestation_store_bytes: 1_000_000 });
    return createSharedStore(connection, memory, options);
  };
  const [one, other] = [gateway(), gateway()];
  one.begin(OWNER, 'a');
  for (const id of ['first', 'second', 'a']) one.name(OWNER, 'a', id);
  for (const id of ['a', 'first', 'second'])
    expect([id, await other.find(OWNER, id)]).toEqual([id, { state: 'pending' }]);
  one.keep(OWNER, 'a', 'last', alone('{"n":1}'), false);
  for (const id of ['a', 'first', 'second', 'last']) {
    expect([id, await other.find(OWNER, id)]).toEqual([id, { state: 'ready', json: Buffer.from('{"n":1}') }]);
    expect(await other.find('another' as Owner, id)).toBeNull();
  }
  // A backend that names our ids as its own leads nobody in a circle.
  one.keep(OWNER, 'b', 'c', alone('{"n":2}'), false);
  one.keep(OWNER, 'c', 'b', alone('{"n":3}'), false);
  one.keep(OWNER, 'd', 'c', alone('{"n":4}'), false);
  expect(await other.find(OWNER, 'b')).toBeNull();
  expect(await other.find(OWNER, 'd')).toEqual({ state: 'ready', json: Buffer.from('{"n":4}') });
  await Promise.all([one.close(), other.close()]);
});
