// What can go wrong between the gateway and the backend, before it becomes a problem that a client reads.

export type FaultKind =
  /** No connection came about. */
  | 'unreachable'
  /** Silence for longer than allowed. */
  | 'silent'
  /** Bytes that are no HTTP/1.1 answer. */
  | 'not_http'
  /** An answer that was on its way before the request was: it is to nothing. */
  | 'not_asked'
  /** The connection ended before the answer did. */
  | 'hung_up'
  /** The gateway ended it: its own time was over. */
  | 'stopped';

/** Backend internals (addresses, parser texts) stay in here: they are for nobody outside. */
export class BackendFault extends Error {
  override readonly name = 'BackendFault';
  readonly kind: FaultKind;

  constructor(kind: FaultKind, message: string) {
    super(message);
    this.kind = kind;
  }
}
