// Keeps attestations in Valkey or Redis beside this process's memory, so that any gateway finds the attestations of all.
import { hash } from 'node:crypto';
import { RESP_TYPES } from '@redis/client';
import { Problem } from '../base/problem.ts';
import type { Connection } from '../base/store-connection.ts';
import type { Owner } from '../keys/keys.ts';
import type { InBatch, Kept, Members, Store } from './interfaces.ts';
import type { MemoryStore } from './store-memory.ts';

interface SharedOptions {
  readonly attestation_ttl_ms: number;
  /** The longest time that a response may run, during which its completion's id must be found. */
  readonly max_answer_ms: number;
  readonly attest_timeout_ms: number;
}

const PENDING = 'pending';
/** A gateway that is killed cannot remove its pending entries, so they expire after this time unless renewed. */
const PENDING_MS = 60_000;
const RENEW_MS = 20_000;
/** Prefix of a value that holds the key of another entry. An attestation begins with a brace. */
const ALIAS = '=';
const AS_BYTES = { [RESP_TYPES.BLOB_STRING]: Buffer };
/** Limit for values on their way to the server. Beyond it an attestation is stored in this process only. */
const MAX_IN_FLIGHT_BYTES = 64 * 1024 * 1024;
const BRACE = 0x7b;
/** Prefix of an attestation of a batch. The nonce under which its members are stored follows, and their offset in the rest. */
const IN_BATCH = '&';
const IN_BATCH_HEAD = /^&([0-9a-f]{64}) (\d{1,9})\n/;
/** Members are kept longer than attestations by this time, so that no attestation of a batch outlives them. */
const MEMBERS_MORE_MS = 60_000;
const RETRY_SECONDS = 2;
/** Errors are ignored: the connection's state is logged, and the response carries its attestation in any case. */
const ignore = () => {};

// Keys are hashed so that they reveal neither owners nor ids.
const keyOf = (owner: Owner, id: string) => `countersign:attestation:${hash('sha256', `${owner} ${id}`, 'base64url')}`;
const membersKey = (nonce: string) => `countersign:members:${nonce}`;

/** The entries on the server, by key. */
function createEntries(connection: Connection, attestation_ttl_ms: number) {
  let in_flight_bytes = 0;
  const membersSet = new WeakMap<Members, Promise<void>>();

  async function set(
    key: string,
    value: string | Buffer,
    ttl_ms: number,
    more: { condition?: 'NX' } = {},
  ): Promise<void> {
    if (in_flight_bytes + value.length > MAX_IN_FLIGHT_BYTES) throw new Error('too much is on its way');
    in_flight_bytes += value.length;
    try {
      await connection.run((client) => client.set(key, value, { expiration: { type: 'PX', value: ttl_ms }, ...more }));
    } finally {
      in_flight_bytes -= value.length;
    }
  }

  /** Sets the members of a batch once, with its first answer. @throws {Error} where they could not be stored. */
  function setMembers(members: Members): Promise<void> {
    const known = membersSet.get(members);
    if (known !== undefined) return known;
    const setting = set(membersKey(members.nonce), members.json, attestation_ttl_ms + MEMBERS_MORE_MS);
    membersSet.set(members, setting);
    return setting;
  }

  async function setInBatch(key: string, { start, members, end }: InBatch): Promise<void> {
    await setMembers(members);
    const head = Buffer.from(`${IN_BATCH}${members.nonce} ${start.length}\n`);
    await set(key, Buffer.concat([head, start, end]), attestation_ttl_ms);
  }

  async function find(key: string, alias = false): Promise<Kept | null> {
    const value = await connection.run((client) => client.withTypeMapping(AS_BYTES).get(key));
    if (value === null) return null;
    if (value[0] === BRACE) return { state: 'ready', json: Buffer.from(value) };
    if (value[0] === IN_BATCH.charCodeAt(0)) return inBatch(value);
    const text = value.toString('latin1');
    if (!text.startsWith(ALIAS)) return { state: 'pending' };
    // A backend that names our ids could make aliases of aliases.
    return alias ? null : find(text.slice(ALIAS.length), true);
  }

  async function inBatch(value: Buffer): Promise<Kept | null> {
    const [head = '', nonce = '', at] = IN_BATCH_HEAD.exec(value.toString('latin1', 0, 80)) ?? [];
    const json = await connection.run((client) => client.withTypeMapping(AS_BYTES).get(membersKey(nonce)));
    if (json === null) return null;
    const own = value.subarray(head.length);
    return { state: 'ready', json: Buffer.concat([own.subarray(0, Number(at)), json, own.subarray(Number(at))]) };
  }

  return {
    set,
    setInBatch,
    find,
    drop: (key: string) => void connection.run((client) => client.del(key)).catch(ignore),
  };
}

/** `memory` is the store of this gateway. */
export function createSharedStore(connection: Connection, memory: MemoryStore, options: SharedOptions): Store {
  const { attestation_ttl_ms } = options;
  const { set, setInBatch, find, drop } = createEntries(connection, attestation_ttl_ms);
  const markPending = (key: string) => void set(key, PENDING, PENDING_MS).catch(ignore);

  /** The keys of responses that are not complete, each with those of its completion's ids. */
  const running = new Map<string, Set<string>>();
  const renewing = setInterval(() => {
    for (const key of running.keys()) markPending(key);
  }, RENEW_MS).unref();

  async function findOnServer(owner: Owner, id: string): Promise<Kept | null> {
    try {
      return await find(keyOf(owner, id));
    } catch (cause) {
      throw new Problem('store_unavailable', 'The store of attestations cannot be reached.', {
        cause,
        retryAfterSeconds: RETRY_SECONDS,
      });
    }
  }

  return {
    begin(owner, id) {
      memory.begin(owner, id);
      const key = keyOf(owner, id);
      running.set(key, new Set());
      markPending(key);
    },
    name(owner, id, completionId) {
      memory.name(owner, id, completionId);
      const ttl_ms = options.max_answer_ms + options.attest_timeout_ms;
      const [key, named] = [keyOf(owner, id), keyOf(owner, completionId)];
      running.get(key)?.add(named);
      set(named, ALIAS + key, ttl_ms, { condition: 'NX' }).catch(ignore);
    },
    keep(owner, id, completionId, attestation) {
      memory.keep(owner, id, completionId, attestation);
      const key = keyOf(owner, id);
      const named = new Set(running.get(key));
      if (completionId !== null) named.add(keyOf(owner, completionId));
      named.delete(key);
      running.delete(key);
      const stored =
        'members' in attestation ? setInBatch(key, attestation) : set(key, attestation, attestation_ttl_ms);
      // When the attestation cannot be stored, for instance on a full server, the pending entry is removed.
      stored.catch(() => drop(key));
      for (const one of named) set(one, ALIAS + key, attestation_ttl_ms).catch(ignore);
    },
    drop(owner, id) {
      memory.drop(owner, id);
      const key = keyOf(owner, id);
      running.delete(key);
      drop(key);
    },
    find: (owner, id) => memory.find(owner, id) ?? findOnServer(owner, id),
    get usage() {
      return memory.usage;
    },
    get reachable() {
      return connection.isReady;
    },
    async close() {
      clearInterval(renewing);
      memory.close();
      await connection.close();
    },
  };
}
