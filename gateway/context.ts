// What the routes share: the things they are built from, and what an exchange carries through Hono.
import type { HttpBindings } from '@hono/node-server';
import type { Context as HonoContext } from 'hono';
import type { Logger } from 'pino';
import type { Attestor } from './attestor.ts';
import type { GatewayConfig } from './config.ts';
import type { Outcome } from './delivery/exchange.ts';
import type { Engine } from './engine/client.ts';
import type { Keys, Owner } from './keys.ts';
import type { Sidecar } from './sidecar/client.ts';
import type { Store } from './store.ts';
import type { Telemetry } from './telemetry/telemetry.ts';
import type { Watch } from './telemetry/watch.ts';

export interface Deps {
  readonly config: GatewayConfig;
  readonly engine: Engine;
  readonly sidecar: Sidecar;
  readonly store: Store;
  readonly attestor: Attestor;
  readonly keys: Keys;
  readonly log: Logger;
  readonly telemetry: Telemetry;
  readonly version: string;
}

export interface Env {
  Bindings: HttpBindings;
  Variables: {
    /** Unguessable, ours. */
    id: string;
    owner: Owner;
    outcome: Outcome;
    watch: Watch;
    /** The name of the API key that asked, for the log; never the key. */
    key?: string;
  };
}

export type Context = HonoContext<Env>;
