// The Python package's sealed messages and those of sealed/: what one seals the other opens, and what one writes the other reads.
import { randomBytes } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { encryptWith } from '../../gateway/sealing/sealed-response.ts';
import { joined } from '../../sealed/byte-source.ts';
import {
  chooseKey,
  type Field,
  isFor,
  makeKeys,
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
import { all, codeOf, hex, inChunks } from '../sealed/chunks.ts';
import { AEAD, KEM, secrets } from '../sealed/suites.ts';
import { usePython } from '../support/line-process.ts';
import { PACKAGE, python, SKIPPED } from './package.ts';

const RUNS = Number(process.env.COUNTERSIGN_CHANGES ?? 300);
const TIMEOUT_MS = 60_000 + 100 * RUNS;
const DRIVER = fileURLToPath(new URL('sealed_driver.py', import.meta.url));

const toHex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex');

interface Outcome {
  readonly bytes: string;
  readonly number: number;
  readonly code?: string;
  readonly control: readonly string[];
  readonly fields: readonly Field[];
  readonly status: number;
}

const content = fc.uint8Array({ maxLength: 400 });
const message = fc.oneof(
  content,
  fc.constantFrom(0, 16_383, 16_384, 16_385, 50_000).map((length) => Uint8Array.from(randomBytes(length))),
);
const size = fc.constantFrom(1_000, 16_384, 100_000);
const fields = fc.array(
  fc.tuple(fc.stringMatching(/^[a-z][a-z0-9-]{0,20}$/), fc.stringMatching(/^([!-~\xa1-\xff]([ -~]{0,40}[!-~])?)?$/)),
  { maxLength: 12 },
);
const contents = fc.array(fc.uint8Array({ minLength: 1, maxLength: 300 }), { maxLength: 5 });

describe.skipIf(python === null)(`sealed messages of the Python package beside sealed/${SKIPPED}`, () => {
  const driver = usePython(python, [DRIVER], { PYTHONPATH: `${PACKAGE}src:${PACKAGE}tests` });
  const ask = (call: string, given: object) => driver.ask<Outcome>({ call, ...given });

  async function respond(keys: readonly OpeningKey[], request: Uint8Array, parts: readonly Uint8Array[]) {
    const header = await readRequestHeader(inChunks(request));
    const key = keys.find((one) => isFor(header, one)) as OpeningKey;
    const opened = await openRequest(header, key);
    const got = await all(opened.chunks);
    const derived = await responseKeys(opened.secret, randomBytes(nonceBytes(opened.secret)));
    const sealer = new ResponseSealer(derived, encryptWith(derived.key));
    const ended = [...parts, new Uint8Array()];
    return { got, key, sealed: ended.flatMap((part, i) => sealer.seal(part, i === ended.length - 1)) };
  }

  it(
    `${RUNS} requests are sealed in Python and opened here, and their responses the other way`,
    async () => {
      const { document, keys } = await makeKeys(255, secrets());
      await fc.assert(
        fc.asyncProperty(message, contents, size, async (sent, parts, length) => {
          const { bytes, number } = await ask('seal_request', {
            document: toHex(document),
            message: toHex(sent),
            size: length,
          });
          const { got, key, sealed } = await respond(keys, hex(bytes), parts);
          // The hybrid stands first in the document, and Python has none.
          expect(key).toMatchObject({ key_id: 0, kem_id: KEM.x25519 });
          expect(Buffer.from(got).equals(sent)).toBe(true);
          const response = await ask('open_response', { number, response: toHex(joined(sealed)), size: length });
          expect(response.bytes).toBe(toHex(joined(parts)));
        }),
        { numRuns: RUNS },
      );
    },
    TIMEOUT_MS,
  );

  it(
    `${RUNS} requests are sealed here and opened in Python, and their responses the other way`,
    async () => {
      const documents = await Promise.all(
        [AEAD.aes_128_gcm, AEAD.aes_256_gcm].map(async (aead, i) => hex((await ask('key', { key_id: i, aead })).bytes)),
      );
      await fc.assert(
        fc.asyncProperty(
          message,
          contents,
          size,
          fc.constantFrom(...documents),
          async (sent, parts, length, document) => {
            const request = await sealRequest(await chooseKey(document), inChunks(sent, length));
            const { bytes, number } = await ask('open_request', { request: toHex(await all(request.chunks)) });
            expect(bytes).toBe(toHex(sent));
            const response = await ask('seal_response', { number, parts: [...parts, new Uint8Array()].map(toHex) });
            expect(toHex(await all(request.openResponse(inChunks(hex(response.bytes), length))))).toBe(
              toHex(joined(parts)),
            );
          },
        ),
        { numRuns: RUNS },
      );
    },
    TIMEOUT_MS,
  );

  it('a response that is cut at any byte is refused on both sides, as is one with a byte changed', async () => {
    const { document, keys } = await makeKeys(1, secrets());
    const { bytes, number } = await ask('seal_request', { document: toHex(document), message: '00', size: 1 });
    const { sealed } = await respond(keys, hex(bytes), [Buffer.from('one'), Buffer.from('two')]);
    const whole = joined(sealed);
    expect((await ask('open_response', { number, response: toHex(whole), size: 7 })).bytes).toBe(
      Buffer.from('onetwo').toString('hex'),
    );
    for (let length = 0; length < whole.length; length++) {
      const cut = await ask('open_response', { number, response: toHex(whole.subarray(0, length)), size: 7 });
      expect({ length, code: cut.code }).toEqual({ length, code: expect.stringMatching(/^sealed_/) });
      const changed = whole.slice();
      changed[length] = (changed[length] as number) ^ 1;
      const refused = await ask('open_response', { number, response: toHex(changed), size: 7 });
      expect({ length, code: refused.code }).toEqual({ length, code: expect.stringMatching(/^sealed_/) });
    }
    for (let length = 0; length < hex(bytes).length; length++) {
      const header = readRequestHeader(inChunks(hex(bytes).subarray(0, length)));
      const code = await codeOf(
        header.then(async (one) => all((await openRequest(one, keys[1] as OpeningKey)).chunks)),
      );
      expect({ length, code }).toEqual({ length, code: expect.stringMatching(/^sealed_/) });
    }
  });

  it(
    `${RUNS} requests and responses are written on one side and read on the other`,
    async () => {
      const target = fc.stringMatching(/^\/v1\/[!-~]{0,30}$/);
      await fc.assert(
        fc.asyncProperty(
          fields,
          contents,
          target,
          fc.integer({ min: 200, max: 599 }),
          async (own, parts, path, status) => {
            const control = ['POST', 'https', 'a.example:8443', path];
            const whole = toHex(joined(parts));
            const theirs = await ask('write_request', { control, fields: own, contents: parts.map(toHex) });
            const read = await readRequest(inChunks(hex(theirs.bytes), 7));
            const { method, scheme, authority } = read.head;
            expect([method, scheme, authority, read.head.path]).toEqual(control);
            expect(read.head.fields).toEqual(own);
            expect(toHex(await all(read.content))).toBe(whole);

            const head = writeRequestHead({ method, scheme, authority, path, fields: own });
            const ours = toHex(joined([head, ...parts.map(writeContent), writeEnd()]));
            expect(ours).toBe(theirs.bytes);
            expect(await ask('read_request', { message: ours })).toEqual({
              control,
              fields: own.map(([n, v]) => [n, v]),
              bytes: whole,
            });

            const answer = joined([
              writeResponseHead({ status, fields: own }),
              ...parts.map(writeContent),
              writeEnd(3),
            ]);
            expect(await ask('read_response', { message: toHex(answer), size: 5 })).toEqual({
              status,
              fields: own,
              bytes: whole,
            });
            const back = await ask('write_response', { status, fields: own, contents: parts.map(toHex) });
            const response = await readResponse(inChunks(hex(back.bytes), 9));
            expect(response.head).toEqual({ status, fields: own });
            expect(toHex(await all(response.content))).toBe(whole);
          },
        ),
        { numRuns: RUNS },
      );
    },
    TIMEOUT_MS,
  );
});
