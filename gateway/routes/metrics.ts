// GET /metrics: Prometheus text, where everybody who can connect may read it. With API keys it has a port of its own.
import type { Context, Deps } from '../context.ts';
import { Problem } from '../problem.ts';

export function metrics({ config, telemetry }: Deps) {
  return async (c: Context): Promise<Response> => {
    if (config.metrics_port !== null)
      throw new Problem('not_found', `Metrics are served on port ${config.metrics_port} (METRICS_PORT) alone.`);
    if (config.workers > 1)
      throw new Problem(
        'not_found',
        'With several workers, metrics are served on a port of their own: set METRICS_PORT.',
      );
    if (config.api_keys_file !== null)
      throw new Problem('not_found', 'With API keys, metrics are served on a port of their own: set METRICS_PORT.');
    return c.body(await telemetry.text(), 200, { 'content-type': telemetry.registry.contentType });
  };
}
