// The dependencies of the routes, and the state of one exchange, which Hono passes from middleware to handler.
import type { Context as HonoContext } from 'hono';
import type { Logger } from 'pino';
import type { Attestor, Sidecar, Store } from '../attestation/interfaces.ts';
import type { Backend, Backends, Canary } from '../backend/backend.ts';
import type { GatewayConfig } from '../base/config.ts';
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
import type { StreamedRequest } from './request.ts';

export interface Deps {
  readonly config: GatewayConfig;
  readonly backend: Backend;
  /** The same object as `backend` with BACKENDS_FILE; null without it. */
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

/** The request and response of an exchange: Node's own, or those of an opened sealed request. */
export interface HttpBindings {
  readonly incoming: StreamedRequest;
  readonly outgoing: Outgoing;
  /** The request was sealed. */
  readonly sealed?: boolean;
}

/** The state of an exchange. It is one object and not Hono's variables, because those would cost a Map for each exchange. */
export interface Bindings extends HttpBindings {
  /** The id of this exchange, made by the gateway and not guessable. */
  id: string;
  /** Admission sets this, `owner` and `permit`. Routes without admission must not read them. */
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
