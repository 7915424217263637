// Which web pages may use the gateway. Without API keys only those of this machine: any other page that its user visits could.
import type { Deps, Step } from './context.ts';
import { Problem } from './problem.ts';

const EXPOSED =
  'x-request-id, x-attestation-id, retry-after, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests';
const LOOPBACK_ORIGIN = /^https?:\/\/(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/;

/** The origins from configuration, or a default: every one where a key is asked for, this machine's where none is. */
function allows(config: Deps['config'], origin: string): boolean {
  const { cors_origins } = config;
  if (cors_origins !== null) return cors_origins.includes('*') || cors_origins.includes(origin);
  return config.api_keys_file !== null || LOOPBACK_ORIGIN.test(origin);
}

/** CORS (Fetch §3.3). A page that is not allowed is refused before anything is done for it: 403 `origin_not_allowed`. */
export function origins({ config }: Deps): Step {
  return (c) => {
    const { incoming, outgoing } = c.env;
    const { origin } = incoming.headers;
    outgoing.setHeader('vary', 'origin');
    if (origin !== undefined) {
      if (!allows(config, origin))
        throw new Problem('origin_not_allowed', 'Web pages of this origin may not use this gateway (CORS_ORIGINS).');
      outgoing.setHeader('access-control-allow-origin', origin);
      outgoing.setHeader('access-control-expose-headers', EXPOSED);
    }
  };
}
