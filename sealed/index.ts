// Sealed prompts: HTTP messages that only the holder of an attested key can read. Binary HTTP (RFC 9292) inside chunked Oblivious HTTP
// (RFC 9458, draft-ietf-ohai-chunked-ohttp). It needs only WebCrypto from its runtime.
export {
  contentHead,
  type Field,
  type Message,
  type RequestHead,
  readRequest,
  readResponse,
  writeContent,
  writeEnd,
  writeRequestHead,
  writeResponseHead,
} from './binary-http.ts';
export { chunksOf } from './byte-source.ts';
export { MAX_CHUNK_BYTES } from './chunks.ts';
export { SealedError, type SealedErrorCode } from './errors.ts';
export {
  chooseKey,
  KEYS_MEDIA_TYPE,
  KEYS_OF_A_SESSION,
  makeKeys,
  type OpeningKey,
  type OpeningKeys,
  SECRET_BYTES,
  type SealingKey,
} from './keys.ts';
export {
  isFor,
  openRequest,
  REQUEST_MEDIA_TYPE,
  type RequestHeader,
  readRequestHeader,
  type SealedRequest,
  sealRequest,
} from './request.ts';
export {
  type Encrypt,
  nonceBytes,
  RESPONSE_MEDIA_TYPE,
  ResponseSealer,
  responseKeys,
} from './response.ts';
