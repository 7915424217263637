// With SECRETS=sealed: what an operator sends, who may send it, and what it must be. It is taken once a start, and kept in memory only.
import { createPublicKey, hash, type KeyObject, verify } from 'node:crypto';
import * as z from 'zod';
import { readLaunch } from '../../proto/attestation/launch.ts';
import { SECRET_NAMES, type SecretsBody, secretsMessage } from '../../proto/attestation/secrets.ts';
import { readStatement } from '../../proto/attestation/statement.ts';
import { JsonTextError } from '../../proto/json.ts';
import { backendKey, ConfigError, type GatewayConfig, isLoopback, type Secrets } from '../base/config.ts';
import { Problem } from '../base/problem.ts';
import { releaseDocument } from '../http/document.ts';
import { credentialsOf } from '../http/tls.ts';
import { KeysFileError, sealedKeys } from '../keys/keys-file.ts';

/** This gateway's current session: the texts of its statement and of its member `cpu`, which holds the launch file. */
interface OwnSession {
  readonly statement: string;
  readonly cpu: string;
}

export interface SecretsReceiver {
  /** Returns what the body brings. Nothing is kept of a body that is refused. @throws {Problem} */
  take(body: string, session: OwnSession): Promise<Secrets>;
}

/** @param opens whether this gateway has the key for sealed requests that a statement names. */
export function createSecretsReceiver(config: GatewayConfig, opens: (statement: string) => boolean): SecretsReceiver {
  let isTaken = false;
  return {
    async take(body, session) {
      const { statement, operator, signature, secrets } = bodyOf(body);
      const key = keyOf(operator, await operatorOf(session));
      // From here on nothing waits, so that of two at once one is taken.
      if (isTaken) throw notExpected();
      const message = secretsMessage(sha256(statement), digestsOf(secrets));
      if (!verify(null, message, key, Buffer.from(signature, 'base64')))
        throw refused('The signature is not one of the operator’s key over these secrets.');
      if (!isStatement(statement) || !opens(statement))
        throw new Problem(
          'sealed_key_unknown',
          'The statement is not of a session whose key this gateway has. Verify the current session, and sign and seal anew.',
        );
      const taken = checked(secrets, config);
      isTaken = true;
      return taken;
    },
  };
}

const notExpected = () =>
  new Problem(
    'secrets_not_expected',
    'This gateway waits for no secrets: it takes them once a start (SECRETS=sealed).',
  );

/** The route where no secrets are waited for. @throws {Problem} secrets_not_expected */
export const refuseSecrets = (): never => {
  throw notExpected();
};

const refused = (message: string) => new Problem('secrets_refused', message);
const invalid = (message: string, param: string) => new Problem('invalid_request', message, { param });
const sha256 = (text: string): Buffer => hash('sha256', text, 'buffer');

const schema = z.strictObject({
  statement: z.string(),
  operator: z.base64().max(256),
  signature: z.base64().max(256),
  secrets: z
    .strictObject(Object.fromEntries(SECRET_NAMES.map((name) => [name, z.string().min(1).optional()])))
    .refine((secrets) => Object.keys(secrets).length > 0),
});

/** @throws {Problem} invalid_request, without any of the text */
function bodyOf(text: string): SecretsBody {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Problem('invalid_json', 'The request body is not JSON.');
  }
  const body = schema.safeParse(value);
  if (body.success) return body.data as SecretsBody;
  const param = String(body.error.issues[0]?.path[0] ?? 'secrets');
  throw invalid(`${param}: is not what it must be. Secrets are named ${SECRET_NAMES.join(', ')}.`, param);
}

/** The SHA-256 of the operator's key that the launch file of this guest names. @throws {Problem} secrets_refused */
async function operatorOf({ statement, cpu }: OwnSession): Promise<string> {
  const { launch = null } = JSON.parse(cpu) as { launch?: string | null };
  if (launch === null || hash('sha256', launch) !== readStatement(statement).launch)
    throw refused('This guest has no launch file, so nothing says whose secrets it takes.');
  const { operator } = await readLaunch(launch);
  if (operator === null)
    throw refused('The launch file of this guest names no operator (--operator), so anybody could send secrets.');
  return operator;
}

/** @throws {Problem} secrets_refused unless it is the key of the launch file */
function keyOf(operator: string, launched: string): KeyObject {
  const spki = Buffer.from(operator, 'base64');
  if (hash('sha256', spki) !== launched) throw refused('Another operator’s key is named by the launch file.');
  try {
    const key = createPublicKey({ key: spki, format: 'der', type: 'spki' });
    if (key.asymmetricKeyType === 'ed25519') return key;
  } catch {
    // As for a key of another kind.
  }
  throw refused('The operator’s key is not an Ed25519 key.');
}

function digestsOf(secrets: SecretsBody['secrets']) {
  return Object.fromEntries(Object.entries(secrets).map(([name, text]) => [name, sha256(text)]));
}

function isStatement(text: string): boolean {
  try {
    readStatement(text);
    return true;
  } catch (error) {
    if (!(error instanceof JsonTextError)) throw error;
    return false;
  }
}

/** Checks all that the gateway would otherwise stop for at its start. @throws {Problem} invalid_request */
function checked(secrets: SecretsBody['secrets'], config: GatewayConfig): Secrets {
  const { 'api-keys': api_keys = null, 'tls.crt': cert, 'tls.key': key, 'backend-api-key': backend } = secrets;
  const { 'release.json': release = null } = secrets;
  if (release !== null && releaseDocument(release) === null)
    throw invalid('release.json is not JSON with a bundle.', 'release.json');
  if (api_keys === null && !isLoopback(config.host))
    throw invalid(`api-keys is required when HOST (${config.host}) is not a loopback address.`, 'api-keys');
  if ((cert === undefined) !== (key === undefined))
    throw invalid('tls.crt and tls.key are sent together or not at all.', 'tls.key');
  if (backend !== undefined && config.backend_url === null)
    throw invalid('backend-api-key is for BACKEND_URL.', 'backend-api-key');
  const tls = cert === undefined || key === undefined ? null : { cert, key };
  try {
    if (api_keys !== null) sealedKeys(api_keys, config.max_body_bytes);
    if (tls !== null) credentialsOf(tls.cert, tls.key, ['tls.crt', 'tls.key']);
  } catch (error) {
    // Neither message quotes anything of a secret.
    if (error instanceof KeysFileError) throw invalid(`api-keys ${error.message}.`, 'api-keys');
    if (error instanceof ConfigError) throw invalid(`${error.message}.`, 'tls.key');
    throw error;
  }
  const backend_api_key = backend === undefined ? null : backendKey.safeParse(backend);
  if (backend_api_key?.success === false)
    throw invalid('backend-api-key must be printable ASCII without spaces.', 'backend-api-key');
  return { api_keys, tls, backend_api_key: backend_api_key?.data ?? null, release };
}
