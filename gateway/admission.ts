// Who may come in: the key, the places there are, the rate. Before a byte of the body is read, but for the place among all, which is for what is here.
import { ClientGone } from './body.ts';
import type { Context, Deps, Step } from './context.ts';
import { addressOf } from './limits/address.ts';
import type { Allowance } from './limits/rates.ts';
import { Problem } from './problem.ts';
import { leaveUnread } from './refusal.ts';
import type { Outgoing } from './wire/answer.ts';

/** Names the caller, by the key. */
export function authenticated({ keys }: Deps): Step {
  return (c) => {
    const caller = keys.authenticate(c.env.incoming.headers.authorization);
    c.env.caller = caller;
    c.env.owner = caller.owner;
  };
}

/** For routes without a body: their requests are here whole. @throws {Problem} overloaded */
export const withoutBody: Step = (c) => c.env.seat.whole();

/** Past capacity a request is refused at once, so that those accepted are served. Without a rate nothing is waited for. */
export function bounded({ config, seats, rates }: Deps): Step {
  return (c) => {
    const { outgoing } = c.env;
    const caller = c.env.caller;
    const seat = seats.take(caller);
    c.env.seat = seat;
    whenTaken(outgoing, () => seat.leave());
    const per_second = caller.limits.rps ?? config.max_requests_per_second_per_key;
    const rated = () =>
      per_second === 0
        ? undefined
        : rates.take(`key:${caller.name}`, per_second).then((allowance) => admit(c, allowance, 'this API key'));
    return seat.begin === undefined ? rated() : seat.begin().then(rated);
  };
}

/** The verify endpoint is open to everybody: a rate for each address. What it takes beyond that is shared by address too. */
export function verifyBounded({ config, rates }: Deps): Step {
  return async (c) => {
    const { incoming, outgoing } = c.env;
    const address = addressOf(incoming.headers, outgoing.socket, config.client_address_header);
    c.env.address = address;
    leaveUnread(incoming, outgoing);
    if (config.max_verify_per_second > 0)
      admit(c, await rates.take(`verify:${address}`, config.max_verify_per_second), 'verifications from one address');
    // Its end has been told already, and would not be told again.
    if (outgoing.destroyed) throw new ClientGone('the client left before its turn');
  };
}

/** The headers by which OpenAI's clients know a rate. @throws {Problem} rate_limit_exceeded */
function admit(c: Context, { allowed, limit, remaining, reset_ms }: Allowance, what: string): void {
  const { outgoing } = c.env;
  outgoing.setHeader('x-ratelimit-limit-requests', String(limit));
  outgoing.setHeader('x-ratelimit-remaining-requests', String(remaining));
  outgoing.setHeader('x-ratelimit-reset-requests', `${Math.ceil(reset_ms)}ms`);
  if (!allowed)
    throw new Problem('rate_limit_exceeded', `The rate limit is ${limit} requests a second for ${what}.`, {
      retryAfterSeconds: reset_ms / 1000,
    });
}

/** Not when the answer is made but when the client has it, or is gone: until then it costs memory. Called once. */
function whenTaken(outgoing: Outgoing, release: () => void): void {
  outgoing.once('close', () => {
    const { socket } = outgoing;
    if (socket === null || socket.destroyed || !socket.writableNeedDrain) return release();
    const taken = () => {
      socket.off('drain', taken).off('close', taken);
      release();
    };
    socket.once('drain', taken).once('close', taken);
  });
}
