// GET /page/service: what the page must know of the service to talk to it and to check its proofs. Nothing in it is secret.
import type { Context, Deps } from '../context.ts';

export function service({ sidecar, config, version }: Deps) {
  return (c: Context): Response => {
    const { state, hello, trouble } = sidecar;
    return c.json({
      version,
      key_required: config.api_keys_file !== null,
      sidecar: { status: state, attester: hello?.attester ?? null, devices: hello?.devices ?? [], trouble },
      /** PEM. A sidecar that may not be simulated is refused before its hello is kept. */
      simulated_root: hello?.simulated?.root ?? null,
      token_keys: hello?.token_keys ?? null,
    });
  };
}
