// What readers are given, by kind: texts that grow, in each of which a careless step would read the same again and again.
import { pem } from '../../demo/twin/authority.ts';
import * as der from '../../demo/twin/certificate.ts';
import { makeReport } from '../../demo/twin/report.ts';
import { amdCrl, makeAmd, makeLeaf, makeSnpReport, snpMember } from '../../demo/twin/snp.ts';
import { makeCollateral, makeIntel, makePck, makeQuote } from '../../demo/twin/tdx.ts';
import { encryptWith } from '../../gateway/sealing/sealed-response.ts';
import { foldPayloads } from '../../proto/stream/fold.ts';
import { nonceHex, STREAMED, transcript, WHOLE } from '../../scripts/vectors/exchange.ts';
import { forge } from '../../scripts/vectors/forge.ts';
import { makeWorld } from '../../scripts/vectors/world.ts';
import { varint } from '../../sealed/byte-source.ts';
import * as sealed from '../../sealed/index.ts';
import type { ResponseSecret } from '../../sealed/response.ts';
import { these } from '../sealed/chunks.ts';
import { makeRim } from '../twin/rim.ts';

/** Writes about `n` characters. */
type Make = (n: number) => string | Promise<string>;
export interface Kind {
  /** Most characters: small enough that no limit of a reader ends its work early. */
  readonly most: number;
  /** `latin1`: each character is a byte. */
  readonly encoding: 'utf8' | 'latin1';
  /** By what grows in them. */
  readonly makes: Readonly<Record<string, Make>>;
}
export const world = makeWorld();

/**
 * Texts in lines, or with ¦ between them. What stands in « » is written again and again; in it # counts from 0 and % down to 1.
 * ␊ ␍ ␀ ␠ are those bytes.
 */
function growing(
  patterns: string,
  put: (text: string) => string | Promise<string> = (text) => text,
): Record<string, Make> {
  const all = patterns.trim().split(/\n|¦/).map((one) => one.trim()); // biome-ignore format: one step
  return Object.fromEntries(all.map((pattern) => [pattern, (n) => put(grown(pattern, n))]));
}
function grown(pattern: string, n: number): string {
  const parts = pattern.replace(/[␊␍␀␠]/g, (sign) => '\n\r\0 '['␊␍␀␠'.indexOf(sign)] ?? '').split(/[«»]/);
  const count = Math.ceil(n / parts.reduce((sum, part, i) => sum + (i % 2) * part.length, 0));
  const part = (text: string, i: number) => text.replaceAll('#', `${i}`).replaceAll('%', `${count - i}`);
  return parts
    .map((text, k) =>
      k % 2 === 0
        ? text
        : /[#%]/.test(text)
          ? Array.from({ length: count }, (_, i) => part(text, i)).join('')
          : text.repeat(count),
    )
    .join('');
}
const kind = (most: number, patterns: string, more: Readonly<Record<string, Make>> = {}): Kind => ({
  most,
  encoding: 'utf8',
  makes: { ...growing(patterns), ...more },
});
const bytes = (most: number, patterns: string, more: Readonly<Record<string, Make>> = {}): Kind => ({
  ...kind(most, patterns, more),
  encoding: 'latin1',
});
const latin1 = (made: Uint8Array): string => Buffer.from(made).toString('latin1');
const long = (n: number): string => latin1(varint(n)) + 'A'.repeat(n);
const MOST = 16_384;

/** JSON values that are large. */
const VALUES = String.raw`"«x»" ¦ "«\\»" ¦ "«\u0061»" ¦ "«é😀»" ¦ "«}»" ¦ 1«0» ¦ [«1.0,»1] ¦ [«{},»1] ¦ [«{"index":0,"a":"b"},»1]
  {«"m#":1,»"z":1} ¦ {«"\u006d#":1,»"z":1} ¦ {«"%":1,»"z":1} ¦ {«"a":1,»"a":1} ¦ {"«x»":1} ¦ [1«␠␊»,1]`;
const BROKEN = String.raw`«[» ¦ «{"a":» ¦ «"» ¦ «\» ¦ «\"» ¦ «}» ¦ «␠» ¦ «"":» ¦ {"a":«"» ¦ {"a":«[»} ¦ {}«␠» ¦ «␊»{} ¦ {"a":1}«}»`;

const CHUNK = '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[';
const FIRST = `${CHUNK}{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}`;
const LAST = `${CHUNK}{"index":0,"delta":{},"finish_reason":"stop"}]}`;
const DELTAS = `"content":"x" ¦ "content":"\\n" ¦ "content":"attestation" ¦ "m#":"x" ¦ "content":"x","m":1.0
  "tool_calls":[{"index":#,"id":"c#","function":{"name":"f","arguments":"{}"}}] ¦ "tool_calls":[{"index":%,"id":"c%","function":{"name":"f","arguments":"{}"}}]`;
const chunksOf = (deltas: string) =>
  deltas.split(/\n|¦/).map((one) => `${CHUNK}{"index":0,"delta":{${one.trim()}},"finish_reason":null}]}`);
const CHUNKS = [
  ...chunksOf(DELTAS),
  ...['#', '%', '#.0'].map((index) => `${CHUNK}{"index":${index},"delta":{"content":"x"},"finish_reason":null}]}`),
  ...['"m#":1', '"usage":{"a":1.0}', '"attestation":{"raw":"x"}'].map((member) => `${CHUNK}],${member}}`),
  `${CHUNK}{"index":0,"delta":{},"logprobs":{"content":[{"token":"x"}]},"finish_reason":null}]}`,
];
const FOLDED = chunksOf(DELTAS).filter((one) => !one.includes('%'));
const streamOf = (payload: string) => `data: ${FIRST}␊␊«data: ${payload}␊␊»data: ${LAST}␊␊data: [DONE]␊␊`;
/** A stream that was attested, as a client saved it. */
async function saved(text: string): Promise<string> {
  const payloads = text.split('\n\n').slice(0, -2).map((one) => one.slice(6)); // biome-ignore format: one step
  const sha256 = nonceHex(payloads.map((one) => `${one}\n`).join(''));
  const stream = { events: payloads.length, sha256 };
  const parts = { ...STREAMED, response: foldPayloads(payloads, null), stream };
  return transcript(payloads, await forge(world, { parts }));
}

const named = (type: string, more = '') => `event: ${type}␊data: {"type":"${type}"${more}}␊␊`;
const block = (i: string) => named('content_block_start', `,"index":${i},"content_block":{"type":"text","text":""}`);
const message = (grows: string) =>
  `${named('message_start', ',"message":{"usage":{"a":1}}')}${block('0')}«${grows}»${named('message_delta', ',"delta":{"stop_reason":"x"}')}${named('message_stop')}`;
const inBlock = (delta: string) => message(named('content_block_delta', `,"index":0,"delta":${delta}`));
/** What was streamed, and a final response whose output has as many items. */
const response = (item: string, id: string) =>
  `${named('response.created', ',"response":{"id":"r"}')}«${named('response.output_text.delta', `,"item_id":"${item}","output_index":#,"content_index":0,"delta":"x"`)}»event: response.completed␊data: {"type":"response.completed","response":{"id":"r","output":[«{"id":"${id}","content":[{"text":"x"}]},»{}]}}␊␊`;
const EVENTS = [
  ...['{"text":"x"}', '{"m#":"x"}', '{"type":"citations_delta","citation":{}}'].map(inBlock),
  inBlock('{"type":"input_json_delta","partial_json":"1"}'),
  ...[block('#'), named('message_delta', ',"usage":{"u#":1}'), named('message_delta', ',"m#":1'), named('ping')].map(
    message,
  ),
  ...[response('i#', 'i#'), response('no#', 'i#'), response('i', 'i')],
  '«event: x␊» ¦ «data: {}␊event: x␊␊» ¦ event: «x»␊data: {}␊␊',
].join('¦');

const HASH = '0'.repeat(64);
const jwt = (text: string) =>
  ['{"alg":"none"}', `{"eat_nonce":"${HASH}","x":${text}}`]
    .map((one) => `${Buffer.from(one).toString('base64url')}.`)
    .join('');
const attested = async (request: string) => JSON.stringify(await forge(world, { parts: { ...WHOLE, request } }));
const carried = async (response: string) =>
  `${response.slice(0, -1)},"attestation":${JSON.stringify(await forge(world, { parts: { ...WHOLE, response } }))}}`;
const DEVICE = `{"arch":"HOPPER","report":"${'A'.repeat(52)}","certificate_chain":"${'A'.repeat(52)}"}`;

const repeated = (one: Buffer, n: number): Buffer => Buffer.concat(Array(Math.ceil(n / one.length)).fill(one));
const DATE = der.generalizedTime(new Date(0));
const PART = der.set(der.sequence(der.oid('2.5.4.3'), der.utf8String('x')));
const SPKI = der.spki(world.a.brom.certificate.publicKey);
const certificate = (name: Buffer, extensions: Buffer) => {
  const inner = [der.context(0, der.integer(2)), der.integer(1), der.ECDSA_WITH_SHA384, name, der.sequence(DATE, DATE)];
  const rest = [name, SPKI, der.context(3, der.sequence(extensions))];
  return latin1(der.sequence(der.sequence(...inner, ...rest), der.ECDSA_WITH_SHA384, der.bitString(SPKI)));
};
const ID = der.octetString(Buffer.alloc(20));
const CERTIFICATE_ID = der.sequence(der.sequence(der.oid('1.3.14.3.2.26')), ID, ID, der.integer(1));
const ABOUT = der.sequence(CERTIFICATE_ID, der.contextPrimitive(0, Buffer.alloc(0)), DATE);
const ocsp = (list: Buffer) => {
  const data = der.sequence(der.context(2, ID), DATE, der.sequence(list));
  const basic = der.sequence(data, der.ECDSA_WITH_SHA384, der.bitString(SPKI));
  const bytes = der.sequence(der.oid('1.3.6.1.5.5.7.48.1.1'), der.octetString(basic));
  return latin1(der.sequence(der.enumerated(0), der.context(0, bytes)));
};

const [intel, amd] = [makeIntel(), makeAmd('Genoa')];
const [pck, leaf] = [makePck(intel), makeLeaf(amd)];
const [quote, report] = [makeQuote(intel, pck), makeSnpReport('Genoa', leaf)];
export const CPU_OPTIONS = {
  at: new Date('2026-06-01T00:00:00Z'),
  roots: { amd: pem(amd.ark), intel: pem(intel.root) },
};
const base64 = (made: Uint8Array | string) => Buffer.from(made).toString('base64');
const tdx = (more: object) =>
  JSON.stringify({ type: 'TDX', report: base64(quote), collateral: makeCollateral(intel), ...more });
const snp = (more: object) => JSON.stringify({ ...snpMember(report, [leaf, amd.ask], amdCrl(amd)), ...more });
const serials = (n: number) => Array.from({ length: n / 40 }, (_, i) => 4 + (i % 9));
const gpuReport = async (measurements: Buffer[], opaque: string) =>
  latin1(await makeReport(Buffer.alloc(32), world.a.key, { measurements, opaque: Buffer.from(opaque, 'latin1') }));
const OPAQUE =
  '«\xe8\x03\x02␀xx» ¦ «\xe8\x03␀␀» ¦ \x03␀\x10\x27«x» ¦ \x0c␀\x10\x27«␀» ¦ NVDAOD␀␀\x01␀␀␀«\xe8\x03\x87␀\x02␀xx» ¦ «␀»';
const rim = makeRim('driver', world.rimSigner);
const inRim =
  (end: string, part: string): Make =>
  (n) =>
    rim.replace(new RegExp(`</(\\w+:)?${end}>`), (found) => part.repeat(n / part.length) + found);

const OPENED = '«\x01x\x01y»␀␀ ¦ «\x03x-a\x01y» ¦ ␀␀«\x01x\x01y»␀ ¦ ␀«\x01x»␀ ¦ ␀«\xc0␀␀␀␀␀␀\x01x» ¦ ␀␀«␀»';
const opened = (start: string) =>
  bytes(
    8_192,
    OPENED.split('¦')
      .map((one) => start + one.trim())
      .join('¦'),
    {
      name: (n) => `${start}${long(n)}\x01x\0\0`,
      value: (n) => `${start}\x01a${long(n)}\0\0`,
      content: (n) => `${start}\0${long(n)}\0`,
    },
  );
const POST = '\x04POST\x05https\x01a\x14/v1/chat/completions';
const secrets = Array.from({ length: sealed.KEYS_OF_A_SESSION }, () => new Uint8Array(sealed.SECRET_BYTES));
const { document, keys } = await sealed.makeKeys(0, secrets);
const sealing = await sealed.chooseKey(document);
export const OPENING_KEY = keys.find(({ key_id }) => key_id === sealing.key_id) as sealed.OpeningKey;
const [SECRET, ENC] = [new Uint8Array(16), new Uint8Array(32)];
export const RESPONSE_SECRET: ResponseSecret = { secret: SECRET, enc: ENC, key_bytes: 16, nonce_bytes: 12 };
/** A chunk of one byte takes 18 bytes when it is sealed. */
const single = (n: number): Uint8Array[] => Array.from({ length: Math.ceil(n / 18) }, () => new Uint8Array(1));
async function sealedRequest(...parts: readonly Uint8Array[]): Promise<string> {
  const all: Uint8Array[] = [];
  for await (const one of (await sealed.sealRequest(sealing, these(...parts))).chunks) all.push(one);
  return latin1(Buffer.concat(all));
}
async function sealedResponse(...parts: readonly Uint8Array[]): Promise<string> {
  const made = await sealed.responseKeys(RESPONSE_SECRET, new Uint8Array(16));
  const sealer = new sealed.ResponseSealer(made, encryptWith(made.key));
  return latin1(Buffer.concat(parts.flatMap((part, i) => sealer.seal(part, i === parts.length - 1))));
}

export const KINDS = {
  json: kind(MOST, `${VALUES}¦${BROKEN}`, { deep: (n) => grown('«[»1«]»', Math.min(n, 2_000)) }),
  requests: kind(
    MOST,
    '{"messages":[«{"role":"user","content":"x"},»{}],"tee":true} ¦ {"prompt":[«[1,2],»[1]],"tee":true} ¦ {"messages":[{"role":"u"}],«"tee":true,»"tee":true} ¦ {"data":[«{"id":"m#"},»{}]} ¦ {"detail":[«{"loc":["body","x"],"msg":"x"},»{}]}',
    growing(VALUES, (text) => `{"model":"m","messages":[{"role":"user","content":"x"}],"x":${text},"tee":true}`),
  ),
  responses: kind(
    MOST,
    '«{"type":"response.completed","response":»{}«}» ¦ {«"response":{},»"type":"response.completed"} ¦ {«"r#":{"attestation":{}},»"attestation":{}}',
    growing(VALUES, (text) => `{"x":${text},"attestation":{}}`),
  ),
  lines: kind(
    MOST,
    '«data: x␊» ¦ «data: x␊␊» ¦ «data: x␍␊␍␊» ¦ «data:» ¦ «a␍» ¦ «␊» ¦ «␍␊» ¦ «: c␊␊» ¦ «event: x␊» ¦ «event: x␊␊» ¦ «x» ¦ «\uFEFF» ¦ data: "«}»" ¦ data: {"a":"«\\"»"}␊␊ ¦ «data: "\\u0061"␊␊»',
  ),
  chunks: kind(
    MOST,
    `${CHUNKS.map(streamOf).join('¦')}¦data: ${CHUNK}«{"index":#,"delta":{"content":"x"}},»{}]}␊␊`,
    growing(
      VALUES,
      (text) =>
        `data: ${FIRST}\n\ndata: ${CHUNK}{"index":0,"delta":{"content":${text}}}],"x":${text}}\n\ndata: ${LAST}\n\n`,
    ),
  ),
  events: kind(MOST, EVENTS),
  tokens: kind(MOST, `[["JWT","${jwt('1')}"],{«"GPU-#":"${jwt('1')}",»"Z":"x.y.z"}] ¦ «.» ¦ «A» ¦ «e30.» ¦ «["JWT",»`, {
    ...growing(VALUES, jwt),
    ...growing(
      '"«x»" ¦ {«"m#":1,»"z":1}',
      (text) => `{"detached_eat":[["JWT","${jwt('1')}"],{"GPU-0":"${jwt(text)}"}],"claims":[{"x":${text}}]}`,
    ),
  }),
  attestations: kind(
    8_192,
    `{«"attestation":{},»"attestation":{}} ¦ {"token":"tt","evidence":[«${DEVICE},»${DEVICE}]} ¦ [{"arch":"HOPPER","report":"«A»","certificate_chain":"«A»"}]`,
    {
      ...growing(VALUES, (text) => attested(`{"request":${text}}`)),
      ...growing('{"a":"«x»"} ¦ {«"m#":1.0,»"z":1}', carried),
    },
  ),
  transcripts: kind(MOST, '', growing(FOLDED.map(streamOf).join('¦'), saved)),
  der: bytes(14_000, '«0␀» ¦ «0» ¦ «\xff» ¦ 0\x82\x32\x00«\x05␀»', {
    name: (n) => certificate(der.sequence(repeated(PART, n / 2)), der.nil()),
    extensions: (n) => certificate(der.sequence(PART), repeated(der.extension('2.5.29.37', der.nil()), n)),
    responses: (n) => ocsp(repeated(ABOUT, n)),
    oid: (n) => latin1(der.oid(`1.2${'.1'.repeat(n)}`)),
  }),
  crls: bytes(40_000, '', { revoked: (n) => latin1(amdCrl(amd, serials(n))) }),
  ocsps: bytes(MOST, '', { list: (n) => latin1(repeated(Buffer.from(ocsp(repeated(ABOUT, 900)), 'latin1'), n)) }),
  pem: kind(
    MOST,
    '«-----BEGIN CERTIFICATE-----» ¦ «-----BEGIN CERTIFICATE-----␊AAAA␊» ¦ «-» ¦ «x␊» ¦ -----BEGIN CERTIFICATE-----␊«AAAA␊»-----END CERTIFICATE-----␊ ¦ -----BEGIN CERTIFICATE-----␊«␠»-----END CERTIFICATE-----',
  ),
  base64: kind(MOST, '«A» ¦ «-» ¦ «=» ¦ «AAAA␊» ¦ «+/» ¦ «0a» ¦ A«=»'),
  xml: kind(
    MOST,
    '<r>«<a/>»</r> ¦ <r>«<a x="1" y="2"></a>»</r> ¦ <r>«<!-- x -->»</r> ¦ <r>«x<!-- -->»</r> ¦ <r>«&amp;»</r> ¦ <r>«␍␊»</r> ¦ <r«␠»/> ¦ <r x«␠»="1"/> ¦ <r></r«␠»> ¦ <r x="«&amp;»"/> ¦ <«x»/> ¦ <«x:»y/> ¦ <r>«<» ¦ <r>«]» ¦ <!--«-» ¦ <r>«<a xmlns:n#="u"/>»</r>',
    {
      digest: inRim('DigestValue', '\n '),
      signature: inRim('SignatureValue', '\n '),
      certificate: inRim('X509Certificate', '\n '),
      transforms: inRim('Transforms', '<x/>'),
      payload: inRim('Payload', '<x/>'),
    },
  ),
  opaque: bytes(MOST, OPAQUE),
  reports: bytes(MOST, '«␀»', {
    ...growing(OPAQUE, (text) => gpuReport([Buffer.alloc(48)], text)),
    blocks: (n) =>
      gpuReport(
        Array.from({ length: 250 }, () => Buffer.alloc(n / 250)),
        '',
      ),
  }),
  cpu: kind(40_000, '', {
    quote: (n) => tdx({ report: base64(Buffer.concat([quote, Buffer.alloc(n)])) }),
    tcb: (n) => tdx({ collateral: makeCollateral(intel, { tcbInfo: { x: 'x'.repeat(n) } }) }),
    revoked: (n) => tdx({ collateral: makeCollateral(intel, { pckRevoked: serials(n) }) }),
    log: (n) =>
      tdx({
        event_log: base64(grown('[«{"imr":3,"event_type":1,"digest":"","event":"a","event_payload":"ab"},»{}]', n)),
      }),
    crl: (n) => snp({ collateral: { crl: base64(amdCrl(amd, serials(n))) } }),
    certificates: (n) => snp({ certificates: base64(pem(leaf, amd.ask) + 'x\n'.repeat(n / 2)) }),
    statement: (n) => snp({ statement: 'x'.repeat(n) }),
  }),
  heads: bytes(
    MOST,
    '«x-#: y␍␊» ¦ «a: b␍␊» ¦ connection: «x-#, »close␍␊ ¦ x-forwarded-for: «1.2.3.4, »1.2.3.4␍␊ ¦ x-forwarded-for: «0:»:1␍␊ ¦ content-type: text/event-stream«; a=b»␍␊ ¦ a: b«␠»c␍␊',
  ),
  targets: bytes(MOST, '«/» ¦ «/a» ¦ /«%41» ¦ /«%» ¦ /«?» ¦ http://«a.» ¦ http://a«:» ¦ http://a/«@» ¦ [«:»]:1 ¦ «-»'),
  keys: kind(
    MOST,
    `«rps=1 » ¦ a:sha256:${HASH} «rps=1␠» ¦ a:sha256:${HASH} models=«m#,»x ¦ a:sha256:${HASH} «␠» ¦ «k#␊» ¦ «# x␊» ¦ «:»`,
  ),
  forms: bytes(
    MOST,
    '«--x» ¦ «␍␊» ¦ --x«␍␊content-disposition: form-data; name="file"␍␊␍␊a␍␊--x»--␍␊ ¦ --x␍␊content-disposition:«␠»␍␊ ¦ --x␍␊content-disposition: form-data«;␠» ¦ --x␍␊«a»␍␊␍␊m␍␊--x--␍␊ ¦ --x␍␊content-disposition: form-data; name="model"␍␊␍␊«␍␊--»',
  ),
  frames: bytes(
    MOST,
    `{"type":"attested","id":"a","nonce":"${HASH}"}␊«x» ¦ «{}␊» ¦ {"type":"hello","devices":[«{"arch":"a","model":"b"},»{}]} ¦ {"type":"attested","phases":{«"p#":1,»"a":1}}`,
  ),
  sealedRequests: bytes(MOST, '', {
    small: (n) => sealedRequest(...single(n)),
    one: (n) => sealedRequest(new Uint8Array(n)),
  }),
  sealedResponses: bytes(MOST, '', {
    small: (n) => sealedResponse(...single(n)),
    large: (n) => sealedResponse(...Array.from({ length: n / 1_000 }, () => new Uint8Array(1_000))),
  }),
  openedRequests: opened(`\x02${POST}`),
  openedResponses: opened('\x03\x40\xc8'),
  documents: bytes(2_900, `«␀\x29\x01␀\x20${'\x09'.repeat(32)}␀\x04␀\x01␀\x01» ¦ «␀\x03\x01\xff\xff»`),
} satisfies Record<string, Kind>;
export type Name = keyof typeof KINDS;
