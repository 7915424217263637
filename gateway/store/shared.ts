// Keeps attestations in Valkey or Redis beside this process's own memory: any gateway finds what any of them made.
import { hash } from 'node:crypto';
import { RESP_TYPES } from '@redis/client';
import type { Owner } from '../keys/caller.ts';
import { Problem } from '../problem.ts';
import type { Connection } from './connection.ts';
import type { MemoryStore } from './memory.ts';
import type { Kept, Store } from './store.ts';

export interface SharedOptions {
  readonly attestation_ttl_ms: number;
  /** The longest that an answer may run, and so be known by its completion's id. */
  readonly max_answer_ms: number;
  readonly attest_timeout_ms: number;
}

const PENDING = 'pending';
/** A gateway that is killed drops nothing: what nobody renews is over after this. */
const PENDING_MS = 60_000;
const RENEW_MS = 20_000;
/** Before the name of the entry that holds the attestation, which itself begins with a brace. */
const ALIAS = '=';
const AS_BYTES = { [RESP_TYPES.BLOB_STRING]: Buffer };
/** On their way to the server; past it an attestation is kept here alone. */
const MAX_UNSENT_BYTES = 64 * 1024 * 1024;
const BRACE = 0x7b;
const RETRY_SECONDS = 2;
/** The connection's own state is in the log; the answer carries its attestation whether it was kept or not. */
const quietly = () => {};

/** `own`: the store of this gateway, of which `memory` may be one worker's part. */
export function createSharedStore(
  connection: Connection,
  memory: MemoryStore,
  own: Store,
  options: SharedOptions,
): Store {
  let unsent = 0;
  // Neither owners nor ids are to be read from the names of the entries.
  const keyOf = (owner: Owner, id: string) =>
    `countersign:attestation:${hash('sha256', `${owner} ${id}`, 'base64url')}`;

  async function set(
    key: string,
    value: string | Buffer,
    ttl_ms: number,
    more: { condition?: 'NX' } = {},
  ): Promise<void> {
    if (unsent + value.length > MAX_UNSENT_BYTES) throw new Error('too much is on its way');
    unsent += value.length;
    try {
      await connection.run((client) => client.set(key, value, { expiration: { type: 'PX', value: ttl_ms }, ...more }));
    } finally {
      unsent -= value.length;
    }
  }

  const drop = (key: string) => void connection.run((client) => client.del(key)).catch(quietly);
  const pend = (key: string) => void set(key, PENDING, PENDING_MS).catch(quietly);

  const running = new Set<string>();
  const renewing = setInterval(() => running.forEach(pend), RENEW_MS).unref();

  async function fromServer(key: string): Promise<Kept | null> {
    const value = await connection.run((client) => client.withTypeMapping(AS_BYTES).get(key));
    if (value === null) return null;
    if (value[0] === BRACE) return { state: 'ready', json: Buffer.from(value) };
    const text = value.toString('latin1');
    return text.startsWith(ALIAS) ? fromServer(text.slice(ALIAS.length)) : { state: 'pending' };
  }

  async function findFar(owner: Owner, id: string): Promise<Kept | null> {
    try {
      const far = await fromServer(keyOf(owner, id));
      if (far !== null) return far;
    } catch (cause) {
      const near = await own.find(owner, id);
      if (near !== null) return near;
      throw new Problem('store_unavailable', 'The store of attestations cannot be reached.', {
        cause,
        retryAfterSeconds: RETRY_SECONDS,
      });
    }
    // The server may have had no room for what another worker has.
    return own.find(owner, id);
  }

  return {
    begin(owner, id) {
      memory.begin(owner, id);
      const key = keyOf(owner, id);
      running.add(key);
      pend(key);
    },
    name(owner, id, completionId) {
      memory.name(owner, id, completionId);
      const ttl_ms = options.max_answer_ms + options.attest_timeout_ms;
      set(keyOf(owner, completionId), ALIAS + keyOf(owner, id), ttl_ms, { condition: 'NX' }).catch(quietly);
    },
    keep(owner, id, completionId, json) {
      memory.keep(owner, id, completionId, json);
      const key = keyOf(owner, id);
      running.delete(key);
      const { attestation_ttl_ms } = options;
      // Where it cannot be kept, a full server for one, it is no longer pending either.
      set(key, json, attestation_ttl_ms).catch(() => drop(key));
      if (completionId !== null) set(keyOf(owner, completionId), ALIAS + key, attestation_ttl_ms).catch(quietly);
    },
    drop(owner, id) {
      memory.drop(owner, id);
      const key = keyOf(owner, id);
      running.delete(key);
      drop(key);
    },
    find: (owner, id) => memory.find(owner, id) ?? findFar(owner, id),
    get usage() {
      return memory.usage;
    },
    async close() {
      clearInterval(renewing);
      memory.close();
      await connection.close();
    },
  };
}
