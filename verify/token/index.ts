// Tokens: what NVIDIA's verifiers return about a device, read, rechecked and told apart by who signed them.
export type { TokenDevice } from './device.ts';
export { checkTokenDigests, nvtrustDigestText, type RecheckedDigests } from './digests.ts';
export type { Json, JsonObject } from './json.ts';
export { type Jwk, type Jwks, NRAS_KEYS_URL } from './keys.ts';
export {
  NRAS_ISSUER,
  type TokenSignature,
  type TokenSignatureOptions,
  type TokenSigner,
  verifyTokenSignature,
} from './signature.ts';
export { type ParsedToken, parseToken, type TokenKind } from './token.ts';
