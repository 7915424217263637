// Keeps attestations in Valkey or Redis beside this process's memory, so that any gateway finds the attestations of all.
import { hash } from 'node:crypto';
import { RESP_TYPES } from '@redis/client';
import { EMPTY } from '../base/bytes.ts';
import { Problem } from '../base/problem.ts';
import type { Connection } from '../base/store-connection.ts';
import type { Owner } from '../keys/keys.ts';
import { compactJson, wholeJson } from './bundle.ts';
import type { AttestationParts, Bundle, Kept, Store } from './interfaces.ts';
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
/** Prefix of a value that holds the key of another entry. */
const ALIAS = '=';
const AS_BYTES = { [RESP_TYPES.BLOB_STRING]: Buffer };
/** Limit for values on their way to the server. Beyond it an attestation is stored in this process only. */
const MAX_IN_FLIGHT_BYTES = 64 * 1024 * 1024;
/** Prefix of an attestation in parts, after which its first line has all but `start`. */
const IN_PARTS = '&';
/** Bundles are kept longer than attestations by this time, and set again after half of it, so that no attestation outlives its own. */
const BUNDLE_MORE_MS = 60_000;
const RETRY_SECONDS = 2;
/** Errors are ignored: the connection's state is logged, and the response carries its attestation in any case. */
const ignore = () => {};

// Keys are hashed so that they reveal neither owners nor ids.
const keyOf = (owner: Owner, id: string) => `countersign:attestation:${hash('sha256', `${owner} ${id}`, 'base64url')}`;
const bundleKey = (sha256: string) => `countersign:bundle:${sha256}`;

/** The first line of an attestation in parts. */
interface Parts extends Pick<AttestationParts, 'own' | 'signed'> {
  readonly compact: boolean;
  readonly bundle: Pick<Bundle, 'sha256' | 'cpu_at'> | null;
}

/** The entries on the server, by key. */
function createEntries(connection: Connection, attestation_ttl_ms: number) {
  let in_flight_bytes = 0;
  const bundlesSet = new WeakMap<Bundle, { readonly at_ms: number; readonly done: Promise<void> }>();

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

  /** Sets a bundle once for all that share it. @throws {Error} where it could not be stored. */
  function setBundle(bundle: Bundle): Promise<void> {
    const last = bundlesSet.get(bundle);
    if (last !== undefined && performance.now() - last.at_ms < BUNDLE_MORE_MS / 2) return last.done;
    const done = set(bundleKey(bundle.sha256), bundle.json, attestation_ttl_ms + BUNDLE_MORE_MS);
    bundlesSet.set(bundle, { at_ms: performance.now(), done });
    // The next attestation that shares it tries again.
    done.catch(() => bundlesSet.delete(bundle));
    return done;
  }

  async function setProof(
    key: string,
    { start, own, signed, bundle }: AttestationParts,
    compact: boolean,
  ): Promise<void> {
    if (bundle !== null) await setBundle(bundle);
    const shared = bundle === null ? null : { sha256: bundle.sha256, cpu_at: bundle.cpu_at };
    const head = JSON.stringify({ own, signed, compact, bundle: shared } satisfies Parts);
    await set(key, Buffer.concat([Buffer.from(`${IN_PARTS}${head}\n`), start]), attestation_ttl_ms);
  }

  async function find(key: string, alias = false): Promise<Kept | null> {
    const value = await connection.run((client) => client.withTypeMapping(AS_BYTES).get(key));
    if (value === null) return null;
    if (value[0] === IN_PARTS.charCodeAt(0)) return inParts(value);
    const text = value.toString('latin1');
    if (!text.startsWith(ALIAS)) return { state: 'pending' };
    // A backend that names our ids could make aliases of aliases.
    return alias ? null : find(text.slice(ALIAS.length), true);
  }

  const findBundle = (sha256: string) =>
    connection.run((client) =>
      client.withTypeMapping(AS_BYTES).get(bundleKey(sha256)),
    ) as Promise<Buffer<ArrayBuffer> | null>;

  async function inParts(value: Buffer): Promise<Kept | null> {
    const end = value.indexOf('\n');
    const { own, signed, compact, bundle: shared } = JSON.parse(value.toString('utf8', 1, end)) as Parts;
    const start = Buffer.from(value.subarray(end + 1));
    // The short form names its bundle and does not have it.
    const json = shared === null || compact ? EMPTY : await findBundle(shared.sha256);
    if (json === null) return null;
    const proof = { start, own, signed, bundle: shared === null ? null : { ...shared, json } };
    return { state: 'ready', json: compact ? compactJson(proof) : wholeJson(proof) };
  }

  return {
    set,
    setProof,
    findBundle,
    find,
    drop: (key: string) => void connection.run((client) => client.del(key)).catch(ignore),
  };
}

/** `memory` is the store of this gateway. */
export function createSharedStore(connection: Connection, memory: MemoryStore, options: SharedOptions): Store {
  const { attestation_ttl_ms } = options;
  const { set, setProof, find, findBundle, drop } = createEntries(connection, attestation_ttl_ms);
  const markPending = (key: string) => void set(key, PENDING, PENDING_MS).catch(ignore);

  /** The keys of responses that are not complete, each with those of its completion's ids. */
  const running = new Map<string, Set<string>>();
  const renewing = setInterval(() => {
    for (const key of running.keys()) markPending(key);
  }, RENEW_MS).unref();

  async function onServer<T>(found: Promise<T>): Promise<T> {
    try {
      return await found;
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
    keep(owner, id, completionId, proof, compact) {
      memory.keep(owner, id, completionId, proof, compact);
      const key = keyOf(owner, id);
      const named = new Set(running.get(key));
      if (completionId !== null) named.add(keyOf(owner, completionId));
      named.delete(key);
      running.delete(key);
      // When the attestation cannot be stored, for instance on a full server, the pending entry is removed.
      setProof(key, proof, compact).catch(() => drop(key));
      for (const one of named) set(one, ALIAS + key, attestation_ttl_ms).catch(ignore);
    },
    drop(owner, id) {
      memory.drop(owner, id);
      const key = keyOf(owner, id);
      running.delete(key);
      drop(key);
    },
    find: (owner, id) => memory.find(owner, id) ?? onServer(find(keyOf(owner, id))),
    findBundle: (sha256) => memory.findBundle(sha256) ?? onServer(findBundle(sha256)),
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
