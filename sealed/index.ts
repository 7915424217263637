// Sealed prompts: HTTP messages that only the holder of an attested key can read. Binary HTTP (RFC 9292) inside chunked Oblivious HTTP
// (RFC 9458, draft-ietf-ohai-chunked-ohttp). It needs only WebCrypto from its runtime.
export {
  contentHead,
  DEFAULT_LIMITS,
  type Field,
  type Message,
  type MessageLimits,
  type RequestHead,
  type ResponseHead,
  readRequest,
  readResponse,
  writeContent,
  writeEnd,
  writeRequestHead,
  writeResponseHead,
} from './binary-http.ts';
export { type Bytes, chunksOf } from './byte-source.ts';
export { MAX_CHUNK_BYTES } from './chunks.ts';
export { SealedError, type SealedErrorCode } from './errors.ts';
export {
  chooseKey,
  KEYS_MEDIA_TYPE,
  KEYS_OF_A_SESSION,
  type KeyConfiguration,
  MAX_KEYS_BYTES,
  makeKeys,
  type OpeningKey,
  type OpeningKeys,
  readKeys,
  SECRET_BYTES,
  type SealingKey,
  writeKeys,
} from './keys.ts';
export {
  isFor,
  type OpenedRequest,
  openRequest,
  REQUEST_MEDIA_TYPE,
  type RequestHeader,
  readRequestHeader,
  type SealedRequest,
  sealRequest,
  unknownKey,
} from './request.ts';
export {
  type Encrypt,
  nonceBytes,
  openResponse,
  RESPONSE_MEDIA_TYPE,
  ResponseSealer,
  type ResponseSecret,
  responseKeys,
} from './response.ts';
