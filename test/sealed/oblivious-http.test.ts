// Chunked Oblivious HTTP: the appendix of draft-ietf-ohai-chunked-ohttp, what RFC 9458's appendix A shows of keys, and messages that
// somebody in between has cut, moved, doubled or changed.
import { createCipheriv, randomBytes } from 'node:crypto';
import { AEAD_AES_128_GCM, CipherSuite, KDF_HKDF_SHA256, KEM_DHKEM_X25519_HKDF_SHA256 } from 'hpke';
import { describe, expect, it } from 'vitest';
import { joined } from '../../sealed/byte-source.ts';
import {
  chooseKey,
  type Encrypt,
  isFor,
  makeKeys,
  nonceBytes,
  type OpeningKey,
  openRequest,
  ResponseSealer,
  readRequestHeader,
  responseKeys,
  sealRequest,
} from '../../sealed/index.ts';
import { readKeys, writeKeys } from '../../sealed/keys.ts';
import { openResponse } from '../../sealed/response.ts';
import { all, codeOf, hex, inChunks, listOf, these } from './chunks.ts';
import { AEAD, KDF, KEM, secrets } from './suites.ts';

const utf8 = (text: string) => new TextEncoder().encode(text);
const X25519 = new CipherSuite(KEM_DHKEM_X25519_HKDF_SHA256, KDF_HKDF_SHA256, AEAD_AES_128_GCM);

const encryptWith =
  (key: Uint8Array): Encrypt =>
  (nonce, aad, plaintext) => {
    const cipher = createCipheriv(key.length === 16 ? 'aes-128-gcm' : 'aes-256-gcm', key, nonce);
    const ciphertext = cipher.setAAD(aad).update(plaintext);
    cipher.final();
    return [ciphertext, cipher.getAuthTag()];
  };

/** Opens a request as a gateway does, and seals `parts` as its response. */
async function answer(keys: readonly OpeningKey[], request: AsyncIterable<Uint8Array>, parts: readonly Uint8Array[]) {
  const header = await readRequestHeader(request);
  const key = keys.find((one) => isFor(header, one)) as OpeningKey;
  const { chunks, secret } = await openRequest(header, key);
  const message = await all(chunks);
  const response = await responseKeys(secret, randomBytes(nonceBytes(secret)));
  const sealer = new ResponseSealer(response, encryptWith(response.key));
  return { message, chunks: parts.map((part, i) => joined(sealer.seal(part, i === parts.length - 1))) };
}

async function openWhole(keys: readonly OpeningKey[], request: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  return (await answer(keys, request, [utf8('')])).message;
}

describe('key configurations', () => {
  // RFC 9458, appendix A.
  const RFC = hex('01002031e1f05a740102115220e9af918f738674aec95f54db6e04eb705aae8e79815500080001000100010003');

  it('are read and written as in RFC 9458', () => {
    const document = joined([hex('002d'), RFC]);
    const [key] = readKeys(document);
    expect(key).toMatchObject({
      key_id: 1,
      kem_id: KEM.x25519,
      algorithms: [
        { kdf_id: KDF.hkdf_sha256, aead_id: AEAD.aes_128_gcm },
        { kdf_id: KDF.hkdf_sha256, aead_id: 3 },
      ],
    });
    expect(writeKeys([key as NonNullable<typeof key>])).toEqual(document);
  });

  it('of KEMs and AEADs that are not ours are passed over', async () => {
    const other = hex('0007 05 7777 0102 0304');
    const document = joined([other, hex('002d'), RFC]);
    expect(readKeys(document)).toHaveLength(1);
    expect(await chooseKey(document)).toMatchObject({ key_id: 1, kem_id: KEM.x25519, aead_id: AEAD.aes_128_gcm });
    expect(await codeOf(chooseKey(other))).toBe('sealed_unsupported');
    const foreignAead = joined([hex('0029'), RFC.subarray(0, 35), hex('000400010003')]);
    expect(await codeOf(chooseKey(foreignAead))).toBe('sealed_unsupported');
    expect(await codeOf(chooseKey(new Uint8Array()))).toBe('sealed_unsupported');
  });

  it('that are cut or too large are refused', async () => {
    const document = joined([hex('002d'), RFC]);
    for (let length = 1; length < document.length; length++)
      expect(await codeOf(chooseKey(document.subarray(0, length))), `${length}`).toBe('sealed_malformed');
    expect(await codeOf(chooseKey(new Uint8Array(4_000)))).toBe('sealed_malformed');
    const empty = joined([hex('0025'), RFC.subarray(0, 35), hex('0000')]);
    expect(await codeOf(chooseKey(empty))).toBe('sealed_malformed');
  });

  it('are the same for the same secrets, and offer the hybrid first where the runtime has it', async () => {
    const shared = secrets();
    const one = await makeKeys(254, shared);
    expect((await makeKeys(254, shared)).document).toEqual(one.document);
    expect((await makeKeys(254, secrets())).document).not.toEqual(one.document);
    expect(readKeys(one.document).map(({ key_id, kem_id }) => ({ key_id, kem_id }))).toEqual([
      { key_id: 254, kem_id: KEM.mlkem768_x25519 },
      { key_id: 255, kem_id: KEM.x25519 },
    ]);
    expect((await chooseKey(one.document)).kem_id).toBe(KEM.mlkem768_x25519);
    expect((await makeKeys(255, shared)).keys.map(({ key_id }) => key_id)).toEqual([255, 0]);
  });
});

// The appendix of draft-ietf-ohai-chunked-ohttp.
const DRAFT = {
  key: hex('1c190d72acdbe4dbc69e680503bb781a932c70a12c8f3754434c67d8640d8698'),
  configuration: hex('010020668eb21aace159803974a4c67f08b4152d29bed10735fd08f98ccdd6fe09570800080001000100010003'),
  request: hex(`01002000010001 8811eb457e100811c40a0aa71340a1b81d804bb986f736f2f566a7199761a032
    1c2ad24942d4d692563012f2980c8fef437a336b9b2fc938ef77a5834f
    1d2e33d8fd25577afe31bd1c79d094f76b6250ae6549b473ecd950501311
    001c6c1395d0ef7c1022297966307b8a7f`),
  opened: hex('00034745540568747470730b6578616d706c652e636f6d012f'),
  secret: hex('1d4484834ae36102a6ac42a5523454d9'),
  response_nonce: hex('bcce7f4cb921309ba5d62edf1769ef09'),
  aead_key: hex('8209f78f2a1610d80c7125009b00aff0'),
  aead_nonce: hex('fead854635d2d5527d64f546'),
  response: hex(`bcce7f4cb921309ba5d62edf1769ef09 1179bf1cc87fa0e2c02de4546945aa3d1e48
    12b348b5bd4c594c16b6170b07b475845d1f32 00ed9d8a796617a5b27265f4d73247f639`),
  answered: hex('0140c8'),
};

async function draftKey(): Promise<OpeningKey> {
  const privateKey = await X25519.DeserializePrivateKey(DRAFT.key);
  const publicKey = await X25519.DeserializePublicKey(DRAFT.configuration.slice(3, 35));
  const ids = { key_id: 1, kem_id: KEM.x25519, kdf_id: KDF.hkdf_sha256, aead_id: AEAD.aes_128_gcm };
  return { ...ids, suite: X25519, pair: { privateKey, publicKey } };
}

describe("the draft's example", () => {
  it.each([1, 3, 1000])('is opened and answered with its bytes, in chunks of %i', async (size) => {
    const header = await readRequestHeader(inChunks(DRAFT.request, size));
    const { chunks, secret } = await openRequest(header, await draftKey());
    expect(await all(chunks)).toEqual(DRAFT.opened);
    expect(new Uint8Array(secret.secret)).toEqual(DRAFT.secret);
    const keys = await responseKeys(secret, DRAFT.response_nonce);
    expect(keys).toMatchObject({ key: DRAFT.aead_key, nonce: DRAFT.aead_nonce });
    const sealer = new ResponseSealer(keys, encryptWith(keys.key));
    const { answered } = DRAFT;
    const sealed = [
      ...sealer.seal(answered.subarray(0, 1), false),
      ...sealer.seal(answered.subarray(1), false),
      ...sealer.seal(answered.subarray(3), true),
    ];
    expect(joined(sealed)).toEqual(DRAFT.response);
    expect(await all(openResponse(secret, inChunks(DRAFT.response, size)))).toEqual(answered);
  });

  it('cut anywhere is refused, request and response', async () => {
    const key = await draftKey();
    for (let length = 0; length < DRAFT.request.length; length++) {
      const code = await codeOf(openWhole([key], inChunks(DRAFT.request.subarray(0, length))));
      expect({ length, refused: code !== null }).toEqual({ length, refused: true });
    }
    const header = await readRequestHeader(inChunks(DRAFT.request));
    const { secret } = await openRequest(header, key);
    for (let length = 0; length < DRAFT.response.length; length++) {
      const code = await codeOf(all(openResponse(secret, inChunks(DRAFT.response.subarray(0, length)))));
      expect({ length, refused: code !== null }).toEqual({ length, refused: true });
    }
  });
});

it('derives the keys of a response as RFC 9458, appendix A', async () => {
  const enc = hex('4b28f881333e7c164ffc499ad9796f877f4e1051ee6d31bad19dec96c208b472');
  const secret = { secret: hex('62d87a6ba569ee81014c2641f52bea36'), enc, key_bytes: 16, nonce_bytes: 12 };
  const { key, nonce } = await responseKeys(secret, hex('c789e7151fcba46158ca84b04464910d'));
  expect(key).toEqual(hex('5d0172a080e428b16d298c4ea0db620d'));
  expect(nonce).toEqual(hex('f6bf1aeb88d6df87007fa263'));
  // Its response is one message without chunks, under the same key and nonce.
  expect(joined(encryptWith(key)(nonce, new Uint8Array(), hex('0140c8')))).toEqual(
    hex('86f9013e404feea014e7be4a441f234f857fbd'),
  );
});

describe.each(['the hybrid', 'X25519'])('sealed with %s', (which) => {
  const keysOf = async () => {
    const { document, keys } = await makeKeys(7, secrets());
    const length = 2 + ((document[0] as number) << 8) + (document[1] as number);
    return { keys, document: which === 'X25519' ? document.subarray(length) : document.subarray(0, length) };
  };
  const stage = async () => {
    const { keys, document } = await keysOf();
    const large = randomBytes(50_000);
    const request = await sealRequest(await chooseKey(document), inChunks(large, 25_000));
    const sealed = await listOf(request.chunks);
    const parts = ['one ', 'two ', 'three ', ''].map(utf8);
    return { keys, large, request, sealed, parts };
  };

  it('a request and its response come back whole, whatever the chunks on the way', async () => {
    const { keys, large, request, sealed, parts } = await stage();
    expect(sealed.length).toBe(4);
    const answered = await answer(keys, inChunks(joined(sealed), 999), parts);
    expect(Buffer.from(answered.message).equals(large)).toBe(true);
    const response = await all(request.openResponse(inChunks(joined(answered.chunks), 11)));
    expect(response).toEqual(utf8('one two three '));
  });

  it('chunks that are dropped, doubled, moved or changed are refused', async () => {
    const { keys, request, sealed, parts } = await stage();
    const [a, b, c, d] = sealed as [Uint8Array, Uint8Array, Uint8Array, Uint8Array];
    const changed = c.slice();
    changed[9] = (changed[9] as number) ^ 1;
    for (const chunks of [
      [a, c, d],
      [a, b, b, c, d],
      [a, c, b, d],
      [a, b, changed, d],
      [a, d],
      [a, b, c, d, d],
    ])
      expect(await codeOf(openWhole(keys, these(...chunks)))).toMatch(/^sealed_(not_opened|too_large)$/);
    expect(await codeOf(openWhole(keys, these(a, b, c)))).toBe('sealed_truncated');

    const response = async () => (await answer(keys, these(...sealed), parts)).chunks;
    const [e, f, g, h] = (await response()) as [Uint8Array, Uint8Array, Uint8Array, Uint8Array];
    const [other] = (await response()) as [Uint8Array];
    for (const chunks of [
      [e, g, h],
      [e, f, f, g, h],
      [e, g, f, h],
      [e, h],
      [other, f, g, h],
      [e, f, g, h, h],
    ])
      expect(await codeOf(all(request.openResponse(these(...chunks))))).toBe('sealed_not_opened');
    expect(await codeOf(all(request.openResponse(these(e, f, g))))).toBe('sealed_truncated');
    // A chunk in the middle that says it is the last.
    const last = joined([Uint8Array.of(0), f.subarray(1)]);
    expect(await codeOf(all(request.openResponse(these(e, last))))).toBe('sealed_not_opened');
  });

  it('an answer in the clear, or to another request, is refused', async () => {
    const { keys, request, sealed, parts } = await stage();
    const other = await stage();
    const { chunks } = await answer(keys, these(...sealed), parts);
    expect(await codeOf(all(other.request.openResponse(these(...chunks))))).toBe('sealed_not_opened');
    for (const plain of [
      '{"error":{"message":"no","code":"overloaded"}}',
      '{}',
      '',
      'data: {"choices":[]}\n\n'.repeat(9),
    ])
      expect(await codeOf(all(request.openResponse(inChunks(utf8(plain)))))).not.toBeNull();
  });

  it('a request to the key of another session is refused, and one with other algorithms is for no key', async () => {
    const { sealed } = await stage();
    const others = await keysOf();
    expect(await codeOf(openWhole(others.keys, these(...sealed)))).toBe('sealed_not_opened');
    const header = await readRequestHeader(these(...sealed));
    for (const other of [{ key_id: 99 }, { kdf_id: 2 }, { aead_id: 3 }, { kem_id: 0x10 }])
      expect(others.keys.some((key) => isFor({ ...header, ...other }, key))).toBe(false);
    const unknownKem = joined([hex('07 0010 0001 0001'), randomBytes(65)]);
    expect(await codeOf(readRequestHeader(inChunks(unknownKem)))).toBe('sealed_key_unknown');
  });

  it('chunks that are too large, or empty and not the last, are refused', async () => {
    const { keys, sealed } = await stage();
    const head = (sealed[0] as Uint8Array).subarray(0, 7 + (which === 'X25519' ? 32 : 1120));
    expect(await codeOf(openWhole(keys, these(head, hex('80004011'), new Uint8Array(16_401))))).toBe(
      'sealed_too_large',
    );
    expect(await codeOf(openWhole(keys, these(head, hex('00'), new Uint8Array(16_401))))).toBe('sealed_too_large');
    expect(await codeOf(openWhole(keys, these(head, hex('10'), new Uint8Array(16))))).toBe('sealed_malformed');
    const sealer = new ResponseSealer(
      { response_nonce: randomBytes(16), key: randomBytes(16), nonce: randomBytes(12) } as never,
      encryptWith(randomBytes(16)),
    );
    expect(() => sealer.seal(new Uint8Array(16_385), true)).toThrow(RangeError);
    expect(() => sealer.seal(new Uint8Array(), false)).toThrow(RangeError);
  });
});
