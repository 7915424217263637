// The readers of proto, verify and page, and everything that is fuzzed.
import { type Listener, readAnswer } from '../../page/base/stream.ts';
import type { Attestation } from '../../proto/attestation/attestation.ts';
import { fromSidecarSchema, splitBinaryFrame } from '../../proto/attestation/frames.ts';
import { readLaunch } from '../../proto/attestation/launch.ts';
import { nonceOf, splitRaw } from '../../proto/attestation/raw.ts';
import { parseJson, topLevelMembers, withLastMember, withoutMember, withoutSpaceAround } from '../../proto/json.ts';
import { byText, parseKeepingNumbers, stringifyKeepingNumbers } from '../../proto/kept-numbers.ts';
import { Fold, foldPayloads, parseChunk } from '../../proto/stream/fold.ts';
import { recordEvents } from '../../proto/stream/record-events.ts';
import { NamedEventReader, PayloadReader, writeEvents, writeNamedEvent } from '../../proto/stream/sse.ts';
import type { World } from '../../scripts/vectors/world.ts';
import { checkBatch } from '../../verify/binding/batch.ts';
import { attestationOf, compareTranscript } from '../../verify/binding/exchange.ts';
import { attestationIn, noDuplicates, readDevices, readInput, withoutAttestation } from '../../verify/binding/input.ts';
import { isPartOf, sameTokens, sameValue } from '../../verify/binding/json-equality.ts';
import { verifyingFetch } from '../../verify/clients/fetch.ts';
import { exportCmw } from '../../verify/cmw.ts';
import { fromBase64, fromBase64Url, fromHex, fromUtf8, toBase64, toHex } from '../../verify/common/bytes.ts';
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
import { children, integer, oid, readAt } from '../../verify/x509/der.ts';
import { readPayloads } from '../support/payloads.ts';
import type { AnyTarget } from '../verify/fuzz/fuzz-target.ts';
import { signedTargets } from '../verify/fuzz/fuzz-targets-signed.ts';
import { textTargets } from '../verify/fuzz/fuzz-targets-text.ts';
import { fullOptions, wholeTargets } from '../verify/fuzz/fuzz-targets-whole.ts';
import { makeSession } from '../verify/session-maker.ts';
import { CPU_OPTIONS } from './formats-cpu.ts';
import { inChunks, prepared, type Reader, reader } from './reader.ts';

/** What each target of the fuzzer reads: one that is not here is an error. None, where a reader below does the same. */
const FUZZED: Readonly<Record<string, readonly string[]>> = {
  report: ['reports'],
  'opaque data': ['opaque data'],
  certificate: ['DER'],
  'PEM chain': ['PEM'],
  'OCSP response': ['DER'],
  RIM: ['XML'],
  'token of nvtrust': ['tokens'],
  'token of nvattest': [],
  'token of NRAS': [],
  'token, bare': [],
  raw: [],
  // These two cut their input at many places, which takes more than one pass.
  'JSON object': [],
  'server-sent events': [],
  'events of responses': [],
  'events of messages': [],
  'raw of an endpoint': [],
  chunk: [],
  attestation: [],
  'attestation of a batch': [],
  response: [],
  'bare evidence': ['attestations'],
  transcript: [],
};

async function fuzzed(world: World): Promise<Reader[]> {
  const targets: AnyTarget[] = [...(await signedTargets(world)), ...textTargets(world), ...(await wholeTargets(world))];
  return targets.flatMap((target) => {
    const formats = FUZZED[target.name];
    if (formats === undefined) throw new TypeError(`of the fuzzer's ${target.name} it is not said here what it reads`);
    if (formats.length === 0) return [];
    const { good, run } = target;
    return reader(`fuzzed: ${target.name}`, formats, ({ text, bytes }) =>
      typeof good === 'string' ? run(text as never) : run(new Uint8Array(bytes) as never),
    );
  });
}

const LINES = ['event lines', 'chunks'];
const MAX = 1 << 26;

const payloadsOf = (pieces: readonly Uint8Array[]) => {
  const reading = new PayloadReader(MAX);
  const payloads: Uint8Array[] = [];
  for (const piece of pieces) reading.push(piece, payloads);
  const last = reading.end();
  return last === null ? payloads : [...payloads, last];
};

/** The payloads of a text of events, however it is written. */
const payloadsIn = (text: string) => text.split('\n\n').map((event) => event.replace(/^data: /, ''));

const BY_TEXT = byText();
const SESSION = await makeSession();
const ATTESTATION = { raw: 'x', nonce: 'x', token: 'x' };
const values = (text: string): [unknown, unknown] => [parseKeepingNumbers(text), parseKeepingNumbers(text)];
const answering = (pieces: readonly Uint8Array[], type: string) => {
  const body = new ReadableStream({
    start(controller) {
      for (const piece of pieces) controller.enqueue(piece);
      controller.close();
    },
  });
  return new Response(body, { headers: { 'content-type': type } });
};
const NONCE = '0'.repeat(64);
const url = 'http://127.0.0.1/v1/chat/completions';
const body = '{"messages":[{"role":"user"}],"stream":true,"tee":true}';
const wholeBody = '{"messages":[{"role":"user"}],"tee":true}';

const ofProto: readonly Reader[] = [
  ...inChunks('proto/stream/sse: PayloadReader', LINES, payloadsOf),
  ...inChunks('proto/stream/sse: NamedEventReader', [...LINES, 'named events'], (pieces) => {
    const reading = new NamedEventReader(MAX);
    const events = pieces.flatMap((piece) => reading.push(piece));
    const last = reading.end();
    for (const event of last === null ? events : [...events, last]) writeNamedEvent(event);
  }),
  ...(['response', 'message'] as const).map((form) =>
    reader(
      `proto/stream/events: recordEvents, of a ${form}`,
      ['named events', 'long streams of named events'],
      ({ bytes }) => {
        const record = recordEvents(form);
        for (const { name, payload } of new NamedEventReader(MAX).push(bytes))
          record.add(name, Buffer.from(payload).toString('utf8'));
        return record.text();
      },
    ),
  ),
  prepared(
    'proto/stream/sse: writeEvents',
    LINES,
    ({ bytes }) => readPayloads(bytes, MAX),
    (payloads) => writeEvents(payloads),
  ),
  reader('proto/stream/sse: writeEvents, of many lines', LINES, ({ bytes }) => writeEvents([bytes])),
  reader('proto/json: topLevelMembers, withoutMember', ['JSON', 'requests'], ({ text }) => {
    const members = topLevelMembers(text);
    return withoutMember(text, members, members.length - 1);
  }),
  reader('proto/json: withLastMember', ['JSON'], ({ text }) => withLastMember(text, 'a', '1')),
  reader('proto/json: parseJson', ['JSON', 'requests'], ({ text }) => parseJson(text)),
  reader('proto/json: withoutSpaceAround', ['JSON'], ({ text }) => withoutSpaceAround(text)),
  reader('proto/kept-numbers: parseKeepingNumbers', ['JSON', 'requests'], ({ text }) =>
    stringifyKeepingNumbers(parseKeepingNumbers(text)),
  ),
  reader('proto/kept-numbers: by the text', ['JSON', 'requests'], ({ text }) => BY_TEXT.stringify(BY_TEXT.parse(text))),
  reader('proto/attestation/raw: splitRaw', ['JSON', 'attestations'], ({ text }) => splitRaw(text)),
  reader('proto/attestation/raw: splitRaw, a request', ['JSON'], ({ text }) =>
    splitRaw(`{"request":${text},"response":{"a":${text}},"timestamp":1}`),
  ),
  reader('proto/attestation/raw: nonceOf', ['JSON'], ({ text }) => nonceOf(text)),
  prepared(
    'proto/stream/fold: Fold',
    ['chunks'],
    ({ text }) => payloadsIn(text),
    (payloads) => {
      const fold = new Fold(null);
      for (const payload of payloads) if (payload.startsWith('{')) fold.add(parseChunk(payload));
      return fold.text();
    },
  ),
  reader('proto/stream/fold: a chunk of one kind', ['JSON'], ({ text }) =>
    foldPayloads(
      [text, `{"choices":[{"index":0,"delta":{"a":${text}}}]}`, `{"choices":[{"index":0,"delta":{"a":${text}}}]}`],
      null,
    ),
  ),
  reader('proto/frames: of a sidecar', ['frames', 'attestations'], ({ text, bytes }) => {
    if (bytes.includes('\n')) splitBinaryFrame(bytes);
    fromSidecarSchema.safeParse(JSON.parse(text));
  }),
];

const ofVerify = (world: World): readonly Reader[] => {
  const options = fullOptions(world);
  return [
    reader('verify/input: noDuplicates', ['JSON', 'attestations'], ({ text }) => {
      JSON.parse(text);
      noDuplicates(text);
    }),
    reader('verify/input: readInput', ['JSON', 'attestations'], ({ text }) => readInput(text)),
    reader('verify/input: readInput, of an event', ['JSON', 'attestations', 'nested responses'], ({ text }) =>
      readInput(`{"type":"response.completed","response":${text}}`),
    ),
    reader('verify/input: attestationIn, of an event', ['JSON', 'nested responses'], ({ text }) =>
      attestationIn(`{"type":"response.completed","response":${text}}`),
    ),
    reader('verify/input: readInput, of a value', ['attestations'], ({ text }) => readInput(JSON.parse(text))),
    reader('verify/batch: checkBatch', ['JSON', 'attestations'], ({ text }) =>
      checkBatch(JSON.parse(text), NONCE, NONCE),
    ),
    reader('verify/batch: checkBatch, its path', ['JSON'], ({ text }) => {
      const path = JSON.parse(text);
      return checkBatch({ salt: NONCE, leaf_index: 0, tree_size: 4096, path }, NONCE, NONCE);
    }),
    reader('verify/input: readDevices', ['JSON', 'attestations'], ({ text }) => readDevices(text)),
    reader('verify/json-equality: sameTokens', ['JSON', 'requests'], ({ text }) => {
      JSON.parse(text);
      sameTokens(` ${text}`, text);
    }),
    prepared(
      'verify/json-equality: sameValue',
      ['JSON', 'requests'],
      ({ text }) => values(text),
      ([x, y]) => sameValue(x, y),
    ),
    prepared(
      'verify/json-equality: isPartOf',
      ['JSON', 'requests'],
      ({ text }) => values(text),
      ([x, y]) => isPartOf(x, y),
    ),
    prepared(
      'verify/json-equality: isPartOf, behind others',
      ['JSON'],
      ({ text }) => values(text),
      ([x, y]) => isPartOf({ a: [x, x, 'no'] }, { a: [y, 1, y, [y], y] }),
    ),
    reader('verify/cpu: appraiseCpu', ['CPU evidence'], ({ text }) => appraiseCpu(text, CPU_OPTIONS)),
    reader('proto/attestation/launch: readLaunch', ['JSON', 'attestations'], ({ text }) => {
      JSON.parse(text);
      readLaunch(`{"images":${text},"compose_sha256":${text},"model":${text}}`);
    }),
    reader('verify/cpu/cpu-member: readCpuMember', ['JSON', 'attestations'], ({ text }) => {
      JSON.parse(text);
      readCpuMember(`{"type":"AZURE_TDX","report":"AAAA","quote":"AAAA","tpm":{},"collateral":${text}}`);
    }),
    reader('verify/session: appraiseSession', ['JSON', 'attestations'], ({ text }) => {
      JSON.parse(text);
      return appraiseSession(`{"type":"SEV_SNP","statement":"{}","report":"AAAA","launch":"x","gpu":${text}}`);
    }),
    reader('verify/session: appraiseSession, the launch file', ['CPU evidence'], ({ text }) =>
      appraiseSession({ ...SESSION.cpu, gpu: SESSION.gpu, launch: text }),
    ),
    reader('verify/cmw: exportCmw', ['attestations'], ({ text }) => exportCmw(text)),
    reader('verify/cmw: exportCmw, a session', ['CPU evidence'], ({ text }) =>
      exportCmw({ ...JSON.parse(text), statement: SESSION.statement, gpu: SESSION.gpu }),
    ),
    reader('verify/x509/crl: parseCrl', ['DER'], ({ bytes }) => parseCrl(bytes)),
    reader('verify/input: attestationIn', ['JSON', 'attestations'], ({ text }) => attestationIn(text)),
    reader('verify/input: withoutAttestation', ['JSON', 'attestations'], ({ text }) =>
      withoutAttestation(`{"attestation":${text},"a":${text}}`, ATTESTATION as never),
    ),
    reader('verify/input: compareTranscript', ['event lines', 'chunks', 'transcripts'], ({ bytes }) =>
      compareTranscript(
        ATTESTATION as never,
        {
          request: '',
          response: '',
          timestamp: 1,
          stream: { events: readPayloads(bytes, MAX).length, sha256: '' },
        },
        bytes,
      ),
    ),
    reader('verify: an attestation and all that it brings', ['attestations', 'tokens'], ({ text }) =>
      appraiseAttestation(text, options),
    ),
    reader('verify/input: attestationOf', ['chunks', 'transcripts'], ({ bytes }) => attestationOf(bytes)),
    reader('verify: a stream that was attested', ['transcripts'], ({ bytes }) =>
      appraiseAttestation(new Uint8Array(bytes), options),
    ),
    prepared(
      'verify: a transcript that was attested',
      ['transcripts'],
      ({ text, bytes }) => ({ carrier: text.split('\n\n').at(-3)?.slice(6) ?? '', bytes }),
      ({ carrier, bytes }) =>
        appraiseAttestation(carrier, { ...options, expected: { transcript: new Uint8Array(bytes) } }),
    ),
    ...inChunks(
      'verify/fetch: verifyingFetch, streamed',
      ['event lines', 'chunks', 'transcripts'],
      async (pieces) => {
        const fetch = verifyingFetch({ ...options, fetch: async () => answering(pieces, 'text/event-stream') });
        const response = await fetch(url, { method: 'POST', body });
        await response.arrayBuffer();
      },
      [64, Number.POSITIVE_INFINITY],
    ),
    reader('verify/fetch: verifyingFetch, whole', ['attestations'], async ({ bytes }) => {
      const fetch = verifyingFetch({ ...options, fetch: async () => answering([bytes], 'application/json') });
      await (await fetch(url, { method: 'POST', body: wholeBody })).text();
    }),
    reader('verify/fetch: verifyingFetch, a request', ['requests'], async ({ text }) => {
      const fetch = verifyingFetch({ ...options, fetch: async () => new Response('{}') });
      await fetch(url, { method: 'POST', body: text });
    }),
    reader('verify/gpu/report-check: checkReports', ['attestations', 'tokens'], async ({ text }) => {
      const evidence = [{ arch: 'HOPPER', report: 'AAAA', certificate_chain: 'AAAA' }];
      if (!text.startsWith('{"raw"')) return checkReports({ token: text, evidence }, NONCE, null);
      const value = JSON.parse(text) as Attestation;
      await checkReports({ ...value, evidence: value.evidence ?? [] }, value.nonce, options.simulatedRoot ?? null);
    }),
    ...inChunks(
      'verify/collateral: fetchRim',
      ['XML', 'base64 and hexadecimal'],
      async (pieces) => {
        const quoted = [Buffer.from('{"rim":"'), ...pieces, Buffer.from('"}')];
        await fetchRim('x', async () => answering(quoted, 'application/json'), {});
      },
      [64],
    ),
    ...inChunks(
      'verify/collateral: fetchNrasKeys, and token/keys: keyOf',
      ['JSON'],
      async (pieces) => {
        const fetch = async () =>
          answering([Buffer.from('{"keys":['), ...pieces, Buffer.from(']}')], 'application/json');
        await keyOf('x', [() => fetchNrasKeys(url, fetch)]);
      },
      [64],
    ),
    reader('verify/common/bytes: base64', ['base64 and hexadecimal'], ({ text }) => toBase64(fromBase64(text))),
    reader('verify/common/bytes: base64url', ['base64 and hexadecimal'], ({ text }) => fromBase64Url(text)),
    reader('verify/common/bytes: hexadecimal', ['base64 and hexadecimal'], ({ text }) => toHex(fromHex(text))),
    reader('verify/common/bytes: UTF-8', ['DER', 'event lines'], ({ bytes }) => fromUtf8(bytes)),
    reader('verify/x509/der: all values', ['DER'], ({ bytes }) => {
      const walk = (content: Uint8Array): void => {
        for (const value of children(content)) {
          if (value.tag === 0x02) integer(value);
          else if (value.tag === 0x06) oid(value);
          else if ((value.tag & 0x20) !== 0 && value.content.length < 200) walk(value.content);
        }
      };
      walk(readAt(bytes, 0).content);
    }),
    reader('verify/x509/certificate: parsePem', ['PEM'], ({ text }) => parsePem(text)),
    reader('verify/rim: parseXml and canonicalDocument', ['XML'], ({ text }) => {
      const root = parseXml(text);
      canonicalDocument(root, childElements(root)[0] ?? root);
    }),
    prepared(
      'verify/rim/rim: readManifest',
      ['XML'],
      ({ text }) => parseXml(text),
      (root) => readManifest(root),
    ),
    prepared(
      'verify/rim/xml-signature: readSignature',
      ['XML'],
      ({ text }) => parseXml(text),
      (root) => readSignature(root),
    ),
    reader('verify/token/jws: parseTokenJson', ['JSON', 'tokens'], ({ text }) => parseTokenJson(text)),
    reader('verify/token/jws: parseJws', ['tokens'], ({ text }) => parseJws(text)),
    reader('verify/token/digests: nvtrustDigestText', ['JSON'], ({ text }) =>
      nvtrustDigestText(`{"a":${text},"nbf":1,"exp":1,"iat":1,"jti":1}`),
    ),
    prepared(
      'verify/collateral: revocation answers handed in',
      ['lists of revocation answers'],
      ({ bytes }) => {
        const list: Uint8Array[] = [];
        for (let at = 0; at < bytes.length; at += list.at(-1)?.length ?? 1) list.push(readAt(bytes, at).whole);
        return list;
      },
      (list) => createCollateral({ ocsp: list }),
    ),
    prepared(
      'verify/collateral: reference values handed in',
      ['XML'],
      ({ text }) => text.match(/.{1,200}/gs) ?? [],
      (rims) => createCollateral({ rims }).rim({ id: 'x', version: '1', chip: 'GH100' } as never),
    ),
  ];
};

const IGNORED: Listener = { content() {}, reasoning() {}, refusal() {}, toolCall() {}, signing() {} };

const ofPage: readonly Reader[] = inChunks(
  'page/base/stream: readAnswer',
  LINES,
  async (pieces) => {
    await readAnswer(answering(pieces, 'text/event-stream'), IGNORED);
  },
  [64, Number.POSITIVE_INFINITY],
);

export const readers = async (world: World): Promise<Reader[]> => [
  ...ofProto,
  ...ofVerify(world),
  ...ofPage,
  ...(await fuzzed(world)),
];
