// What the routes share: their dependencies, and the state of one exchange, which Hono hands from middleware to handler.
import type { Context as HonoContext } from 'hono';
import type { Logger } from 'pino';
import type { Attestor, Sidecar, Store } from '../attestation/interfaces.ts';
import type { Backend, Backends, Canary } from '../backend/backend.ts';
import type { GatewayConfig } from '../config.ts';
import type { Caller, Keys, Owner } from '../keys/keys.ts';
import type { Concurrency, ConcurrencyPermit } from '../limits/concurrency.ts';
import type { Rates } from '../limits/rates.ts';
import type { Offload } from '../offload/pool.ts';
import type { SealingKeys } from '../sealing/keys.ts';
import type { Outcome, Telemetry, Watch } from '../telemetry/telemetry.ts';
import type { AuditLog } from '../usage/audit-log.ts';
import type { UsageBook } from '../usage/usage.ts';
import type { Verifier } from '../verifier/verifier.ts';
import type { Outgoing } from './outgoing.ts';
import type { PlainRequest } from './plain-path/request.ts';
import type { StreamedRequest } from './request.ts';

export interface Deps {
  readonly config: GatewayConfig;
  readonly backend: Backend;
  /** `backend`, where it is several (BACKENDS_FILE); else null. */
  readonly backends: Backends | null;
  readonly canary: Canary;
  readonly sidecar: Sidecar;
  readonly store: Store;
  readonly offload: Offload;
  readonly attestor: Attestor;
  readonly keys: Keys;
  readonly concurrency: Concurrency;
  readonly rates: Rates;
  readonly book: UsageBook;
  /** null: there is no audit log. */
  readonly audit: AuditLog | null;
  readonly verifier: Verifier;
  /** null: SEALED=off. */
  readonly sealing: SealingKeys | null;
  readonly log: Logger;
  readonly telemetry: Telemetry;
  readonly version: string;
  /** True from SIGTERM on. */
  readonly draining: () => boolean;
}

/** The request and response of an exchange: Node's own, those of the plain path, or those inside of a sealed request. */
export interface HttpBindings {
  readonly incoming: StreamedRequest | PlainRequest;
  readonly outgoing: Outgoing;
  /** The request came sealed. */
  readonly sealed?: boolean;
}

/** The state of an exchange. It is one object, because Hono's variables are a Map and cost as much as one. */
export interface Bindings extends HttpBindings {
  /** The id of this exchange, made by the gateway and not guessable. */
  id: string;
  /** Admission sets this, `owner` and `permit`: routes without it must not read them. */
  caller: Caller;
  owner: Owner;
  permit: ConcurrencyPermit;
  /** The client's address. Only the verify endpoint sets it. */
  address: string;
  outcome: Outcome;
  watch: Watch;
}

export interface Env {
  Bindings: Bindings;
}

export type Context = HonoContext<Env>;

/** Runs before the handler of a route. @throws {Problem} which becomes the response. */
export type Middleware = (c: Context) => void | Promise<void>;
/** Serves a route. */
export type Handler = (c: Context) => Response | Promise<Response>;
