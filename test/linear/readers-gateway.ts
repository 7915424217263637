// The gateway's readers: of clients, of the backend, of the sidecar, of the keys file.

import { EventEmitter } from 'node:events';
import type { Attestor } from '../../gateway/attestation/interfaces.ts';
import { membersIn } from '../../gateway/attestation/sidecar-link.ts';
import type { ResponseHead } from '../../gateway/backend/backend.ts';
import { ResponseMeter } from '../../gateway/backend/client.ts';
import { rewriteError } from '../../gateway/backend/errors.ts';
import { toBackend, toClient } from '../../gateway/backend/headers.ts';
import { modelsIn } from '../../gateway/backend/probe.ts';
import { ChunkBuffer } from '../../gateway/base/bytes.ts';
import { decodedPath, isHost, originForm, originOf } from '../../gateway/base/target.ts';
import { Recorder } from '../../gateway/exchange/recorder.ts';
import {
  type Delivery,
  errorDelivery,
  mediaType,
  type Port,
  pipeDelivery,
  type TeeExchange,
} from '../../gateway/exchange/relay.ts';
import { streamDelivery } from '../../gateway/exchange/stream.ts';
import { teeHeader, wholeDelivery } from '../../gateway/exchange/tee.ts';
import { readBody } from '../../gateway/http/body.ts';
import { ANYONE, type Caller, checkRoute, NO_LIMITS } from '../../gateway/keys/keys.ts';
import { parseKeys, readLine } from '../../gateway/keys/keys-file.ts';
import { checkPath } from '../../gateway/keys/models.ts';
import { addressOf } from '../../gateway/limits/rates.ts';
import { modelsDelivery } from '../../gateway/routes/passthrough.ts';
import { Watch } from '../../gateway/telemetry/watch.ts';
import { draft, modelInForm, parseGeneration, parsePassThrough } from '../../gateway/threads/jobs.ts';
import { TokenReader } from '../../gateway/usage/llm-tokens.ts';
import { createAppraise } from '../../gateway/verifier/appraise.ts';
import { CHAT_ENDPOINT } from '../../proto/attestation/raw.ts';
import type { StreamForm } from '../../proto/stream/forms.ts';
import { PayloadReader } from '../../proto/stream/sse.ts';
import { inChunks, prepared, type Reader, reader } from './reader.ts';

const MAX = 1 << 26;
const LINES = ['event lines', 'chunks'];
function tokensIn(pieces: readonly Buffer[]): void {
  for (const stream of [true, false]) {
    const reader = new TokenReader(stream, MAX);
    for (const piece of pieces) reader.add(piece);
    reader.tokens();
  }
}

const headOf = (type: string): ResponseHead => ({
  status: 200,
  headers: { 'content-type': type },
  length: null,
});
const limited: Caller = { ...ANYONE, limits: { ...NO_LIMITS, models: new Set(['m']) } };

/** What an answer goes to: it is told, and keeps nothing. */
class Sink extends EventEmitter {
  headersSent = false;
  destroyed = false;
  writableLength = 0;
  writableCorked = 0;
  writableNeedDrain = false;
  socket = null;
  timeout = 0;
  statusCode = 200;
  setHeader() {}
  writeHead() {
    this.headersSent = true;
  }
  flushHeaders() {}
  write = () => true;
  end() {}
  destroy() {}
  destroySoon() {}
  setTimeout() {}
  setNoDelay() {}
  pause() {}
  resume() {}
  unshift() {}
  cork() {}
  uncork() {}
}

/** Runs a delivery over an answer that comes in pieces, until it says that it is over. */
async function delivered(
  pieces: readonly Buffer[],
  make: (port: Port, exchange: TeeExchange, attestor: Attestor) => Delivery,
  streamForm: StreamForm = 'completion',
): Promise<void> {
  const exchange = {
    ...{
      id: 'req-1',
      owner: 'anyone',
      request: '{"messages":[]}',
      choices: 1,
      streamForm,
      spliced: true,
      hold() {},
    },
    outgoing: new Sink(),
    watch: new Watch(null, null),
  } as unknown as TeeExchange;
  const attestor: Attestor = {
    name() {},
    attest: async ({ request }, answer) => ({
      json: Buffer.from(draft({ endpoint: CHAT_ENDPOINT, request, response: answer, timestamp: 1 }).start),
      tree_size: null,
    }),
  };
  await new Promise<void>((resolve) => {
    const over = () => resolve();
    const port: Port = { pause() {}, resume() {}, cancel() {}, onDisconnect() {}, done: over, refuse: over };
    const delivery = make(port, exchange, attestor);
    for (const piece of pieces) delivery.data(piece);
    delivery.end();
  });
}

function recorded(pieces: readonly Buffer[]): unknown {
  const recorder = new Recorder(MAX);
  const reading = new PayloadReader(MAX);
  for (const piece of pieces) for (const payload of reading.push(piece)) recorder.observe(payload);
  return recorder.finish();
}

/** Header lines as Node's parser hands them on. */
function headersIn(text: string): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const line of text.split('\r\n')) {
    const colon = line.indexOf(':');
    if (!/^[!#$%&'*+\-.^_`|~0-9A-Za-z]+:/.test(line)) continue;
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    headers[name] = name in headers ? `${headers[name]}, ${value}` : value;
  }
  // Texts of one piece, as a parser makes them.
  return JSON.parse(JSON.stringify(headers)) as Record<string, string>;
}

function metered(pieces: readonly Buffer[]): void {
  const meter = new ResponseMeter({ max_stream_bytes: MAX, max_stream_events: MAX, max_answer_ms: 600_000 });
  meter.head(headOf('text/event-stream'));
  for (const piece of pieces) meter.exceeds(piece);
}

const appraise = createAppraise({ rim_url: 'http://127.0.0.1', ocsp_url: 'http://127.0.0.1' }, async () => {
  throw new TypeError('nothing is fetched');
});

export const gatewayReaders: readonly Reader[] = [
  reader('gateway/threads/jobs: parseGeneration', ['requests', 'JSON'], ({ bytes }) =>
    parseGeneration('chat', bytes, ANYONE),
  ),
  reader('gateway/threads/jobs: parseGeneration, of prompts', ['requests'], ({ bytes }) =>
    parseGeneration('completion', bytes, ANYONE),
  ),
  reader('gateway/threads/jobs: parseGeneration, for some models', ['requests'], ({ bytes }) =>
    parseGeneration('chat', bytes, limited),
  ),
  reader('gateway/threads/jobs: parsePassThrough', ['requests', 'JSON'], ({ bytes }) =>
    parsePassThrough({ body: bytes, json: true, restrictedCaller: null, mayAttest: true }),
  ),
  reader('gateway/threads/jobs: parsePassThrough, for some models', ['requests'], ({ bytes }) =>
    parsePassThrough({ body: bytes, json: true, restrictedCaller: limited, mayAttest: false }),
  ),
  reader('gateway/threads/jobs: parsePassThrough, by the model', ['requests', 'JSON'], ({ bytes }) =>
    parsePassThrough({ body: bytes, json: true, restrictedCaller: null, mayAttest: false, byModel: true }),
  ),
  reader('gateway/exchange/tee: teeHeader', ['JSON', 'event lines'], ({ text }) => teeHeader({ 'x-tee': text })),
  reader('gateway/exchange/tee: teeHeader, of many words', ['JSON'], ({ text }) =>
    teeHeader({ 'x-tee': text.replaceAll(/[^,]+/g, ' batch ') }),
  ),
  reader('gateway/threads/jobs: draft', ['JSON'], ({ bytes }) =>
    draft({ endpoint: '/v1/embeddings', request: bytes, response: { body: bytes }, timestamp: 1 }),
  ),
  ...inChunks('gateway/recorder: Recorder', LINES, recorded, [7, Number.POSITIVE_INFINITY]),
  ...inChunks(
    'gateway/exchange/stream: streamDelivery',
    LINES,
    (pieces) =>
      delivered(pieces, (port, exchange, attestor) =>
        streamDelivery(headOf('text/event-stream'), port, exchange, attestor, MAX),
      ),
    [7, Number.POSITIVE_INFINITY],
  ),
  ...(['response', 'message'] as const).flatMap((form) =>
    inChunks(
      `gateway/exchange/stream: streamDelivery, of a ${form}`,
      ['event lines', 'named events'],
      (pieces) =>
        delivered(
          pieces,
          (port, exchange, attestor) => streamDelivery(headOf('text/event-stream'), port, exchange, attestor, MAX),
          form,
        ),
      [7, Number.POSITIVE_INFINITY],
    ),
  ),
  ...inChunks(
    'gateway/exchange/relay: pipeDelivery',
    LINES,
    (pieces) => delivered(pieces, (port, exchange) => pipeDelivery(headOf('text/event-stream'), port, exchange)),
    [7],
  ),
  ...inChunks(
    'gateway/exchange/whole: wholeDelivery',
    ['JSON', 'attestations'],
    (pieces) =>
      delivered(pieces, (port, exchange, attestor) =>
        wholeDelivery(headOf('application/json'), port, exchange, attestor, MAX),
      ),
    [64],
  ),
  ...inChunks(
    'gateway/exchange/relay: errorDelivery',
    ['JSON', 'requests'],
    (pieces) =>
      delivered(pieces, (port, exchange) =>
        errorDelivery({ ...headOf('application/json'), status: 400 }, port, exchange),
      ),
    [64],
  ),
  ...inChunks(
    'gateway/routes/passthrough: modelsDelivery',
    ['JSON', 'requests'],
    (pieces) =>
      delivered(pieces, (port, exchange) => modelsDelivery(headOf('application/json'), port, exchange, new Set(['m']))),
    [64],
  ),
  reader('gateway/threads/jobs: modelInForm', ['forms', 'requests'], ({ bytes }) =>
    modelInForm('multipart/form-data; boundary=x', bytes),
  ),
  reader('gateway/threads/jobs: modelInForm, by its type', ['heads of answers', 'forms'], ({ text }) =>
    modelInForm(`multipart/form-data; ${text}`, Buffer.from('--x')),
  ),
  ...inChunks('gateway/usage/llm-tokens: TokenReader', ['JSON', 'event lines', 'requests'], tokensIn, [
    7,
    Number.POSITIVE_INFINITY,
  ]),
  reader('gateway/backend/probe: modelsIn', ['JSON', 'requests'], ({ bytes }) => modelsIn(bytes)),
  reader('gateway/backend/errors: rewriteError', ['JSON', 'requests'], ({ text }) => rewriteError(400, text)),
  ...inChunks('gateway/backend/client: ResponseMeter', LINES, metered, [7, Number.POSITIVE_INFINITY]),
  prepared(
    'gateway/backend/headers: toBackend and toClient',
    ['heads of answers'],
    ({ text }) => headersIn(text),
    (headers) => {
      toBackend(headers, 'key', limited);
      toClient(headers);
      mediaType(headers);
    },
  ),
  prepared(
    'gateway/limits/rates: addressOf',
    ['heads of answers'],
    ({ text }) => headersIn(text),
    (headers) => addressOf(headers, null, 'x-forwarded-for'),
  ),
  ...inChunks(
    'gateway/http/body: readBody',
    ['JSON'],
    async (pieces) => {
      const incoming = Object.assign(new EventEmitter(), { headers: {}, destroyed: false });
      const body = readBody(incoming as never, MAX);
      for (const piece of pieces) incoming.emit('data', piece);
      incoming.emit('end');
      await body;
    },
    [64],
  ),
  ...inChunks(
    'gateway/http/bytes: ChunkBuffer',
    ['JSON'],
    (pieces) => {
      const gathering = new ChunkBuffer(pieces.reduce((sum, { length }) => sum + length, 0));
      for (const piece of pieces) gathering.add(piece);
      gathering.whole();
    },
    [7],
  ),
  reader('gateway/http/target: targets and hosts', ['targets, hosts and origins'], ({ text }) => {
    originForm('GET', text);
    decodedPath(text);
    isHost(text);
  }),
  reader('gateway/http/target: originOf', ['targets, hosts and origins'], ({ text }) => originOf(text)),
  reader('gateway/keys/models: checkPath', ['targets, hosts and origins'], ({ text }) =>
    checkPath(limited, 'GET', `/models${text}`, false),
  ),
  reader('gateway/keys/keys: checkRoute', ['targets, hosts and origins'], ({ text }) =>
    checkRoute(limited, 'DELETE', text),
  ),
  reader('gateway/keys/keys-file: readLine', ['lines of keys'], ({ text }) => readLine(text, 1)),
  reader('gateway/keys/keys-file: parseKeys', ['lines of keys'], ({ text }) => parseKeys(text)),
  reader('gateway/attestation/sidecar-link: membersIn', ['attestations', 'JSON', 'frames'], ({ bytes }) =>
    membersIn(bytes),
  ),
  reader('gateway/verifier/appraise: appraise', ['tokens'], ({ bytes }) =>
    appraise({
      body: bytes,
      countersignKeys: undefined,
      simulatedRoot: null,
      policy: {},
      endpoint: undefined,
      event: false,
    }),
  ),
];
