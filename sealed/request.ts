// Sealed requests: a client seals to a key of the gateway, which opens them. The same HPKE context gives the key of the response.
import { ByteSource, type Bytes, joined } from './byte-source.ts';
import { chunkHead, FINAL, NO_BYTES, openChunks, partsOf } from './chunks.ts';
import { malformed, SealedError } from './errors.ts';
import type { OpeningKey, SealingKey } from './keys.ts';
import { type Algorithms, lengthsOf } from './keys.ts';
import { openResponse, type ResponseSecret } from './response.ts';

export const REQUEST_MEDIA_TYPE = 'message/ohttp-chunked-req';
const encoder = new TextEncoder();
const REQUEST_LABEL = encoder.encode('message/bhttp chunked request');
const RESPONSE_LABEL = encoder.encode('message/bhttp chunked response');
/** Key identifier and algorithms, before the encapsulated key. */
const IDS_BYTES = 7;

/** A request being sealed. */
export interface SealedRequest {
  /** The sealed message, to be sent while it is made. */
  readonly chunks: AsyncGenerator<Bytes, void, undefined>;
  /** Opens the response as it arrives. It throws if the response is incomplete, or is not the one to this request. */
  openResponse(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined>;
}

/** Seals a binary HTTP request, in chunks of any size, to `key`. */
export async function sealRequest(key: SealingKey, message: AsyncIterable<Uint8Array>): Promise<SealedRequest> {
  const ids = writeIds(key);
  const { encapsulatedSecret, ctx } = await key.suite.SetupSender(key.publicKey, { info: infoOf(ids) });
  async function* chunks(): AsyncGenerator<Bytes, void, undefined> {
    // The first chunk goes out with the head.
    let head = joined([ids, encapsulatedSecret]);
    for await (const { part, isFinal } of partsOf(message)) {
      const sealed = await ctx.Seal(part, isFinal ? FINAL : NO_BYTES);
      yield joined([head, chunkHead(sealed.length, isFinal), sealed]);
      head = NO_BYTES;
    }
  }
  return {
    chunks: chunks(),
    async *openResponse(response) {
      yield* openResponse(await responseSecret(key, encapsulatedSecret, ctx), response);
    },
  };
}

/** The head of a sealed request, and the chunks after it. */
export interface RequestHeader extends Algorithms {
  readonly key_id: number;
  /** The encapsulated key: no two requests share one. */
  readonly enc: Bytes;
  readonly ids: Bytes;
  readonly rest: ByteSource;
}

/** @throws {SealedError} sealed_truncated; sealed_key_unknown if the KEM is not one of ours. */
export async function readRequestHeader(chunks: AsyncIterable<Uint8Array>): Promise<RequestHeader> {
  const rest = new ByteSource(chunks);
  const ids = await rest.take(IDS_BYTES, 'the head of the sealed request');
  const view = new DataView(ids.buffer);
  const [key_id, kem_id, kdf_id, aead_id] = [view.getUint8(0), view.getUint16(1), view.getUint16(3), view.getUint16(5)];
  const length = lengthsOf(kem_id)?.encapsulated;
  if (length === undefined) throw unknownKey();
  const enc = await rest.take(length, 'the encapsulated key');
  return { key_id, kem_id, kdf_id, aead_id, enc, ids, rest };
}

const unknownKey = () =>
  new SealedError('sealed_key_unknown', 'No key here has this identifier with these algorithms.');

/** Whether the request's head names this key. */
export const isFor = (header: RequestHeader, key: OpeningKey): boolean =>
  header.key_id === key.key_id &&
  header.kem_id === key.kem_id &&
  header.kdf_id === key.kdf_id &&
  header.aead_id === key.aead_id;

interface OpenedRequest {
  /** The binary HTTP message, in chunks. It throws if the request is incomplete. */
  readonly chunks: AsyncGenerator<Uint8Array, void, undefined>;
  /** The secret of the response's key. */
  readonly secret: ResponseSecret;
}

/** Opens a request to `key`. @throws {SealedError} sealed_malformed if the encapsulated key is invalid. */
export async function openRequest(header: RequestHeader, key: OpeningKey): Promise<OpenedRequest> {
  const { enc, ids, rest } = header;
  const context = await key.suite.SetupRecipient(key.pair, enc, { info: infoOf(ids) }).catch(() => {
    throw malformed('The encapsulated key is none of its KEM.');
  });
  return {
    chunks: openChunks(rest, (sealed, aad) => context.Open(sealed, aad)),
    secret: await responseSecret(key, enc, context),
  };
}

function writeIds({ key_id, kem_id, kdf_id, aead_id }: Algorithms & { readonly key_id: number }): Bytes {
  const ids = new Uint8Array(IDS_BYTES);
  const view = new DataView(ids.buffer);
  view.setUint8(0, key_id);
  view.setUint16(1, kem_id);
  view.setUint16(3, kdf_id);
  view.setUint16(5, aead_id);
  return ids;
}

const infoOf = (ids: Bytes) => joined([REQUEST_LABEL, Uint8Array.of(0), ids]);

interface Exporter {
  Export(label: Uint8Array, length: number): Promise<Uint8Array>;
}

async function responseSecret(
  { suite }: SealingKey | OpeningKey,
  enc: Uint8Array,
  context: Exporter,
): Promise<ResponseSecret> {
  const { Nk: key_bytes, Nn: nonce_bytes } = suite.AEAD;
  const secret = await context.Export(RESPONSE_LABEL, Math.max(key_bytes, nonce_bytes));
  return { secret, enc, key_bytes, nonce_bytes };
}
