// `node bench/programs/telemetry.ts`: what watching, counting and logging one request costs, in microseconds of processor time.
import { openSync, writeSync } from 'node:fs';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { Hono } from 'hono';
import type { Env } from '../../gateway/http/context.ts';
import { createLog, type Out } from '../../gateway/telemetry/log.ts';
import { createTelemetry, type Telemetry, type Watch } from '../../gateway/telemetry/telemetry.ts';

const ROUNDS = 5;
const REQUESTS = 40_000;
/** Requests to one turn of the event loop, as under load. */
const TURN = 8;
const TOKENS = 64;

const ID = 'req-00000000000000000000000000000000';
const ROUTE = '/v1/chat/completions';
const incoming = { method: 'POST', url: ROUTE, headers: {} };

/** One request through the router, with and without its telemetry, so that the router is no part of the figure. */
function appOf(telemetry: Telemetry | null, act: (watch: Watch) => void) {
  const app = new Hono<Env>();
  app.post(ROUTE, (c) => {
    const watch = telemetry?.begin({});
    c.env.id = ID;
    if (watch !== undefined) {
      c.env.watch = watch;
      act(watch);
    }
    c.env.outcome = { status: 200 };
    if (watch !== undefined) telemetry?.end(c.env, watch, ROUTE, RESPONSE_ALREADY_SENT);
    return RESPONSE_ALREADY_SENT;
  });
  app.all('*', (c) => c.body(null));
  return app;
}

async function cost_us(app: Hono<Env>): Promise<number> {
  const request = new Request(`http://127.0.0.1${ROUTE}`, { method: 'POST' });
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS; round++) {
    const before = process.cpuUsage();
    for (let i = 0; i < REQUESTS; i++) {
      await app.fetch(request, { incoming } as never);
      if (i % TURN === 0) await new Promise(setImmediate);
    }
    const { user, system } = process.cpuUsage(before);
    best = Math.min(best, (user + system) / REQUESTS);
  }
  return best;
}

const nowhere = openSync('/dev/null', 'w');
const logTo = (level: string) =>
  createLog(level, { isTTY: false, write: (text: string) => writeSync(nowhere, text) > 0 } as Out);

const PIECE = Buffer.from('data: {}\n\n');
const whole = (watch: Watch) => {
  watch.generates('chat', 'model', false);
  watch.requestSent();
  watch.head(200, 'application/json');
  watch.chunk(PIECE);
};
const streamed = (watch: Watch) => {
  whole(watch);
  watch.head(200, 'text/event-stream');
  for (let i = 1; i < TOKENS; i++) watch.chunk(PIECE);
};

const none = await cost_us(appOf(null, () => {}));
const say = (what: string, us: number) => console.log(`${what.padEnd(52)} ${(us - none).toFixed(2).padStart(6)} µs`);
say('whole answer, metrics', await cost_us(appOf(createTelemetry(logTo('warn'), null), whole)));
say('whole answer, metrics and log line', await cost_us(appOf(createTelemetry(logTo('info'), null), whole)));
say(`stream of ${TOKENS} pieces, metrics`, await cost_us(appOf(createTelemetry(logTo('warn'), null), streamed)));
say(
  `stream of ${TOKENS} pieces, metrics and log line`,
  await cost_us(appOf(createTelemetry(logTo('info'), null), streamed)),
);
process.exit(0);
