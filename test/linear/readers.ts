// Every reader of what others wrote: its name, the kinds of input that it is given, and how it is called.
import { EventEmitter } from 'node:events';
import { Readable } from 'node:stream';
import * as link from '../../gateway/attestation/sidecar-link.ts';
import * as client from '../../gateway/backend/client.ts';
import { rewriteError } from '../../gateway/backend/errors.ts';
import * as headers from '../../gateway/backend/headers.ts';
import { modelsIn } from '../../gateway/backend/probe.ts';
import { ChunkBuffer } from '../../gateway/base/bytes.ts';
import * as target from '../../gateway/base/target.ts';
import { Recorder } from '../../gateway/exchange/recorder.ts';
import * as relay from '../../gateway/exchange/relay.ts';
import { streamDelivery } from '../../gateway/exchange/stream.ts';
import { teeHeader, wholeDelivery } from '../../gateway/exchange/tee.ts';
import { readBody } from '../../gateway/http/body.ts';
import { ANYONE, checkRoute, NO_LIMITS } from '../../gateway/keys/keys.ts';
import { parseKeys, readLine } from '../../gateway/keys/keys-file.ts';
import { checkPath } from '../../gateway/keys/models.ts';
import { addressOf } from '../../gateway/limits/rates.ts';
import { modelsDelivery } from '../../gateway/routes/passthrough.ts';
import * as opened from '../../gateway/sealing/opened-request.ts';
import { Watch } from '../../gateway/telemetry/watch.ts';
import * as jobs from '../../gateway/threads/jobs.ts';
import { TokenReader } from '../../gateway/usage/llm-tokens.ts';
import { createAppraise } from '../../gateway/verifier/appraise.ts';
import { readAnswer } from '../../page/base/stream.ts';
import { readCompose } from '../../proto/attestation/compose.ts';
import * as frames from '../../proto/attestation/frames.ts';
import { readLaunch } from '../../proto/attestation/launch.ts';
import { nonceOf, splitRaw } from '../../proto/attestation/raw.ts';
import * as json from '../../proto/json.ts';
import * as kept from '../../proto/kept-numbers.ts';
import * as fold from '../../proto/stream/fold.ts';
import { recordEvents } from '../../proto/stream/record-events.ts';
import * as sse from '../../proto/stream/sse.ts';
import * as sealed from '../../sealed/index.ts';
import { readKeys } from '../../sealed/keys.ts';
import { openResponse } from '../../sealed/response.ts';
import { checkBatch } from '../../verify/binding/batch.ts';
import { attestationOf, compareTranscript } from '../../verify/binding/exchange.ts';
import * as input from '../../verify/binding/input.ts';
import { isPartOf, sameTokens, sameValue } from '../../verify/binding/json-equality.ts';
import { verifyingFetch } from '../../verify/clients/fetch.ts';
import { exportCmw } from '../../verify/cmw.ts';
import * as text from '../../verify/common/bytes.ts';
import { readCpuMember } from '../../verify/cpu/cpu-member.ts';
import { appraiseCpu } from '../../verify/cpu/verify-cpu.ts';
import { appraiseSession } from '../../verify/cpu.ts';
import { fetchNrasKeys, fetchRim } from '../../verify/gpu/collateral.ts';
import { checkReports } from '../../verify/gpu/report-check.ts';
import { readManifest } from '../../verify/gpu/rim/rim.ts';
import { childElements, parseXml } from '../../verify/gpu/rim/xml.ts';
import { canonicalDocument, readSignature } from '../../verify/gpu/rim/xml-signature.ts';
import { appraiseAttestation, createCollateral } from '../../verify/index.ts';
import { nvtrustDigestText } from '../../verify/token/digests.ts';
import { parseJws, parseTokenJson } from '../../verify/token/jws.ts';
import { keyOf } from '../../verify/token/signature.ts';
import { parsePem } from '../../verify/x509/certificate.ts';
import { parseCrl } from '../../verify/x509/crl.ts';
import * as der from '../../verify/x509/der.ts';
import { these } from '../sealed/chunks.ts';
import { signedTargets } from '../verify/fuzz/fuzz-targets-signed.ts';
import { textTargets } from '../verify/fuzz/fuzz-targets-text.ts';
import { fullOptions, wholeTargets } from '../verify/fuzz/fuzz-targets-whole.ts';
import { makeSession } from '../verify/session-maker.ts';
import { CPU_OPTIONS, type Name, OPENING_KEY, RESPONSE_SECRET, world } from './inputs.ts';

type Bytes = Buffer<ArrayBuffer>;
export interface Given {
  readonly s: string;
  readonly bytes: Bytes;
  /** The bytes in pieces of a size, with memory of their own as what comes from a network has. */
  readonly cut: (size: number) => Bytes[];
}
export interface Row {
  readonly name: string;
  readonly kinds: readonly Name[];
  readonly read: (given: Given) => unknown;
}
const row = (name: string, kinds: string, read: Row['read']): Row => ({
  name,
  kinds: kinds.split(' ') as Name[],
  read,
});
/** In small pieces, and whole. */
const pieces = (name: string, kinds: string, read: (pieces: Bytes[]) => unknown): Row[] =>
  [7, 1 << 30].map((size) => row(`${name}, by ${size}`, kinds, ({ cut }) => read(cut(size))));

const MAX = 1 << 26;
const NONCE = '0'.repeat(64);
const URL = 'http://127.0.0.1/v1/chat/completions';
const BODY = '{"messages":[{"role":"user"}],"stream":true,"tee":true}';
const LIMITS = { max_head_bytes: MAX, max_fields: MAX, max_padding_bytes: MAX };
const ATTESTATION = { raw: 'x', nonce: 'x', token: 'x' } as never;
const EVIDENCE = [{ arch: 'HOPPER', report: 'AAAA', certificate_chain: 'AAAA' }];
const OPTIONS = fullOptions(world);
const SESSION = await makeSession();
const LIMITED = { ...ANYONE, limits: { ...NO_LIMITS, models: new Set(['m']) } };
const appraise = createAppraise({ rim_url: URL, ocsp_url: URL }, () => Promise.reject(new Error('nothing is fetched')));

/** Each of them, though one before it fails; what is called wrongly is an error. */
async function all(...reads: readonly (() => unknown)[]): Promise<void> {
  for (const one of await Promise.allSettled(reads.map(async (read) => read())))
    if (one.status === 'rejected' && one.reason instanceof TypeError) throw one.reason;
}
const answering = (sent: readonly Uint8Array[], type: string) => async () =>
  new Response(ReadableStream.from(sent), { headers: { 'content-type': type } });
const quoted = (before: string, sent: readonly Bytes[], after: string) =>
  answering([Buffer.from(before), ...sent, Buffer.from(after)], 'application/json');
async function drained(chunks: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const _ of chunks);
}
function payloadsIn(sent: readonly Uint8Array[]): Uint8Array[] {
  const reader = new sse.PayloadReader(MAX);
  return [...sent.flatMap((piece) => reader.push(piece)), ...[reader.end()].filter((last) => last !== null)];
}
function eventsIn(sent: readonly Uint8Array[]) {
  const reader = new sse.NamedEventReader(MAX);
  return [...sent.flatMap((piece) => reader.push(piece)), ...[reader.end()].filter((last) => last !== null)];
}

type Make = (port: relay.Port, exchange: relay.TeeExchange, attestor: never) => relay.Delivery;
const head = (type: string, status = 200) => ({ status, headers: { 'content-type': type }, length: null });
/** Runs a delivery over an answer that comes in pieces, until it says that it is over. The client takes all of it at once. */
async function delivered(sent: readonly Buffer[], make: Make, streamForm = 'completion'): Promise<void> {
  const emitter = Object.assign(new EventEmitter(), {
    statusCode: 200,
    writableLength: 0,
    socket: null,
    write: () => true,
  });
  const outgoing = new Proxy(emitter, {
    get: (it, name) =>
      Reflect.get(it, name) ?? (/^(?:headersSent|destroyed|writable)/.test(String(name)) ? false : () => {}),
  });
  const known = { id: 'req-1', owner: 'anyone', request: '{"messages":[]}', choices: 1, spliced: true, hold() {} };
  const exchange = { ...known, streamForm, outgoing, watch: new Watch(null, null) } as never;
  const attest = async ({ request }: { request: string }, response: never) => {
    const { start } = jobs.draft({ endpoint: '/v1/chat/completions', request, response, timestamp: 1 });
    return { json: Buffer.from(start), tree_size: null };
  };
  await new Promise<void>((over) => {
    const done = () => over();
    const port = { pause() {}, resume() {}, cancel() {}, onDisconnect() {}, done, refuse: done };
    const delivery = make(port, exchange, { name() {}, attest } as never);
    for (const piece of sent) delivery.data(piece);
    delivery.end();
  });
}
const [EVENT_STREAM, JSON_BODY] = [head('text/event-stream'), head('application/json')];

/** Which of the fuzzer's targets are read here, and what they read. */
const FUZZED: Readonly<Record<string, string>> = {
  report: 'reports',
  'opaque data': 'opaque',
  certificate: 'der',
  'PEM chain': 'pem',
  'OCSP response': 'der',
  RIM: 'xml',
  'token of nvtrust': 'tokens',
  'bare evidence': 'attestations',
};
const fuzzed = [...(await signedTargets(world)), ...textTargets(world), ...(await wholeTargets(world))]
  .filter(({ name }) => name in FUZZED)
  .map(({ name, good, run }) =>
    row(`fuzzed: ${name}`, FUZZED[name] ?? '', ({ s, bytes }) =>
      run((typeof good === 'string' ? s : new Uint8Array(bytes)) as never),
    ),
  );

const ofProto: readonly Row[] = [
  ...pieces('PayloadReader', 'lines chunks', payloadsIn),
  ...pieces('NamedEventReader, writeNamedEvent', 'lines events', (sent) => eventsIn(sent).map(sse.writeNamedEvent)),
  ...(['response', 'message'] as const).map((form) =>
    row(`recordEvents, of a ${form}`, 'events', ({ bytes }) => {
      const record = recordEvents(form);
      for (const { name, payload } of eventsIn([bytes])) record.add(name, text.fromUtf8(payload));
      return record.text();
    }),
  ),
  row('writeEvents', 'lines chunks', ({ bytes }) =>
    all(
      () => sse.writeEvents(payloadsIn([bytes])),
      () => sse.writeEvents([bytes]),
    ),
  ),
  row('topLevelMembers, withoutMember', 'json requests', ({ s }) => json.withoutMember(s, json.topLevelMembers(s), 0)),
  row('withLastMember', 'json', ({ s }) => json.withLastMember(s, 'a', '1')),
  row('parseJson', 'json requests', ({ s }) => json.parseJson(s)),
  row('withoutSpaceAround', 'json', ({ s }) => json.withoutSpaceAround(s)),
  row('parseKeepingNumbers', 'json requests', ({ s }) => kept.stringifyKeepingNumbers(kept.parseKeepingNumbers(s))),
  row('byText', 'json requests', ({ s }) => kept.byText().stringify(kept.byText().parse(s))),
  row('splitRaw', 'json attestations', ({ s }) => splitRaw(s)),
  row('splitRaw, a request', 'json', ({ s }) => splitRaw(`{"request":${s},"response":{"a":${s}},"timestamp":1}`)),
  row('nonceOf', 'json', ({ s }) => nonceOf(s)),
  row('Fold', 'chunks', ({ bytes }) => {
    const folded = new fold.Fold(null);
    for (const payload of payloadsIn([bytes]))
      if (payload[0] === 0x7b) folded.add(fold.parseChunk(text.fromUtf8(payload)));
    return folded.text();
  }),
  row('foldPayloads', 'json', ({ s }) =>
    fold.foldPayloads([s, ...Array(2).fill(`{"choices":[{"index":0,"delta":{"a":${s}}}]}`)], null),
  ),
  row('splitBinaryFrame, fromSidecarSchema', 'frames attestations', ({ s, bytes }) =>
    all(
      () => bytes.includes('\n') && frames.splitBinaryFrame(bytes),
      () => frames.fromSidecarSchema.safeParse(JSON.parse(s)),
    ),
  ),
  row('readLaunch', 'json attestations', ({ s }) => readLaunch(`{"version":1,"images":${s},"model":${s}}`)),
  row('readCompose', 'json attestations', ({ s }) =>
    readCompose(`{"name":"a","services":{"backend":{"command":${s}}},"x-a":${s}}`),
  ),
  ...pieces('readAnswer of the page', 'lines chunks', async (sent) =>
    readAnswer(await answering(sent, 'text/event-stream')(), {
      content() {},
      reasoning() {},
      refusal() {},
      toolCall() {},
      signing() {},
    }),
  ),
  ...pieces('readRequest', 'openedRequests', async (sent) =>
    drained((await sealed.readRequest(these(...sent), LIMITS)).content),
  ),
  ...pieces('readResponse', 'openedResponses', async (sent) =>
    drained((await sealed.readResponse(these(...sent), LIMITS)).content),
  ),
  row('readKeys, chooseKey', 'documents', ({ bytes }) =>
    all(
      () => readKeys(bytes),
      () => sealed.chooseKey(bytes),
    ),
  ),
  ...pieces('openRequest', 'sealedRequests', async (sent) =>
    drained((await sealed.openRequest(await sealed.readRequestHeader(these(...sent)), OPENING_KEY)).chunks),
  ),
  ...pieces('openResponse', 'sealedResponses', (sent) => drained(openResponse(RESPONSE_SECRET, these(...sent)))),
];

const ofVerify: readonly Row[] = [
  row('noDuplicates', 'json attestations', ({ s }) => [JSON.parse(s), input.noDuplicates(s)]),
  row('readInput', 'json attestations responses', ({ s }) => input.readInput(s)),
  row('readInput, of an event', 'json attestations responses', ({ s }) =>
    input.readInput(`{"type":"response.completed","response":${s}}`),
  ),
  row('readInput, of a value', 'attestations', ({ s }) => input.readInput(JSON.parse(s))),
  row('attestationIn', 'json attestations responses', ({ s }) => input.attestationIn(s)),
  row('attestationIn, of an event', 'json responses', ({ s }) =>
    input.attestationIn(`{"type":"response.completed","response":${s}}`),
  ),
  row('withoutAttestation', 'json attestations', ({ s }) =>
    input.withoutAttestation(`{"attestation":${s},"a":${s}}`, ATTESTATION),
  ),
  row('readDevices', 'json attestations', ({ s }) => input.readDevices(s)),
  row('checkBatch', 'json attestations', ({ s }) => checkBatch(JSON.parse(s), NONCE, NONCE)),
  row('checkBatch, its path', 'json', ({ s }) =>
    checkBatch({ salt: NONCE, leaf_index: 0, tree_size: 4096, path: JSON.parse(s) }, NONCE, NONCE),
  ),
  row('sameTokens', 'json requests', ({ s }) => [JSON.parse(s), sameTokens(` ${s}`, s)]),
  row('sameValue, isPartOf', 'json requests', ({ s }) => {
    const [x, y] = [kept.parseKeepingNumbers(s), kept.parseKeepingNumbers(s)];
    return [sameValue(x, y), isPartOf(x, y), isPartOf({ a: [x, x, 'no'] }, { a: [y, 1, y, [y], y] })];
  }),
  row('compareTranscript', 'lines chunks transcripts', ({ bytes }) => {
    const stream = { events: payloadsIn([bytes]).length, sha256: '' };
    return compareTranscript(ATTESTATION, { request: '', response: '', timestamp: 1, stream }, bytes);
  }),
  row('attestationOf', 'chunks transcripts', ({ bytes }) => attestationOf(bytes)),
  row('appraiseCpu', 'cpu', ({ s }) => appraiseCpu(s, CPU_OPTIONS)),
  row('readCpuMember', 'json attestations', ({ s }) =>
    readCpuMember(`{"type":"AZURE_TDX","report":"AAAA","quote":"AAAA","tpm":{},"collateral":${s}}`),
  ),
  row('appraiseSession', 'json attestations', ({ s }) =>
    appraiseSession(`{"type":"SEV_SNP","statement":"{}","report":"AAAA","launch":"x","gpu":${s}}`),
  ),
  row('appraiseSession, the launch file', 'cpu', ({ s }) =>
    appraiseSession({ ...SESSION.cpu, gpu: SESSION.gpu, launch: s }),
  ),
  row('exportCmw', 'attestations', ({ s }) => exportCmw(s)),
  row('exportCmw, a session', 'cpu', ({ s }) =>
    exportCmw({ ...JSON.parse(s), statement: SESSION.statement, gpu: SESSION.gpu }),
  ),
  row('parseCrl', 'der crls', ({ bytes }) => parseCrl(bytes)),
  row('appraiseAttestation', 'attestations tokens', ({ s }) => appraiseAttestation(s, OPTIONS)),
  row('appraiseAttestation, a stream', 'transcripts', ({ bytes }) =>
    appraiseAttestation(new Uint8Array(bytes), OPTIONS),
  ),
  row('appraiseAttestation, a transcript', 'transcripts', ({ s, bytes }) =>
    appraiseAttestation(s.split('\n\n').at(-3)?.slice(6) ?? '', {
      ...OPTIONS,
      expected: { transcript: new Uint8Array(bytes) },
    }),
  ),
  ...pieces('verifyingFetch, streamed', 'lines chunks transcripts', async (sent) => {
    const fetch = verifyingFetch({ ...OPTIONS, fetch: answering(sent, 'text/event-stream') });
    return (await fetch(URL, { method: 'POST', body: BODY })).arrayBuffer();
  }),
  row('verifyingFetch, whole', 'attestations', async ({ bytes }) => {
    const fetch = verifyingFetch({ ...OPTIONS, fetch: answering([bytes], 'application/json') });
    return (await fetch(URL, { method: 'POST', body: BODY.replace('"stream":true,', '') })).text();
  }),
  row('verifyingFetch, a request', 'requests', ({ s }) =>
    verifyingFetch({ ...OPTIONS, fetch: async () => new Response('{}') })(URL, { method: 'POST', body: s }),
  ),
  row('checkReports', 'tokens', ({ s }) => checkReports({ token: s, evidence: EVIDENCE }, NONCE, null)),
  row('checkReports, of an attestation', 'attestations', ({ s }) => {
    const { token = '', evidence = [], nonce = NONCE } = JSON.parse(s);
    return checkReports({ token, evidence }, nonce, OPTIONS.simulatedRoot ?? null);
  }),
  row('fetchRim', 'xml base64', ({ cut }) => fetchRim('x', quoted('{"rim":"', cut(64), '"}'), {})),
  row('fetchNrasKeys, keyOf', 'json', ({ cut }) =>
    keyOf('x', [() => fetchNrasKeys(URL, quoted('{"keys":[', cut(64), ']}'))]),
  ),
  row('createCollateral, revocation answers', 'ocsps', ({ bytes }) => {
    const ocsp: Uint8Array[] = [];
    for (let at = 0; at < bytes.length; at += ocsp.at(-1)?.length ?? 1) ocsp.push(der.readAt(bytes, at).whole);
    return createCollateral({ ocsp });
  }),
  row('createCollateral, reference values', 'xml', ({ s }) =>
    createCollateral({ rims: s.match(/.{1,200}/gs) ?? [] }).rim({ id: 'x', version: '1', chip: 'GH100' } as never),
  ),
  row('fromBase64, toBase64', 'base64', ({ s }) => text.toBase64(text.fromBase64(s))),
  row('fromBase64Url', 'base64', ({ s }) => text.fromBase64Url(s)),
  row('fromHex, toHex', 'base64', ({ s }) => text.toHex(text.fromHex(s))),
  row('fromUtf8', 'der lines', ({ bytes }) => text.fromUtf8(bytes)),
  row('readAt, children, integer, oid', 'der', ({ bytes }) => {
    const walk = (content: Uint8Array): void => {
      for (const value of der.children(content))
        if (value.tag === 0x02) der.integer(value);
        else if (value.tag === 0x06) der.oid(value);
        else if ((value.tag & 0x20) !== 0 && value.content.length < 200) walk(value.content);
    };
    walk(der.readAt(bytes, 0).content);
  }),
  row('parsePem', 'pem', ({ s }) => parsePem(s)),
  row('parseXml, canonicalDocument, readManifest, readSignature', 'xml', ({ s }) => {
    const root = parseXml(s);
    return all(
      () => canonicalDocument(root, childElements(root)[0] ?? root),
      () => readManifest(root),
      () => readSignature(root),
    );
  }),
  row('parseTokenJson', 'json tokens', ({ s }) => parseTokenJson(s)),
  row('parseJws', 'tokens', ({ s }) => parseJws(s)),
  row('nvtrustDigestText', 'json', ({ s }) => nvtrustDigestText(`{"a":${s},"nbf":1,"exp":1,"iat":1,"jti":1}`)),
];

const ofGateway: readonly Row[] = [
  row('parseGeneration', 'requests json', ({ bytes }) => jobs.parseGeneration('chat', bytes, ANYONE)),
  row('parseGeneration, of prompts', 'requests', ({ bytes }) => jobs.parseGeneration('completion', bytes, ANYONE)),
  row('parseGeneration, for some models', 'requests', ({ bytes }) => jobs.parseGeneration('chat', bytes, LIMITED)),
  ...[
    { restrictedCaller: null, mayAttest: true },
    { restrictedCaller: LIMITED, mayAttest: false },
    { restrictedCaller: null, mayAttest: false, byModel: true },
  ].map((how, i) =>
    row(`parsePassThrough ${i}`, 'requests json', ({ bytes: body }) =>
      jobs.parsePassThrough({ body, json: true, ...how }),
    ),
  ),
  row('draft', 'json', ({ bytes }) =>
    jobs.draft({ endpoint: '/v1/embeddings', request: bytes, response: { body: bytes }, timestamp: 1 }),
  ),
  row('modelInForm', 'forms requests', ({ bytes }) => jobs.modelInForm('multipart/form-data; boundary=x', bytes)),
  row('modelInForm, its type', 'heads forms', ({ s }) =>
    jobs.modelInForm(`multipart/form-data; ${s}`, Buffer.from('--x')),
  ),
  row('teeHeader', 'json lines', ({ s }) => teeHeader({ 'x-tee': s })),
  row('teeHeader, of many words', 'json', ({ s }) => teeHeader({ 'x-tee': s.replaceAll(/[^,]+/g, ' batch ') })),
  ...pieces('Recorder', 'lines chunks', (sent) => {
    const recorder = new Recorder(MAX);
    for (const payload of payloadsIn(sent)) recorder.observe(payload);
    return recorder.finish();
  }),
  ...['completion', 'response', 'message'].flatMap((form) =>
    pieces(`streamDelivery, of a ${form}`, form === 'completion' ? 'lines chunks' : 'lines events', (sent) =>
      delivered(sent, (port, exchange, attestor) => streamDelivery(EVENT_STREAM, port, exchange, attestor, MAX), form),
    ),
  ),
  row('pipeDelivery', 'lines chunks', ({ cut }) =>
    delivered(cut(7), (...to) => relay.pipeDelivery(EVENT_STREAM, to[0], to[1])),
  ),
  row('wholeDelivery', 'json attestations', ({ cut }) =>
    delivered(cut(64), (port, exchange, attestor) => wholeDelivery(JSON_BODY, port, exchange, attestor, MAX)),
  ),
  row('errorDelivery', 'json requests', ({ cut }) =>
    delivered(cut(64), (port, exchange) => relay.errorDelivery(head('application/json', 400), port, exchange)),
  ),
  row('modelsDelivery', 'json requests', ({ cut }) =>
    delivered(cut(64), (port, exchange) => modelsDelivery(JSON_BODY, port, exchange, new Set(['m']))),
  ),
  ...[true, false].flatMap((stream) =>
    pieces(`TokenReader, ${stream ? 'of a stream' : 'whole'}`, 'json lines requests', (sent) => {
      const reader = new TokenReader(stream, MAX);
      for (const piece of sent) reader.add(piece);
      return reader.tokens();
    }),
  ),
  row('modelsIn', 'json requests', ({ bytes }) => modelsIn(bytes)),
  row('rewriteError', 'json requests', ({ s }) => rewriteError(400, s)),
  ...pieces('ResponseMeter', 'lines chunks', (sent) => {
    const meter = new client.ResponseMeter({ max_stream_bytes: MAX, max_stream_events: MAX, max_answer_ms: MAX });
    meter.head(EVENT_STREAM);
    for (const piece of sent) meter.exceeds(piece);
  }),
  row('toBackend, toClient, mediaType, addressOf', 'heads', ({ s }) => {
    const lines = s.split('\r\n').map((line) => /^([^:]*):?(.*)$/s.exec(line) ?? []);
    const read = Object.fromEntries(lines.map(([, name = '', value = '']) => [name, value.trim()]));
    const address = () => addressOf(read, null, 'x-forwarded-for');
    return all(
      () => headers.toBackend(read, 'key', LIMITED),
      () => headers.toClient(read),
      () => relay.mediaType(read),
      address,
    );
  }),
  row('readBody', 'json', ({ cut }) => {
    const incoming = Object.assign(new EventEmitter(), { headers: {}, destroyed: false });
    const body = readBody(incoming as never, MAX);
    for (const piece of cut(64)) incoming.emit('data', piece);
    incoming.emit('end');
    return body;
  }),
  row('ChunkBuffer', 'json', ({ bytes, cut }) => {
    const buffer = new ChunkBuffer(bytes.length);
    for (const piece of cut(7)) buffer.add(piece);
    return buffer.whole();
  }),
  row('originForm', 'targets', ({ s }) => target.originForm('GET', s)),
  row('decodedPath, isHost, originOf', 'targets', ({ s }) =>
    all(
      () => target.decodedPath(s),
      () => target.isHost(s),
      () => target.originOf(s),
    ),
  ),
  row('checkPath', 'targets', ({ s }) => checkPath(LIMITED, 'GET', `/models${s}`, false)),
  row('checkRoute', 'targets', ({ s }) => checkRoute(LIMITED, 'DELETE', s)),
  row('readLine', 'keys', ({ s }) => readLine(s, 1)),
  row('parseKeys', 'keys', ({ s }) => parseKeys(s)),
  row('membersIn', 'attestations json frames', ({ bytes }) => link.membersIn(bytes)),
  row('createAppraise', 'tokens', ({ bytes: body }) =>
    appraise({ body, countersignKeys: undefined, simulatedRoot: null, policy: {}, endpoint: undefined, event: false }),
  ),
  ...pieces('IncomingChunks, headOf, openedRequest, checkDate', 'openedRequests', async (sent) => {
    const incoming = Readable.from(sent, { objectMode: false }) as never;
    const message = await sealed.readRequest(new opened.IncomingChunks(incoming), LIMITS);
    const read = opened.headOf(message.head);
    await drained(await opened.openedRequest(read, message));
    return opened.checkDate(read.headers, 0);
  }),
];

export const READERS: readonly Row[] = [...fuzzed, ...ofProto, ...ofVerify, ...ofGateway];
