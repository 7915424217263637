// `npm run bench sealed`: what a sealed request costs in processor time: sealing and opening 4 KB, and each chunk of a sealed stream.
import { randomBytes } from 'node:crypto';
import type { Outgoing } from '../../gateway/http/outgoing.ts';
import { encryptWith, SealedResponse } from '../../gateway/sealing/sealed-response.ts';
import {
  chooseKey,
  isFor,
  KEYS_OF_A_SESSION,
  makeKeys,
  nonceBytes,
  openRequest,
  ResponseSealer,
  readKeys,
  readRequest,
  readRequestHeader,
  responseKeys,
  SECRET_BYTES,
  sealRequest,
  writeContent,
  writeEnd,
  writeKeys,
  writeRequestHead,
} from '../../sealed/index.ts';

const ROUNDS = 5;
const REQUESTS = 200;
const CHUNKS = 20_000;
const BODY_BYTES = 4 * 1024;
const NAMES: Readonly<Record<number, string>> = { 32: 'X25519', 25722: 'MLKEM768-X25519' };

/** The least of a few rounds, in microseconds for one of `count`. */
async function cost_us(count: number, run: () => Promise<void>): Promise<number> {
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS; round++) {
    const before = process.cpuUsage();
    await run();
    const { user, system } = process.cpuUsage(before);
    best = Math.min(best, (user + system) / count);
  }
  return best;
}

const body = randomBytes(BODY_BYTES);
async function* message() {
  const fields = [
    ['content-type', 'application/json'],
    ['authorization', 'Bearer key-of-a-client'],
  ] as const;
  const path = '/v1/chat/completions';
  yield writeRequestHead({ method: 'POST', scheme: 'https', authority: 'gateway', path, fields });
  yield writeContent(body);
  yield writeEnd();
}

async function* these(chunks: readonly Uint8Array[]) {
  yield* chunks;
}

async function listOf<T>(values: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const value of values) list.push(value);
  return list;
}

const secrets = Array.from({ length: KEYS_OF_A_SESSION }, () => randomBytes(SECRET_BYTES));
const made = await makeKeys(1, secrets);
for (const configuration of readKeys(made.document)) {
  const key = await chooseKey(writeKeys([configuration]));
  const seal = async () => listOf((await sealRequest(key, message())).chunks);
  const open = async (sealed: readonly Uint8Array[]) => {
    const header = await readRequestHeader(these(sealed));
    const opening = made.keys.find((one) => isFor(header, one));
    if (opening === undefined) throw new Error('no key opens this');
    const { chunks, secret } = await openRequest(header, opening);
    await listOf((await readRequest(chunks)).content);
    await responseKeys(secret, randomBytes(nonceBytes(secret)));
  };
  const sealed: Uint8Array[][] = [];
  const sealing = await cost_us(REQUESTS, async () => {
    sealed.length = 0;
    for (let i = 0; i < REQUESTS; i++) sealed.push(await seal());
  });
  const opening = await cost_us(REQUESTS, async () => {
    for (const one of sealed) await open(one);
  });
  const ms = (us: number) => (us / 1000).toFixed(2);
  const name = NAMES[configuration.kem_id];
  console.log(`${name}: seal ${ms(sealing)} ms, open ${ms(opening)} ms, both ${ms(sealing + opening)} ms (bar: 3 ms)`);
}

/** Takes everything. */
function nowhere(): Outgoing & { chunks: number } {
  const outgoing = {
    headersSent: false,
    destroyed: false,
    writableLength: 0,
    socket: null,
    statusCode: 200,
    chunks: 0,
    setHeader() {},
    writeHead() {
      outgoing.headersSent = true;
    },
    flushHeaders() {},
    write() {
      outgoing.chunks++;
      return true;
    },
    end() {},
    destroy() {},
    setTimeout() {},
    on() {},
    once() {},
    off() {},
  };
  return outgoing;
}

const EVENT = Buffer.from(
  `data: ${JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion.chunk', choices: [{ delta: { content: ' token' } }] })}\n\n`,
);
const keys = {
  response_nonce: randomBytes(32),
  key: new Uint8Array(randomBytes(32)),
  nonce: new Uint8Array(randomBytes(12)),
};

/** A stream of events, `each_turn` of them in a turn of the loop. */
async function stream(to: Pick<Outgoing, 'writeHead' | 'write' | 'end'>, each_turn: number): Promise<void> {
  to.writeHead(200, { 'content-type': 'text/event-stream' });
  for (let i = 0; i < CHUNKS; i++) {
    to.write(EVENT);
    if (i % each_turn === 0) await new Promise(setImmediate);
  }
  to.end();
}

for (const each_turn of [1, 4]) {
  const plain = await cost_us(CHUNKS, () => stream(nowhere(), each_turn));
  const sealing = await cost_us(CHUNKS, () => {
    const sealer = new ResponseSealer(
      { ...keys, response_nonce: new Uint8Array(keys.response_nonce) },
      encryptWith(keys.key),
    );
    return stream(new SealedResponse(nowhere(), sealer), each_turn);
  });
  const words = each_turn === 1 ? '1 event a turn' : `${each_turn} events a turn`;
  console.log(
    `a streamed event of ${EVENT.length} bytes, ${words}: ${(sealing - plain).toFixed(1)} µs more (bar: 20 µs)`,
  );
}
