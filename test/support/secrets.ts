// What tests of SECRETS=sealed share: an operator's key, the body that it signs, and guests whose launch file names it.
import { generateKeyPairSync, hash, type KeyObject, sign } from 'node:crypto';
import { createSimulatedCpu } from '../../demo/twin/cpu.ts';
import { SECRETS_PATH, type SecretsBody, secretsMessage } from '../../proto/attestation/secrets.ts';
import { chooseKey } from '../../sealed/index.ts';
import { eventually, type Folder, type RunningSidecar, startSidecar } from './harness.ts';
import { LAUNCH } from './launch-file.ts';
import { messageOf, open, post, sealMessage, textOf } from './sealed-client.ts';

export interface Operator {
  readonly privateKey: KeyObject;
  /** SubjectPublicKeyInfo. */
  readonly spki: Buffer;
  /** As the launch file names it. */
  readonly sha256: string;
  /** The private key in PEM. */
  readonly pem: string;
}

export function newOperator(): Operator {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const spki = publicKey.export({ format: 'der', type: 'spki' });
  const pem = privateKey.export({ format: 'pem', type: 'pkcs8' }) as string;
  return { privateKey, spki, sha256: hash('sha256', spki), pem };
}

const sha256 = (text: string) => hash('sha256', text, 'buffer');

/** The body of the request, as the command makes it. */
export function bodyOf(
  statement: string,
  { privateKey, spki }: Operator,
  secrets: Readonly<Record<string, string>>,
): SecretsBody {
  const digests = Object.fromEntries(Object.entries(secrets).map(([name, text]) => [name, sha256(text)]));
  return {
    statement,
    operator: spki.toString('base64'),
    signature: sign(null, secretsMessage(sha256(statement), digests), privateKey).toString('base64'),
    secrets,
  };
}

/** A session of its own with a challenge, as soon as it names a key. Returns its statement. */
export async function statementOf(url: string): Promise<string> {
  let found = '';
  await eventually(async () => {
    const challenge = hash('sha256', String(Math.random()));
    const response = await fetch(`${url}/v1/attestation/session?challenge=${challenge}`);
    const { statement } = (await response.json()) as { statement?: string };
    if (statement === undefined || JSON.parse(statement).hpke === null) return false;
    found = statement;
    return true;
  });
  return found;
}

/** The sealed bytes of a request with this body, to the key that a statement names. */
export async function sealBody(statement: string, body: unknown, path = SECRETS_PATH) {
  const key = await chooseKey(Buffer.from(JSON.parse(statement).hpke, 'base64'));
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return sealMessage(key, messageOf({ path, body: text }));
}

export interface Told {
  readonly status: number;
  readonly code: string | null;
  readonly param: string | null;
  readonly text: string;
}

/** Posts a sealed request. The response may be sealed, or an error in the clear. */
export async function postSealed(
  url: string,
  { request, chunks }: Awaited<ReturnType<typeof sealBody>>,
): Promise<Told> {
  const outer = await post(url, chunks, {}, { path: SECRETS_PATH });
  const { status, text } =
    outer.status === 200 ? await open(request, outer.body) : { status: outer.status, text: await textOf(outer) };
  const { error = null } = JSON.parse(text) as { error?: { code: string; param: string | null } | null };
  return { status, code: error?.code ?? null, param: error?.param ?? null, text };
}

/** Signs, seals and posts, all as it should be. */
export async function sendSecrets(
  url: string,
  operator: Operator,
  secrets: Readonly<Record<string, string>>,
): Promise<Told> {
  const statement = await statementOf(url);
  return postSealed(url, await sealBody(statement, bodyOf(statement, operator, secrets)));
}

/** A launch file that names an operator by the SHA-256 of its key. */
export const launchWith = (operator: string): string => LAUNCH.replace('"operator":null', `"operator":"${operator}"`);

/** A sidecar in this process whose guest was started with this launch file, or with none. `root`: PEM of its test roots. */
export async function startGuest(
  folder: Folder,
  launch: string | null,
): Promise<RunningSidecar & { readonly root: string }> {
  const digest = launch === null ? null : sha256(launch);
  const collector = await createSimulatedCpu({ type: 'SEV_SNP', rootDir: folder.path, launch: digest });
  const sidecar = await startSidecar(folder, { cpu: { collector, required: true, launch } });
  return { ...sidecar, root: (sidecar.attester.simulated?.root ?? '') + (collector.simulated?.root ?? '') };
}
