// Where attestations are kept for clients that drop unknown members: by our id and by the completion's, for whoever asked.
import type { Owner } from '../keys/caller.ts';

/** The attestation's JSON in UTF-8, or that its stream still runs. Bytes lie outside of the heap that is collected. */
export type Kept = { readonly state: 'ready'; readonly json: Buffer<ArrayBuffer> } | { readonly state: 'pending' };

/** Keeping is a service beside the answer, which carries its attestation anyway: only `find` can fail, and it says so. */
export interface Store {
  begin(owner: Owner, id: string): void;
  /** The completion's own id is known while its stream runs. What is kept under it already, from another answer, stays. */
  name(owner: Owner, id: string, completionId: string): void;
  /** The attestation is there; from now on the completion's own id finds it too. */
  keep(owner: Owner, id: string, completionId: string | null, json: Buffer<ArrayBuffer>): void;
  drop(owner: Owner, id: string): void;
  /** At once where it is in this process's memory. @throws {Problem} store_unavailable */
  find(owner: Owner, id: string): Kept | null | Promise<Kept | null>;
  /** Of this process's memory. */
  readonly usage: { readonly entries: number; readonly bytes: number };
  close(): void | Promise<void>;
}
