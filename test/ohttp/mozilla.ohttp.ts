// Sealed messages between ours and Mozilla's `ohttp`, both ways, with X25519 and with the hybrid.
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { createInterface } from 'node:readline';
import { afterEach, describe, expect, it } from 'vitest';
import { encryptWith } from '../../gateway/sealing/sealed-response.ts';
import {
  chooseKey,
  isFor,
  makeKeys,
  nonceBytes,
  openRequest,
  ResponseSealer,
  readKeys,
  readRequest,
  readRequestHeader,
  responseKeys,
  sealRequest,
  writeKeys,
} from '../../sealed/index.ts';
import { AEAD, KDF, SUITES, suiteOf } from '../../sealed/oblivious-http/suites.ts';
import { all, codeOf, inChunks } from '../sealed/chunks.ts';
import { messageOf } from '../sealed-client.ts';
import { PEER } from './setup.ts';

const toHex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex');
const fromHex = (text: string) => new Uint8Array(Buffer.from(text, 'hex'));

interface Peer {
  write(bytes: Uint8Array): void;
  /** The next line; throws where the peer has ended. */
  read(): Promise<Uint8Array>;
  readonly exit: Promise<number | null>;
}

const running: ChildProcess[] = [];
afterEach(() => {
  for (const one of running.splice(0)) one.kill('SIGKILL');
});

function start(...args: string[]): Peer {
  const child = spawn(PEER, args, { stdio: ['pipe', 'pipe', 'ignore'] });
  running.push(child);
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream })[Symbol.asyncIterator]();
  return {
    write: (bytes) => void child.stdin?.write(`${toHex(bytes)}\n`),
    async read() {
      const { value, done } = await lines.next();
      if (done) throw new Error('the peer has ended');
      return fromHex(value);
    },
    exit: new Promise((resolve) => child.once('exit', resolve)),
  };
}

const BODY = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'größe '.repeat(3_000) }] });
const ANSWER = randomBytes(40_000);

describe.each([
  ['x25519', 0x0020],
  ['hybrid', 0x647a],
])('%s', (name, kem_id) => {
  /** A key of ours of this KEM. Theirs has AES-128-GCM and no AES-256-GCM. */
  async function ownKey() {
    const made = await makeKeys(
      3,
      SUITES.map(() => randomBytes(32)),
    );
    const algorithms = { kem_id, kdf_id: KDF.hkdf_sha256, aead_id: AEAD.aes_128_gcm };
    const configuration = readKeys(made.document).find((one) => one.kem_id === kem_id);
    const key = made.keys.find((one) => one.kem_id === kem_id);
    const suite = suiteOf(algorithms);
    if (configuration === undefined || key === undefined || suite === null) throw new Error('there is no such KEM');
    const document = writeKeys([{ ...configuration, algorithms: [algorithms] }]);
    return { key: { ...key, ...algorithms, suite }, document };
  }

  it("their client's request opens here, and our response opens there", async () => {
    const { key, document } = await ownKey();
    const message = messageOf({ body: BODY });
    const peer = start('client', toHex(document), toHex(message));
    const header = await readRequestHeader(inChunks(await peer.read(), 1_000));
    expect(isFor(header, key)).toBe(true);
    const { chunks, secret } = await openRequest(header, key);
    const opened = await all(chunks);
    expect(Buffer.from(opened).equals(message)).toBe(true);
    expect((await readRequest(inChunks(opened))).head.path).toBe('/v1/chat/completions');
    const secrets = await responseKeys(secret, randomBytes(nonceBytes(secret)));
    const sealer = new ResponseSealer(secrets, encryptWith(secrets.key));
    const parts = [ANSWER.subarray(0, 16_384), ANSWER.subarray(16_384, 30_000), ANSWER.subarray(30_000)];
    peer.write(Buffer.concat(parts.flatMap((part, i) => sealer.seal(part, i === parts.length - 1))));
    expect(Buffer.from(await peer.read()).equals(ANSWER)).toBe(true);
    expect(await peer.exit).toBe(0);
  });

  it('our request opens there, and their response opens here', async () => {
    const peer = start('server', name);
    const request = await sealRequest(await chooseKey(await peer.read()), inChunks(messageOf({ body: BODY }), 9_999));
    peer.write(await all(request.chunks));
    expect(Buffer.from(await peer.read()).equals(messageOf({ body: BODY }))).toBe(true);
    peer.write(ANSWER);
    const sealed = await peer.read();
    expect(Buffer.from(await all(request.openResponse(inChunks(sealed, 777)))).equals(ANSWER)).toBe(true);
    expect(await codeOf(all(request.openResponse(inChunks(sealed.subarray(0, -1)))))).not.toBeNull();
    expect(await peer.exit).toBe(0);
  });

  it('their client refuses our response where it is cut', async () => {
    const { key, document } = await ownKey();
    const peer = start('client', toHex(document), toHex(messageOf({ body: '{}' })));
    const header = await readRequestHeader(inChunks(await peer.read()));
    expect(isFor(header, key)).toBe(true);
    const { chunks, secret } = await openRequest(header, key);
    await all(chunks);
    const secrets = await responseKeys(secret, randomBytes(nonceBytes(secret)));
    peer.write(
      Buffer.concat(new ResponseSealer(secrets, encryptWith(secrets.key)).seal(ANSWER.subarray(0, 100), false)),
    );
    expect(await peer.exit).not.toBe(0);
  });
});
