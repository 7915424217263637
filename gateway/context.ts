// What the routes share: the things they are built from, and what an exchange carries through Hono.
import type { HttpBindings } from '@hono/node-server';
import type { Context as HonoContext } from 'hono';
import type { Logger } from 'pino';
import type { Attestor } from './attestor.ts';
import type { GatewayConfig } from './config.ts';
import type { Outcome } from './delivery/exchange.ts';
import type { Engine } from './engine/client.ts';
import type { Caller, Owner } from './keys/caller.ts';
import type { Keys } from './keys/keys.ts';
import type { Rates } from './limits/rates.ts';
import type { Seat, Seats } from './limits/seats.ts';
import type { Sidecar } from './sidecar/client.ts';
import type { Store } from './store/store.ts';

export interface Deps {
  readonly config: GatewayConfig;
  readonly engine: Engine;
  readonly sidecar: Sidecar;
  readonly store: Store;
  readonly attestor: Attestor;
  readonly keys: Keys;
  readonly seats: Seats;
  readonly rates: Rates;
  readonly log: Logger;
  readonly version: string;
}

export interface Env {
  Bindings: HttpBindings;
  Variables: {
    /** Unguessable, ours. */
    id: string;
    /** Set by the admission, as are its place and the owner: under /v1 alone. */
    caller: Caller;
    owner: Owner;
    seat: Seat;
    outcome: Outcome;
  };
}

export type Context = HonoContext<Env>;
