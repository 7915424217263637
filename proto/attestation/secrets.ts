// The secrets that an operator sends to a measured guest, inside of a sealed request (docs/attestation.md §10). Sender and gateway compute
// here what the operator's key signs.
import { type Bytes, concat } from '../bytes.ts';

export const SECRETS_PATH = '/v1/attestation/secrets';
/** In the order in which they are signed. A release is no secret, but comes the same way: the guest has no file of its operator's. */
export const SECRET_NAMES = ['api-keys', 'backend-api-key', 'release.json', 'tls.crt', 'tls.key'] as const;
export type SecretName = (typeof SECRET_NAMES)[number];
export const isSecretName = (name: string): name is SecretName => (SECRET_NAMES as readonly string[]).includes(name);

/** Limit of the request's body. */
export const MAX_SECRETS_BYTES = 1024 * 1024;

/** The body of the request, as JSON. */
export interface SecretsBody {
  /** The text of the verified session's statement, whose key the request is sealed to. */
  readonly statement: string;
  /** The operator's public key: an Ed25519 SubjectPublicKeyInfo in base64. */
  readonly operator: string;
  /** Ed25519 over {@link secretsMessage}, in base64. */
  readonly signature: string;
  readonly secrets: Readonly<Partial<Record<SecretName, string>>>;
}

const encoder = new TextEncoder();

/** What the operator signs. Takes SHA-256 digests: of the statement's text, and of each secret's bytes in UTF-8. */
export function secretsMessage(
  statement: Uint8Array,
  secrets: Readonly<Partial<Record<SecretName, Uint8Array>>>,
): Bytes {
  const parts = SECRET_NAMES.flatMap((name) => {
    const digest = secrets[name];
    return digest === undefined ? [] : [encoder.encode(`${name}\0`), digest];
  });
  return concat([encoder.encode('countersign/secrets/v1\0'), statement, ...parts]);
}
