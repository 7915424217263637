// The state of one exchange, which Hono passes from middleware to handler.
import type { Context as HonoContext } from 'hono';
import type { Caller, Owner } from '../keys/keys.ts';
import type { ConcurrencyPermit } from '../limits/concurrency.ts';
import type { Outcome, Watch } from '../telemetry/watch.ts';
import type { Outgoing, StreamedRequest } from './body.ts';

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
  /** The API key's LLM tokens a day; absent: it has no budget, or the request costs none. */
  budget?: number;
  /** The client's address. Only the verify endpoint and that of sealed requests set it. */
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
