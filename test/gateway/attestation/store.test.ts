import { describe, expect, it } from 'vitest';
import type { AttestationParts } from '../../../gateway/attestation/interfaces.ts';
import { createMemoryStore, type MemoryStore } from '../../../gateway/attestation/store-memory.ts';
import type { Owner } from '../../../gateway/keys/keys.ts';

const MIB = 1024 * 1024;
const OWNER = 'owner' as Owner;
const open = (bytes: number, ttl_ms = 60_000) =>
  createMemoryStore({ attestation_ttl_ms: ttl_ms, attestation_store_bytes: bytes });
/** A text that says whose it is, in every byte. */
const text = (n: number, length: number) => Buffer.alloc(length, `${n},`);
/** An attestation that shares nothing: the text, and the brace that ends it. */
const proof = (start: Buffer<ArrayBuffer>): AttestationParts => ({ start, own: '', signed: null, bundle: null });
const whole = (start: Buffer) => Buffer.concat([start, Buffer.from('}')]);
const found = (store: MemoryStore, id: string) => {
  const kept = store.find(OWNER, id);
  return kept?.state === 'ready' ? kept.json : null;
};
describe('what is kept in memory', () => {
  it('is found whole under both names, whatever is forgotten around it, and the oldest are forgotten first', () => {
    const store = open(4 * MIB);
    const lengths = [18_000, 300, 40_000, 131_072, 131_073, 200_000];
    const length = (n: number) => lengths[n % lengths.length] as number;
    for (let n = 0; n < 2_000; n++) {
      store.begin(OWNER, `a${n}`);
      store.keep(OWNER, `a${n}`, n % 3 === 0 ? `b${n}` : null, proof(text(n, length(n))), false);
      if (n % 7 === 0) store.drop(OWNER, `a${n - 1}`);
    }
    let oldest = 2_000;
    for (let n = 0; n < 2_000; n++)
      for (const id of [`a${n}`, `b${n}`]) {
        const json = found(store, id);
        if (json === null) continue;
        oldest = Math.min(oldest, n);
        expect(json.equals(whole(text(n, length(n))))).toBe(true);
      }
    expect(oldest).toBeGreaterThan(1_900);
    for (let n = oldest + 1; n < 2_000; n++) {
      const dropped = n < 1_999 && (n + 1) % 7 === 0;
      expect(found(store, `a${n}`) === null).toBe(dropped);
    }
    expect(store.usage.bytes).toBeLessThanOrEqual(4 * MIB);
    expect(store.usage.bytes).toBeGreaterThan(3 * MIB);
  });

  it('stays as it was found, although its room is used again', () => {
    const store = open(2 * MIB);
    store.keep(OWNER, 'first', null, proof(text(0, 50_000)), false);
    const json = found(store, 'first');
    for (let n = 1; n < 500; n++) store.keep(OWNER, `a${n}`, null, proof(text(n, 50_000)), false);
    expect(found(store, 'first')).toBeNull();
    expect(json?.equals(whole(text(0, 50_000)))).toBe(true);
  });

  it('is not kept when it is larger than all the room, and nothing else is lost by it', () => {
    const store = open(MIB);
    store.keep(OWNER, 'small', null, proof(text(1, 100)), false);
    store.begin(OWNER, 'large');
    store.keep(OWNER, 'large', 'also large', proof(text(2, MIB)), false);
    expect(store.find(OWNER, 'large')).toBeNull();
    expect(store.find(OWNER, 'also large')).toBeNull();
    expect(found(store, 'small')?.equals(whole(text(1, 100)))).toBe(true);
  });

  it('has its room back when its time is over', async () => {
    const store = open(MIB, 20);
    store.keep(OWNER, 'one', 'two', proof(text(1, 1_000)), false);
    await new Promise((resolve) => setTimeout(resolve, 60));
    expect(store.find(OWNER, 'one')).toBeNull();
    expect(store.find(OWNER, 'two')).toBeNull();
  });

  it('is found under every registered id and the last one, for its owner alone, and its text counts once', () => {
    const store = open(MIB);
    store.begin(OWNER, 'mine');
    const ids = Array.from({ length: 16 }, (_, n) => `id-${n}`);
    for (const id of ids) store.name(OWNER, 'mine', id);
    for (const id of ids) expect(store.find(OWNER, id)).toEqual({ state: 'pending' });
    store.keep(OWNER, 'mine', 'last', proof(text(1, 300_000)), false);
    for (const id of ['mine', ...ids, 'last']) {
      expect(found(store, id)?.equals(whole(text(1, 300_000)))).toBe(true);
      expect(store.find('another' as Owner, id)).toBeNull();
    }
    expect(store.usage).toMatchObject({ entries: 18 });
    expect(store.usage.bytes).toBeLessThan(330_000);
  });

  it('under an id that two answers have is the earlier one until the later is complete', () => {
    const store = open(MIB);
    store.keep(OWNER, 'a', 'same', proof(text(1, 100)), false);
    for (const id of ['b', 'c']) {
      store.begin(OWNER, id);
      store.name(OWNER, id, 'same');
    }
    expect(found(store, 'same')?.equals(whole(text(1, 100)))).toBe(true);
    store.drop(OWNER, 'c');
    store.keep(OWNER, 'b', 'last', proof(text(2, 100)), false);
    for (const id of ['same', 'last', 'b']) expect(found(store, id)?.equals(whole(text(2, 100)))).toBe(true);
    expect(found(store, 'a')?.equals(whole(text(1, 100)))).toBe(true);
  });

  it('is not lost where a backend names ids of ours', () => {
    const store = open(MIB);
    store.begin(OWNER, 'a');
    store.name(OWNER, 'a', 'a');
    store.keep(OWNER, 'a', 'a', proof(text(1, 100)), false);
    expect(found(store, 'a')?.equals(whole(text(1, 100)))).toBe(true);
    store.keep(OWNER, 'b', 'a', proof(text(2, 100)), false);
    store.keep(OWNER, 'a', 'b', proof(text(3, 100)), false);
    for (const id of ['a', 'b']) expect(found(store, id)?.equals(whole(text(3, 100)))).toBe(true);
  });

  it('says of a running answer that it comes, however much is kept meanwhile, and nothing once it is dropped', () => {
    const store = open(MIB);
    store.begin(OWNER, 'running');
    store.name(OWNER, 'running', 'its completion');
    for (let n = 0; n < 200; n++) store.keep(OWNER, `a${n}`, null, proof(text(n, 20_000)), false);
    for (const id of ['running', 'its completion']) expect(store.find(OWNER, id)).toEqual({ state: 'pending' });
    store.drop(OWNER, 'running');
    for (const id of ['running', 'its completion']) expect(store.find(OWNER, id)).toBeNull();
  });
});
