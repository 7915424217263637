// Who asks: the owner of what is kept for them, the name that logs may hold, and what this key may do.

/** Whoever asked: attestations are kept for the owner that caused them. A digest of the key, never the key itself. */
export type Owner = string;

/** What one key may do. null: the gateway's default for all keys. 0: no limit. */
export interface KeyLimits {
  /** Requests in any second. */
  readonly rps: number | null;
  /** Requests at once. */
  readonly concurrent: number | null;
  /** Streams at once. */
  readonly streams: number | null;
  /** Requests with tee at once, those that wait for their attestation included. */
  readonly tee: number | null;
  /** null: every model that the backend has. */
  readonly models: ReadonlySet<string> | null;
  /** It may use the routes that manage the backend. */
  readonly admin: boolean;
}

export interface Caller {
  readonly owner: Owner;
  /** Unique, and no secret: what logs, metrics and limits know the key by. */
  readonly name: string;
  readonly limits: KeyLimits;
}

export const NO_LIMITS: KeyLimits = {
  rps: null,
  concurrent: null,
  streams: null,
  tee: null,
  models: null,
  admin: false,
};

/** Everybody, where no keys are configured: whoever is on the machine, which is theirs to manage. */
export const ANYONE: Caller = { owner: 'anyone', name: 'anyone', limits: { ...NO_LIMITS, admin: true } };
