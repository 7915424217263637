// What the routes share: the things they are built from, and what an exchange carries through Hono.
import type { IncomingMessage } from 'node:http';
import type { Context as HonoContext } from 'hono';
import type { Logger } from 'pino';
import type { Attestor } from '../attestation/attest.ts';
import type { Sidecar } from '../attestation/sidecar-client.ts';
import type { Store } from '../attestation/store-memory.ts';
import type { Backend } from '../backend/backend.ts';
import type { GatewayConfig } from '../config.ts';
import type { Caller, Keys, Owner } from '../keys/keys.ts';
import type { Concurrency, ConcurrencyPermit } from '../limits/concurrency.ts';
import type { Rates } from '../limits/rates.ts';
import type { Offload } from '../offload/pool.ts';
import type { Outcome, Telemetry, Watch } from '../telemetry/telemetry.ts';
import type { Verifier } from '../verifier/verifier.ts';
import type { PlainRequest } from './plain-path/request.ts';
import type { Outgoing } from './plain-path/response.ts';

export interface Deps {
  readonly config: GatewayConfig;
  readonly backend: Backend;
  readonly sidecar: Sidecar;
  readonly store: Store;
  readonly offload: Offload;
  readonly attestor: Attestor;
  readonly keys: Keys;
  readonly concurrency: Concurrency;
  readonly rates: Rates;
  readonly verifier: Verifier;
  readonly log: Logger;
  readonly telemetry: Telemetry;
  readonly version: string;
  /** True from SIGTERM on. */
  readonly draining: () => boolean;
}

/** The two ends of an exchange: Node's own, or those of the plain path. */
export interface HttpBindings {
  readonly incoming: IncomingMessage | PlainRequest;
  readonly outgoing: Outgoing;
}

/** An exchange's ends, and what is learned of it on the way. Members of one object: Hono's variables are a Map, and cost like one. */
export interface Bindings extends HttpBindings {
  /** Unguessable, ours. */
  id: string;
  /** Admission sets this, `owner` and `permit`: routes without it must not read them. */
  caller: Caller;
  owner: Owner;
  permit: ConcurrencyPermit;
  /** The client's, on the verify endpoint alone. */
  address: string;
  outcome: Outcome;
  watch: Watch;
}

export interface Env {
  Bindings: Bindings;
}

export type Context = HonoContext<Env>;

/** What comes before a route is served. @throws {Problem} which becomes the answer. */
export type Middleware = (c: Context) => void | Promise<void>;
/** What serves a route. */
export type Handler = (c: Context) => Response | Promise<Response>;
