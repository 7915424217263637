// The interfaces between the parts of attestation, and to the routes: the attestor, the sidecar, its sessions, the store.
import type { Batch } from '../../proto/attestation/batch.ts';
import type { BatchGroup, Hello, KeysFrame, Phases } from '../../proto/attestation/frames.ts';
import type { Nonce } from '../../proto/attestation/raw.ts';
import type { FailureCode } from '../../verify/index.ts';
import type { Outgoing } from '../http/body.ts';
import type { Owner } from '../keys/keys.ts';
import type { Watch } from '../telemetry/watch.ts';
import type { Body, Folded } from '../threads/jobs.ts';

/**
 * The attestation in UTF-8. The promise of it may outlive its use and would keep the bytes in memory, so the caller replaces them with
 * `EMPTY`.
 */
interface AttestationJson {
  json: Buffer;
  /** Number of responses under the same nonce, this one included; null: the nonce is not shared. */
  readonly tree_size: number | null;
}

/** An exchange whose response is attested. */
export interface AttestedExchange {
  /** Unguessable. It is sent as x-request-id and x-attestation-id. */
  readonly id: string;
  readonly owner: Owner;
  /** The request's path, without its query. */
  readonly endpoint: string;
  /** The client's body, exactly as received, as text or bytes. */
  readonly request: string | Buffer;
  /** The client asks for the short form. */
  readonly compact: boolean;
  /** The group of responses that may share a nonce with this one; null: none may. */
  readonly batch: BatchGroup | null;
  readonly outgoing: Outgoing;
  readonly watch: Watch;
}

export interface Attestor {
  /** Registers an id that the backend gave the completion. From then on a lookup by that id reports the attestation as pending. */
  name(exchange: AttestedExchange, completionId: string): void;
  /**
   * `onDisconnect` registers a callback for the client's disconnect.
   * @throws {Problem} backend_bad_response, attestation_unavailable.
   * @throws {ClientGone}
   */
  attest(
    exchange: AttestedExchange,
    response: Body | Folded,
    onDisconnect: (callback: () => void) => void,
  ): Promise<AttestationJson>;
}

/**
 * A stored attestation: its JSON in UTF-8, or `pending` while its response still runs. A Buffer's bytes are outside of the
 * garbage-collected heap.
 */
export type Kept = { readonly state: 'ready'; readonly json: Buffer<ArrayBuffer> } | { readonly state: 'pending' };

/** Token and evidence of an attestation. All responses of a batch share one object. */
export interface TokenAndEvidence {
  readonly nonce: string;
  /** The members `token` and `evidence` as JSON without braces, in UTF-8. */
  readonly json: Buffer<ArrayBuffer>;
}

/** What compact attestations have in common: of a batch token and evidence, and the session where a processor signs (bundle.ts). */
export interface Bundle {
  /** SHA-256 of `json`, in hex. */
  readonly sha256: string;
  /** One JSON object: `token` and `evidence`, or `cpu`, or all three in this order. */
  readonly json: Buffer<ArrayBuffer>;
  /** Where `cpu` begins in it, with the character before its name; its last byte where there is no session. */
  readonly cpu_at: number;
}

/** An attestation in parts. */
export interface AttestationParts {
  /** `{"raw":…,"nonce":"…"`, and of a strict one `,"token":…,"evidence":…`. */
  readonly start: Buffer<ArrayBuffer>;
  /** `,"batch":{…}`; empty for a strict one. */
  readonly own: string;
  /** The session and its key's signature; null where no processor signs. */
  readonly signed: { readonly session: string; readonly signature: string } | null;
  /** null: it shares nothing. */
  readonly bundle: Bundle | null;
}

/** Storing never fails for its caller, because the response carries its attestation anyway. Only `find` reports errors. */
export interface Store {
  begin(owner: Owner, id: string): void;
  /** Registers an id of the completion while its stream runs. Until {@link keep}, another response's attestation under it stays. */
  name(owner: Owner, id: string, completionId: string): void;
  /** Stores the attestation under its id, `completionId` and all registered ids, and its bundle once for all that share it. */
  keep(owner: Owner, id: string, completionId: string | null, proof: AttestationParts, compact: boolean): void;
  drop(owner: Owner, id: string): void;
  /** Returns at once when the attestation is in this process's memory. @throws {Problem} store_unavailable */
  find(owner: Owner, id: string): Kept | null | Promise<Kept | null>;
  /** A bundle's JSON. @throws {Problem} store_unavailable */
  findBundle(sha256: string): Buffer<ArrayBuffer> | null | Promise<Buffer<ArrayBuffer> | null>;
  /** Entries and bytes in this process's memory. */
  readonly usage: { readonly entries: number; readonly bytes: number };
  /** Whether the server that gateways share can be reached; null: there is none. */
  readonly reachable: boolean | null;
  close(): void | Promise<void>;
}

/** An attestation that was checked. */
export interface Attested {
  /** Merkle proof of raw under the nonce; null: the nonce is the SHA-256 of raw. */
  readonly batch: Batch | null;
  /** One object for all responses of a batch. The caller drops it after use. */
  members: TokenAndEvidence;
  /** The session, and its key's signature over this response; null where no processor signs. */
  readonly cpu: { readonly session: Session; readonly signature: string } | null;
  readonly phases: Phases | undefined;
  /** The devices that signed, by their `ueid`. */
  readonly devices: readonly string[];
  /** False: the devices are simulated. */
  readonly genuine: boolean;
}

/** raw names another session than the sidecar's current one, and must be drafted again. */
export class SessionChanged extends Error {
  override readonly name = 'SessionChanged';
}

interface AttestOptions {
  /** The start of the timeout, by performance.now(). */
  readonly began_ms?: number;
  /** The group of responses that may share a nonce with this one; null: none may. */
  readonly batch?: BatchGroup | null;
  /** The session that raw names. */
  readonly session?: string | undefined;
}

/** A checked session of the sidecar with its processor. */
export interface Session {
  /** SHA-256 of the statement, in hex. */
  readonly id: string;
  readonly statement: string;
  /** JSON of the member `cpu`, without a signature. */
  readonly cpu: string;
  /** JSON of the evidence over the statement. */
  readonly gpu: string;
}

/** Codes of a refused sidecar beside those of failed checks. */
export const REFUSAL_CODES = [
  'socket_owner',
  'socket_mode',
  'socket_kind',
  'other_protocol',
  'simulated',
  'batch_refused',
] as const;

/** The reason why a sidecar may not be used. */
export interface Refusal {
  readonly code: (typeof REFUSAL_CODES)[number] | FailureCode;
  readonly message: string;
}

/** The states of the connection to the sidecar. */
export const SIDECAR_STATES = ['connecting', 'connected', 'refused', 'closed'] as const;
export type SidecarState = (typeof SIDECAR_STATES)[number];
/** Unix times at which the processor's session and its collateral end, for the metrics. */
export interface SessionEnds {
  /** `SEV_SNP`, `TDX`, … */
  readonly type: string;
  readonly session_ms: number;
  /** The end of the first part of Intel's collateral; null without readable collateral. */
  readonly collateral_ms: number | null;
}

export interface Sidecar {
  readonly state: SidecarState;
  /** Set in the state `refused`; null in every other state. */
  readonly refused: Refusal | null;
  /** The hello of the connected sidecar. */
  readonly hello: Hello | null;
  /** The reason why the connected sidecar cannot attest, as it reports it; null when it can. */
  readonly unavailable: Hello['trouble'];
  /** The session in which responses are signed; null without one. */
  readonly session: Session | null;
  /** Resolves when the last session that the sidecar sent has been checked. */
  sessionChecked(): Promise<void>;
  /** When that session ends; null without one. */
  readonly sessionEnds: SessionEnds | null;
  /** Sends the connected sidecar the keys for sealed requests; does nothing where none is connected. */
  sendKeys(frame: KeysFrame): void;
  /**
   * Returns a session that contains this challenge. Where the sidecar makes another one, the request is repeated.
   * @throws {Problem} not_found, attestation_unavailable, overloaded
   */
  challenge(challenge: string, timeout_ms: number): Promise<Session>;
  /** Number of attestations that are pending, and of requests that wait for a sidecar that is away. */
  readonly pending: number;
  /** The time for which the oldest of both has waited; 0 without one. */
  readonly oldest_ms: number;
  /** Resolves as soon as a sidecar is connected. @throws {Problem} attestation_unavailable after `wait_ms`. */
  ready(wait_ms: number): Promise<void>;
  /**
   * Returns the sidecar's checked attestation of `raw` (UTF-8), whose SHA-256 is `digest`. The request waits for a permit of its owner
   * and is repeated after a reconnect. `onDisconnect` is called once, with a callback that abandons the request.
   * @throws {SessionChanged}
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
