// What the parts of attestation are to one another and to the routes: the attestor, the sidecar, its sessions, the store.
import type { Batch } from '../../proto/batch.ts';
import type { BatchGroup, Hello, Phases } from '../../proto/frames.ts';
import type { Nonce } from '../../proto/raw.ts';
import type { TeeExchange } from '../exchange/relay.ts';
import type { Owner } from '../keys/keys.ts';
import type { Body, Folded } from '../offload/jobs.ts';
import type { SessionEnds } from '../telemetry/metrics.ts';

/**
 * The attestation in UTF-8. The promise that brings it may live on and would keep the bytes in memory, so its reader replaces them with
 * `EMPTY`.
 */
interface AttestationJson {
  json: Buffer;
  /** Answers under the same nonce, this one included; null: the nonce is this answer's alone. */
  readonly tree_size: number | null;
}

export interface Attestor {
  /** Registers the backend's id of the completion. From then on a lookup by that id reports the attestation as pending. */
  name(exchange: TeeExchange, completionId: string): void;
  /**
   * `onDisconnect` registers a callback for the client's disconnect.
   * @throws {Problem} backend_bad_response, attestation_unavailable.
   * @throws {ClientGone}
   */
  attest(
    exchange: TeeExchange,
    response: Body | Folded,
    onDisconnect: (callback: () => void) => void,
  ): Promise<AttestationJson>;
}

/**
 * A stored attestation: its JSON in UTF-8, or `pending` while its response still runs. A Buffer's bytes are outside of the
 * garbage-collected heap.
 */
export type Kept = { readonly state: 'ready'; readonly json: Buffer<ArrayBuffer> } | { readonly state: 'pending' };

/** The members nonce, token and evidence of an attestation. Those of a batch are one object for all of its answers. */
export interface Members {
  readonly nonce: string;
  /** The members as JSON without braces, in UTF-8. */
  readonly json: Buffer<ArrayBuffer>;
  /** Answers that have them in common. */
  readonly sharing: number;
}

/** An attestation out of a batch: its JSON in three parts. */
export interface InBatch {
  readonly start: Uint8Array<ArrayBuffer>;
  readonly members: Members;
  readonly end: Buffer<ArrayBuffer>;
}

/** Storing never fails for its caller, because the response carries its attestation anyway. Only `find` reports errors. */
export interface Store {
  begin(owner: Owner, id: string): void;
  /** Registers the completion's id while its stream runs. An attestation of another response that is stored under it stays. */
  name(owner: Owner, id: string, completionId: string): void;
  /** Stores the attestation under both ids. What a batch has in common is stored once. */
  keep(owner: Owner, id: string, completionId: string | null, attestation: Buffer<ArrayBuffer> | InBatch): void;
  drop(owner: Owner, id: string): void;
  /** Returns at once when the attestation is in this process's memory. @throws {Problem} store_unavailable */
  find(owner: Owner, id: string): Kept | null | Promise<Kept | null>;
  /** Entries and bytes in this process's memory. */
  readonly usage: { readonly entries: number; readonly bytes: number };
  /** Whether the server that gateways share answers; null: there is none. */
  readonly reachable: boolean | null;
  close(): void | Promise<void>;
}

/** An attestation that was checked. */
export interface Attested {
  /** How the nonce commits to raw among others; null: it is the SHA-256 of raw. */
  readonly batch: Batch | null;
  /** One object for all answers of a batch. Its reader drops it after use. */
  members: Members;
  /** Where a processor signs: the session, and its key's signature over this answer. */
  readonly cpu: { readonly session: Session; readonly signature: string } | null;
  readonly phases: Phases | undefined;
  /** The devices that signed, by their `ueid`. */
  readonly devices: readonly string[];
  /** False: the devices are simulated. */
  readonly genuine: boolean;
}

export interface AttestOptions {
  /** The timeout counts from then, by performance.now(). */
  readonly began_ms?: number;
  /** Whose answers may share a nonce with this one; null: nobody's. */
  readonly batch?: BatchGroup | null;
}

/** A session of the sidecar with its processor, checked. */
export interface Session {
  /** SHA-256 of the statement, in hex. */
  readonly id: string;
  readonly statement: string;
  /** JSON of the member `cpu`, without a signature. */
  readonly cpu: string;
  /** JSON of the evidence over the statement. */
  readonly gpu: string;
}

/** The reason why a sidecar may not be used. */
export interface Refusal {
  /** `simulated`, `other_protocol`, a code of SocketRefused or of the verifier. */
  readonly code: string;
  readonly message: string;
}

export type SidecarState = 'connecting' | 'connected' | 'refused' | 'closed';

export interface Sidecar {
  readonly state: SidecarState;
  /** Set in the state `refused`; null in every other state. */
  readonly refused: Refusal | null;
  /** The hello of the connected sidecar. */
  readonly hello: Hello | null;
  /** The reason that the connected sidecar gives why it cannot attest; null when it can. */
  readonly unavailable: Hello['trouble'];
  /** The session that answers are signed in; null without one. */
  readonly session: Session | null;
  /** When that session ends; null without one. */
  readonly sessionEnds: SessionEnds | null;
  /** Hands the sidecar the key configurations of sealed requests, now and at each connection; sessions from now on name the first. */
  tellKeys(hpke: readonly string[]): void;
  /** A session that holds this challenge. @throws {Problem} not_found, overloaded, attestation_unavailable */
  challenge(challenge: string): Promise<Session>;
  /** Number of attestations that are pending. */
  readonly pending: number;
  /** How long the oldest of them has waited; 0 where none waits. */
  readonly oldest_ms: number;
  /** Resolves as soon as a sidecar is connected. @throws {Problem} attestation_unavailable after `wait_ms`. */
  ready(wait_ms: number): Promise<void>;
  /**
   * Returns the sidecar's checked attestation of `raw` (UTF-8), whose SHA-256 is `digest`. The request waits for a permit of its owner
   * and is repeated after a reconnect. `onDisconnect` is called once, with a callback that abandons the request.
   * @throws {Problem} attestation_unavailable, overloaded.
   * @throws {ClientGone} when the client disconnects.
   */
  attest(
    owner: string,
    id: string,
    raw: Uint8Array,
    digest: Nonce,
    onDisconnect: (callback: () => void) => void,
    options?: AttestOptions,
  ): Promise<Attested>;
  close(): void;
}
