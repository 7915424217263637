// `countersign secrets send`: verifies a guest that waits for its secrets (SECRETS=sealed), seals them to the key of its session, and waits
// until it serves. Nothing is sent to a guest that does not verify.
import { createPrivateKey, createPublicKey, hash, type KeyObject, sign, X509Certificate } from 'node:crypto';
import { get as getOverTls } from 'node:https';
import type { TLSSocket } from 'node:tls';
import {
  isSecretName,
  MAX_SECRETS_BYTES,
  SECRET_NAMES,
  SECRETS_PATH,
  type SecretName,
  type SecretsBody,
  secretsMessage,
} from '../proto/attestation/secrets.ts';
import { type Arguments, type OwnCommand, url } from '../verify/cli/args.ts';
import { collateralFor } from '../verify/cli/collateral-folder.ts';
import { readText, UsageError } from '../verify/cli/input.ts';
import { optionsOf } from '../verify/cli/options.ts';
import { plain } from '../verify/cli/report.ts';
import { COMMANDS } from '../verify/cli/table.ts';
import type { SealedFetchError, SealedSession } from '../verify/clients/sealed.ts';
import { readLimited } from '../verify/common/limited.ts';
import { LEVELS, VerificationError } from '../verify/index.ts';

/** Of `countersign session`, those that say nothing of a file, an answer or the report. */
const NOT_HERE = ['at', 'challenge', 'device', 'require-level', 'verbose', 'json', 'quiet'];
const HOW_VERIFIED = COMMANDS.flatMap(({ name, options }) => (name === 'session' ? options : [])).filter(
  ({ name }) => !NOT_HERE.includes(name),
);

export const SECRETS: OwnCommand = {
  name: 'secrets',
  operands: 'send URL NAME=FILE…',
  text: `send secrets (${SECRET_NAMES.join(', ')}) to a guest that waits for them, sealed, once it verifies as one of your list`,
  options: [
    {
      name: 'operator-key',
      value: 'FILE',
      text: 'the private key, Ed25519 in PEM, whose public key the launch file of the guest names',
    },
    {
      name: 'min-level',
      value: 'LEVEL',
      text: 'the least level of the guest; measured without it. Less is for tests: anybody who runs that machine may have the secrets',
      among: LEVELS,
    },
    ...HOW_VERIFIED,
  ],
  examples: [
    'countersign secrets send http://guest.example:8080 --reference reference.json --operator-key operator.pem api-keys=keys tls.key=key.pem tls.crt=cert.pem',
  ],
  run: send,
};

interface Sending {
  /** Without `/v1`, and without a slash at its end. */
  readonly base: string;
  readonly key: KeyObject;
  readonly secrets: SecretsBody['secrets'];
}

/** @throws {UsageError} */
function sendingIn({ operands, values, minLevel, reference, release }: Arguments): Sending {
  const [action, target, ...named] = operands;
  if (action !== 'send' || target === undefined || named.length === 0)
    throw new UsageError('secrets: write send URL NAME=FILE, with one NAME=FILE or more');
  const file = values['operator-key'] as string | undefined;
  if (file === undefined) throw new UsageError('secrets needs --operator-key FILE');
  if (reference === null && release === null && (minLevel ?? 'measured') === 'measured')
    throw new UsageError('secrets needs --reference FILE or --release OWNER/REPO: the guests that may have them');
  const base = url('URL', target).replace(/\/+$/, '').replace(/\/v1$/, '');
  return { base, key: operatorKey(file), secrets: secretsIn(named) };
}

/** @throws {UsageError} */
function operatorKey(file: string): KeyObject {
  const text = readText(file);
  try {
    const key = createPrivateKey(text);
    if (key.asymmetricKeyType === 'ed25519') return key;
  } catch {
    // As for a key of another kind.
  }
  throw new UsageError(
    `--operator-key ${file}: not an Ed25519 private key in PEM`,
    'openssl genpkey -algorithm ed25519 -out operator.pem',
  );
}

/** @throws {UsageError} without anything of a secret */
function secretsIn(named: readonly string[]): SecretsBody['secrets'] {
  const secrets: Partial<Record<SecretName, string>> = {};
  for (const operand of named) {
    const [name = '', file = ''] = operand.split(/=(.*)/s);
    if (!isSecretName(name) || file === '')
      throw new UsageError(`${operand}: not NAME=FILE with a name of ${SECRET_NAMES.join(', ')}`);
    if (secrets[name] !== undefined) throw new UsageError(`${name} is given twice`);
    const text = readText(file);
    if (text === '') throw new UsageError(`${file}: empty`);
    secrets[name] = text;
  }
  if (JSON.stringify(secrets).length > MAX_SECRETS_BYTES / 2)
    throw new UsageError(`the secrets have more than ${MAX_SECRETS_BYTES / 2 / 1024} KiB together`);
  return secrets;
}

async function send(args: Arguments): Promise<number> {
  const sending = sendingIn(args);
  const { base } = sending;
  const status = await statusOf(base);
  if (status === null) throw new UsageError(`${base}: cannot be reached, or is no gateway`);
  if (status !== 'waiting') return failed(`${base} waits for no secrets: its /health says ${status}`);
  // Only this command loads the code that seals.
  const { sealedFetch } = await import('../verify/clients/sealed.ts');
  const silent = () => {};
  const { expected: _, ...options } = optionsOf(args, silent);
  let session: SealedSession | null = null;
  let refusal: SealedFetchError | null = null;
  const sealed = sealedFetch({
    ...options,
    collateral: collateralFor(args, silent),
    policy: { ...options.policy, minLevel: args.minLevel ?? 'measured' },
    url: base,
    // While it waits, the gateway takes what is sealed at the one path that it is for.
    fetch: (input, init) => fetch(String(input).replace(/\/ohttp$/, SECRETS_PATH), init),
    onSession(verified) {
      session = verified;
      console.log(`verified  a session of level ${verified.level}`);
    },
    onRefused(error) {
      refusal = error;
    },
  });
  try {
    // The session comes with the first request, to which the guest answers that it waits.
    await sealed(base + SECRETS_PATH);
    // The guest may have restarted in between: then it has another key, and the sender signs for the new session.
    for (let attempt = 1; session !== null && refusal === null; attempt++) {
      const body = JSON.stringify(bodyFor(session, sending));
      const response = await sealed(base + SECRETS_PATH, { method: 'POST', body });
      if (refusal !== null) break;
      if (response.status === 200) return await opened(sending);
      const { code, message } = await errorIn(response);
      if (code !== 'sealed_key_unknown' || attempt > 1) return failed(`${code}: ${message}`);
    }
  } catch {
    return failed(`${base} left in the middle: send the secrets again when it waits again`);
  }
  return refused(refusal as SealedFetchError | null);
}

const sha256 = (text: string): Buffer => hash('sha256', text, 'buffer');

function bodyFor({ statement }: SealedSession, { key, secrets }: Sending): SecretsBody {
  const digests = Object.fromEntries(Object.entries(secrets).map(([name, text]) => [name, sha256(text)]));
  return {
    statement,
    operator: createPublicKey(key).export({ format: 'der', type: 'spki' }).toString('base64'),
    signature: sign(null, secretsMessage(sha256(statement), digests), key).toString('base64'),
    secrets,
  };
}

/** The error is sealed: the guest itself wrote it. */
async function errorIn(response: Response): Promise<{ readonly code: string; readonly message: string }> {
  const { error } = (await response.json()) as { error: { code: string; message: string } };
  return error;
}

/** @returns the exit status */
function failed(message: string): number {
  console.error(`countersign: ${plain(message)}`);
  return 1;
}

function refused(error: SealedFetchError | null): number {
  const cause = error?.cause;
  const detail = cause instanceof VerificationError ? ` ${cause.message}` : '';
  failed(`${error?.code}: ${error?.message}${detail}`);
  return cause instanceof VerificationError && cause.incomplete ? 3 : 1;
}

// The gateway's doors: they open on the same port, with TLS where a certificate was sent.

const OPENS_MS = 60_000;
const EVERY_MS = 250;
const ANSWER_MS = 10_000;
const MAX_HEALTH_BYTES = 64 * 1024;

async function opened({ base, secrets }: Sending): Promise<number> {
  const certificate = secrets['tls.crt'];
  const isTls = certificate !== undefined && base.startsWith('http:');
  const there = isTls ? base.replace('http:', 'https:') : base;
  const leaf = isTls ? new X509Certificate(certificate) : null;
  console.log('taken     the guest has its secrets');
  for (const end = performance.now() + OPENS_MS; performance.now() < end; ) {
    const status = await (leaf === null ? statusOf(there) : statusOverTls(there, leaf));
    if (status !== null && status !== 'waiting') {
      console.log(plain(`serves    ${there} (/health: ${status})`));
      return 0;
    }
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
  return failed(`${there} has its secrets, and does not serve within ${OPENS_MS / 1000} s: see its log`);
}

/** null: there is no such answer. Nothing is believed of it: it says only what to do next. */
async function statusOf(base: string): Promise<string | null> {
  try {
    const response = await fetch(`${base}/health`, { signal: AbortSignal.timeout(ANSWER_MS) });
    return statusIn(new TextDecoder().decode(await readLimited(response, MAX_HEALTH_BYTES)));
  } catch {
    return null;
  }
}

/** The same over TLS, from whoever has the key of this certificate: its names and its issuer do not matter. */
function statusOverTls(base: string, leaf: X509Certificate): Promise<string | null> {
  return new Promise((resolve) => {
    const signal = AbortSignal.timeout(ANSWER_MS);
    const request = getOverTls(`${base}/health`, { rejectUnauthorized: false, agent: false, signal });
    request.on('response', (response) => {
      const peer = (response.socket as TLSSocket).getPeerX509Certificate();
      let text = '';
      response.setEncoding('utf8').on('data', (part: string) => {
        text += part;
        if (text.length > MAX_HEALTH_BYTES) request.destroy(new Error('too long'));
      });
      response.on('error', () => resolve(null));
      response.on('end', () => resolve(peer?.fingerprint256 === leaf.fingerprint256 ? statusIn(text) : null));
    });
    request.on('error', () => resolve(null));
  });
}

function statusIn(text: string): string | null {
  try {
    const { status } = JSON.parse(text) as { status?: unknown };
    return typeof status === 'string' ? status : null;
  } catch {
    return null;
  }
}
