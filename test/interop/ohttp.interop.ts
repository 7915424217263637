// sealed/ beside Mozilla's implementations in Rust, both ways: their client and our gateway's side, our client and their server; binary HTTP
// in all four forms; and what one side has sealed, cut or changed, is refused by the other.
import { randomBytes } from 'node:crypto';
import * as fc from 'fast-check';
import {
  AEAD_AES_128_GCM,
  CipherSuite,
  KDF_HKDF_SHA256,
  KEM_DHKEM_X25519_HKDF_SHA256,
  KEM_MLKEM768_X25519,
} from 'hpke';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { encryptWith } from '../../gateway/sealing/sealed-response.ts';
import { joined } from '../../sealed/byte-source.ts';
import {
  chooseKey,
  type Field,
  isFor,
  nonceBytes,
  type OpeningKey,
  openRequest,
  ResponseSealer,
  readRequest,
  readRequestHeader,
  readResponse,
  responseKeys,
  sealRequest,
  writeContent,
  writeEnd,
  writeRequestHead,
  writeResponseHead,
} from '../../sealed/index.ts';
import { writeKeys } from '../../sealed/keys.ts';
import { all, codeOf, hex, inChunks } from '../sealed/chunks.ts';
import { AEAD, KDF, KEM } from '../sealed/suites.ts';
import type { LineProcess } from '../support/line-process.ts';
import { CRATES, missing, type Outcome, startOhttp } from './ohttp.ts';

const RUNS = Number(process.env.COUNTERSIGN_CHANGES ?? 200);
const skipped = missing === null ? '' : ` SKIPPED: ${missing}`;
if (missing !== null) console.warn(`\n!!! Interoperation with ${CRATES.join(' and ')} is NOT tested: ${missing} !!!\n`);

const toHex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex');
const size = fc.constantFrom(1, 7, 1_000, 16_384, 100_000);
const message = fc.oneof(
  fc.uint8Array({ maxLength: 400 }),
  fc.constantFrom(16_383, 16_384, 16_385, 50_000).map((length) => Uint8Array.from(randomBytes(length))),
);
const parts = fc.array(fc.uint8Array({ minLength: 1, maxLength: 300 }), { maxLength: 5 });

/** A key of ours. Theirs have no AES-256-GCM, so it stands with AES-128-GCM. */
async function ourKey(key_id: number, kem_id: number): Promise<{ key: OpeningKey; document: Uint8Array }> {
  const algorithms = { kdf_id: KDF.hkdf_sha256, aead_id: AEAD.aes_128_gcm };
  const kem = kem_id === KEM.x25519 ? KEM_DHKEM_X25519_HKDF_SHA256 : KEM_MLKEM768_X25519;
  const suite = new CipherSuite(kem, KDF_HKDF_SHA256, AEAD_AES_128_GCM);
  const pair = await suite.DeriveKeyPair(randomBytes(32));
  const public_key = await suite.SerializePublicKey(pair.publicKey);
  return {
    key: { key_id, kem_id, ...algorithms, suite, pair },
    document: writeKeys([{ key_id, kem_id, public_key, algorithms: [algorithms] }]),
  };
}

async function opened(key: OpeningKey, request: Uint8Array, chunk: number) {
  const header = await readRequestHeader(inChunks(request, chunk));
  expect(isFor(header, key)).toBe(true);
  const { chunks, secret } = await openRequest(header, key);
  return { message: await all(chunks), secret };
}

async function sealedResponse(secret: Awaited<ReturnType<typeof opened>>['secret'], contents: readonly Uint8Array[]) {
  const keys = await responseKeys(secret, randomBytes(nonceBytes(secret)));
  const sealer = new ResponseSealer(keys, encryptWith(keys.key));
  const ended = [...contents, new Uint8Array()];
  return joined(ended.flatMap((part, i) => sealer.seal(part, i === ended.length - 1)));
}

describe.skipIf(missing !== null)(`sealed/ beside ${CRATES.join(' and ')}${skipped}`, () => {
  let rust: LineProcess;
  beforeAll(() => {
    rust = startOhttp();
  });
  afterAll(() => rust?.end());
  async function ask(call: string, given: object): Promise<Outcome> {
    const outcome = await rust.ask<Outcome>({ call, ...given });
    if (outcome.error !== undefined) throw new Error(`${call}: ${outcome.error}`);
    return outcome;
  }
  const errorOf = async (call: string, given: object) => (await rust.ask<Outcome>({ call, ...given })).error ?? null;

  describe.each([
    ['X25519', KEM.x25519],
    ['the hybrid of ML-KEM-768 and X25519', KEM.mlkem768_x25519],
  ])('sealed with %s', (_name, kem) => {
    it(`${RUNS} requests of theirs are opened here, and their client opens our responses`, async () => {
      const { key, document } = await ourKey(7, kem);
      await fc.assert(
        fc.asyncProperty(message, parts, size, async (sent, contents, length) => {
          const { bytes, number } = await ask('seal_request', {
            document: toHex(document),
            message: toHex(sent),
            size: Math.max(length, 100),
          });
          const got = await opened(key, hex(bytes), length);
          expect(Buffer.from(got.message).equals(sent)).toBe(true);
          const response = await sealedResponse(got.secret, contents);
          const answer = await ask('open_response', { request: number, response: toHex(response), size: length });
          expect(answer.bytes).toBe(toHex(joined(contents)));
        }),
        { numRuns: RUNS },
      );
    });

    it(`${RUNS} requests of ours are opened by their server, and we open its responses`, async () => {
      const { number: key, bytes } = await ask('key', { key_id: 3, kem });
      const chosen = await chooseKey(hex(bytes));
      expect(chosen).toMatchObject({ key_id: 3, kem_id: kem, aead_id: AEAD.aes_128_gcm });
      await fc.assert(
        fc.asyncProperty(message, message, size, async (sent, content, length) => {
          const request = await sealRequest(chosen, inChunks(sent, Math.max(length, 100)));
          const theirs = await ask('open_request', { key, request: toHex(await all(request.chunks)), size: length });
          expect(theirs.bytes).toBe(toHex(sent));
          const chunk = Math.max(length, 100);
          const given = { request: theirs.number, message: toHex(content), size: chunk };
          const response = await ask('seal_response', given);
          expect(toHex(await all(request.openResponse(inChunks(hex(response.bytes), chunk))))).toBe(toHex(content));
        }),
        { numRuns: RUNS },
      );
    });

    it('what is cut or changed is refused by either side', async () => {
      const ours = await ourKey(1, kem);
      const seal = { document: toHex(ours.document), message: 'aabbcc', size: 1 };
      const theirs = await ask('seal_request', seal);
      const request = hex(theirs.bytes);
      const header = 7 + (kem === KEM.x25519 ? 32 : 1120);
      const changed = (bytes: Uint8Array, at: number) => bytes.map((byte, i) => (i === at ? byte ^ 1 : byte));
      for (let at = header; at < request.length; at++)
        for (const bytes of [request.subarray(0, at), changed(request, at)])
          expect({ at, code: await codeOf(opened(ours.key, bytes, 9)) }).toEqual({
            at,
            code: expect.stringMatching(/^sealed_/),
          });
      const { secret } = await opened(ours.key, request, 9);
      const response = await sealedResponse(secret, [Buffer.from('one'), Buffer.from('two')]);
      const open = (bytes: Uint8Array) =>
        errorOf('open_response', { request: theirs.number, response: toHex(bytes), size: 9 });
      expect(await open(response)).toBeNull();
      for (let at = 0; at < response.length; at++)
        expect({ at, errors: [await open(response.subarray(0, at)), await open(changed(response, at))] }).toEqual({
          at,
          errors: [expect.any(String), expect.any(String)],
        });

      const { number: key, bytes } = await ask('key', { key_id: 9, kem });
      const sealed = await sealRequest(await chooseKey(hex(bytes)), inChunks(Buffer.from('a message')));
      const whole = await all(sealed.chunks);
      for (let at = header; at < whole.length; at++)
        for (const one of [whole.subarray(0, at), changed(whole, at)])
          expect(await errorOf('open_request', { key, request: toHex(one), size: 9 }), `${at}`).not.toBeNull();
      const { number } = await ask('open_request', { key, request: toHex(whole), size: 9 });
      const answer = hex((await ask('seal_response', { request: number, message: 'aabbcc', size: 1 })).bytes);
      expect(await codeOf(all(sealed.openResponse(inChunks(answer))))).toBeNull();
      for (let at = 0; at < answer.length; at++)
        for (const one of [answer.subarray(0, at), changed(answer, at)])
          expect({ at, code: await codeOf(all(sealed.openResponse(inChunks(one, 9)))) }).toEqual({
            at,
            code: expect.stringMatching(/^sealed_/),
          });
    });
  });

  it(`${RUNS} binary HTTP messages are written on one side and read on the other`, async () => {
    const fields = fc.array(
      fc.tuple(fc.stringMatching(/^[a-z][a-z0-9-]{0,20}$/), fc.stringMatching(/^[!-~]([ -~]{0,40}[!-~])?$/)),
      { maxLength: 12 },
    );
    const target = fc.stringMatching(/^\/v1\/[!-~]{0,30}$/);
    const status = fc.integer({ min: 200, max: 599 });
    await fc.assert(
      fc.asyncProperty(fields, parts, target, status, fc.boolean(), async (own, contents, path, code, known_length) => {
        const list = own as Field[];
        const content = toHex(joined(contents));
        const request = ['POST', 'https', 'a.example:8443', path] as const;
        const body = [...contents.map(writeContent), writeEnd()];
        const [method, scheme, authority] = request;
        const ours = joined([writeRequestHead({ method, scheme, authority, path, fields: list }), ...body]);
        const answer = joined([writeResponseHead({ status: code, fields: list }), ...body]);
        for (const size of [0, 1, 9]) {
          const read = await ask('read', { message: toHex(ours), size });
          expect(read.http).toEqual({ request, status: null, fields: own, content });
          const back = await ask('read', { message: toHex(answer), size });
          expect(back.http).toEqual({ request: null, status: code, fields: own, content });
        }
        const written = await ask('write', { request, fields: own, content, known_length });
        const theirs = await readRequest(inChunks(hex(written.bytes), 7));
        expect(theirs.head).toEqual({ method, scheme, authority, path, fields: own });
        expect(toHex(await all(theirs.content))).toBe(content);
        const response = await ask('write', { status: code, fields: own, content, known_length });
        const theirResponse = await readResponse(inChunks(hex(response.bytes), 7));
        expect(theirResponse.head).toEqual({ status: code, fields: own });
        expect(toHex(await all(theirResponse.content))).toBe(content);
      }),
      { numRuns: RUNS },
    );
  });
});
