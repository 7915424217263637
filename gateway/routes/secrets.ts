// POST /v1/attestation/secrets: takes an operator's secrets, sealed, while the gateway waits for them (SECRETS=sealed).
import { MAX_SECRETS_BYTES } from '../../proto/attestation/secrets.ts';
import type { Sidecar } from '../attestation/interfaces.ts';
import { unavailable } from '../attestation/sessions.ts';
import { type Secrets, VERSION } from '../base/config.ts';
import { Problem } from '../base/problem.ts';
import { bodyText, readBody } from '../http/body.ts';
import type { Context, Middleware } from '../http/context.ts';
import type { SecretsReceiver } from '../sealing/secrets-receiver.ts';
import { sidecarHealth } from './status.ts';

/** The route inside of the seal. `onTaken` is called when the response is out. */
export function takeSecrets(sidecar: Sidecar, receiver: SecretsReceiver, onTaken: (secrets: Secrets) => void) {
  return async (c: Context): Promise<Response> => {
    const body = bodyText(await readBody(c.env.incoming, MAX_SECRETS_BYTES));
    const { session } = sidecar;
    if (session === null) throw unavailable('The processor has not signed yet.');
    const secrets = await receiver.take(body, session);
    const { outgoing } = c.env;
    // A sender who is gone by now gets no response that could be waited for.
    if (outgoing.destroyed) onTaken(secrets);
    else outgoing.once('close', () => onTaken(secrets));
    return c.json({ status: 'taken' });
  };
}

/** Sealing adds less than a hundredth. */
const MAX_SEALED_BYTES = 2 * MAX_SECRETS_BYTES;

/** Rejects what is announced to be too large before any of it is read. @throws {Problem} body_too_large */
export const notTooLarge: Middleware = (c) => {
  if (Number(c.env.incoming.headers['content-length'] ?? 0) <= MAX_SEALED_BYTES) return;
  throw new Problem('body_too_large', `Secrets have at most ${MAX_SECRETS_BYTES} bytes.`);
};

const RETRY_SECONDS = 5;

/** The response to every other request. @throws {Problem} waiting_for_secrets */
export const waiting = (): never => {
  throw new Problem('waiting_for_secrets', 'This gateway has not got its secrets yet (countersign secrets send).', {
    retryAfterSeconds: RETRY_SECONDS,
  });
};

/** GET /health until then, with the members that it always has. */
export function waitingHealth(sidecar: Sidecar) {
  return (c: Context): Response =>
    c.json(
      {
        status: 'waiting',
        ready: { tee: false, canary: false },
        backend: { status: 'down', code: 'waiting_for_secrets', canary: { state: 'off' } },
        sidecar: sidecarHealth(sidecar),
        store: null,
        audit: null,
        version: VERSION,
      },
      503,
    );
}
