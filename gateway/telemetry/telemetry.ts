// What the gateway tells about itself: at an exchange's end one log line, a few numbers, and its spans where tracing is on.
import type { IncomingHttpHeaders } from 'node:http';
import type { Logger } from 'pino';
import { Registry } from 'prom-client';
import type { Context } from '../context.ts';
import { ANYONE } from '../keys/caller.ts';
import { createCount } from './count.ts';
import { endedOf } from './ended.ts';
import { createMetrics, type Metrics, type VerifyOutcome } from './metrics.ts';
import { createModelLabels } from './models.ts';
import { createRequestLine } from './request-line.ts';
import type { Tracer } from './trace.ts';
import { Watch } from './watch.ts';

export interface Telemetry {
  readonly registry: Registry;
  readonly metrics: Metrics;
  /** Requests that are being served. */
  readonly running: number;
  begin(headers: IncomingHttpHeaders): Watch;
  /** `route`: its pattern. */
  end(c: Context, watch: Watch, route: string, response: Response): void;
  verified(outcome: VerifyOutcome): void;
  /** The Prometheus text. */
  text(): Promise<string>;
  close(): Promise<void>;
}

export function createTelemetry(log: Logger, tracer: Tracer | null): Telemetry {
  const registry = new Registry();
  const metrics = createMetrics(registry);
  const count = createCount(metrics);
  const models = createModelLabels();
  const line = createRequestLine(log);
  let running = 0;
  return {
    registry,
    metrics,
    get running() {
      return running;
    },
    begin(headers) {
      running++;
      return new Watch(tracer === null ? null : tracer.begin(headers));
    },
    end(c, watch, route, response) {
      running--;
      const ended = endedOf(c, watch, route, response, models);
      count(watch, ended);
      line(watch, ended, keyOf(c));
      watch.trace?.end(watch, ended);
    },
    verified: (code) => metrics.verifications.inc({ code }),
    text: () => registry.metrics(),
    close: async () => tracer?.close(),
  };
}

/** The name of the key that asked; never the key. */
function keyOf(c: Context): string | undefined {
  const caller = c.env.caller;
  return caller === undefined || caller === ANYONE ? undefined : caller.name;
}
