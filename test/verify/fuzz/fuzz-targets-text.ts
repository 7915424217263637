// Text formats: tokens of every shape, raw, JSON objects, server-sent events and the fold of their chunks.
//
// A changed token may pass with the same claims where the change is in no JWT: white space of the JSON around them, members
// of nvattest's own that it prints beside the EAT; and in the unused last bits of a signature's base64url.
import { isDeepStrictEqual } from 'node:util';
import { newKey } from '../../../demo/twin/certificate.ts';
import { makeToken } from '../../../demo/twin/token.ts';
import { splitRaw } from '../../../proto/attestation/raw.ts';
import { JsonTextError, topLevelMembers, withoutMember } from '../../../proto/json.ts';
import { Fold, parseChunk } from '../../../proto/stream/fold.ts';
import { recordEvents } from '../../../proto/stream/record-events.ts';
import {
  type EventReader,
  type NamedEvent,
  NamedEventReader,
  PayloadReader,
  readEvents,
  SseError,
  writeEvents,
  writeNamedEvent,
} from '../../../proto/stream/sse.ts';
import { EXCHANGES, savedStream } from '../../../scripts/vectors/endpoints.ts';
import { nonceHex, PAYLOADS, rawOf, STREAMED, transcript, WHOLE } from '../../../scripts/vectors/exchange.ts';
import { jwks, nrasToken, nvattestToken } from '../../../scripts/vectors/tokens.ts';
import { AT, type World } from '../../../scripts/vectors/world.ts';
import { checkTokenDigests } from '../../../verify/token/digests.ts';
import { verifyTokenSignature } from '../../../verify/token/signature.ts';
import { parseToken } from '../../../verify/token/token.ts';
import { readPayloads } from '../../support/payloads.ts';
import { mutateBytes, mutateText } from './fuzz-bytes.ts';
import { mutateJson } from './fuzz-json.ts';
import type { Random } from './fuzz-random.ts';
import type { AnyTarget } from './fuzz-target.ts';

export const mutateJsonText = (text: string, random: Random): string =>
  random.chance(0.7) ? mutateJson(text, random) : mutateText(text, random);

/** JSON, and the JWTs inside it: a header, a payload or a signature changed and the rest kept. */
export function mutateToken(text: string, random: Random): string {
  if (random.chance(0.5)) return mutateJsonText(text, random);
  const tokens = text.match(/eyJ[\w-]*\.[\w-]*\.[\w-]*/g);
  if (tokens === null) return mutateText(text, random);
  const jwt = random.pick(tokens);
  const parts = jwt.split('.');
  const at = random.below(3);
  const decoded = Buffer.from(parts[at] ?? '', 'base64url').toString('latin1');
  const changed = at < 2 && random.chance(0.7) ? mutateJson(decoded, random) : mutateText(`${decoded}`, random);
  parts[at] = Buffer.from(changed, 'latin1').toString('base64url');
  return text.replace(jwt, random.chance(0.9) ? parts.join('.') : random.pick(tokens));
}

const NAME_LINES = [
  '',
  'event: ping\n',
  'event: message_stop\n',
  'event:\n',
  'event: a b\n',
  'event: x\nevent: x\n',
  'event: x\n\n',
];

export function mutateTranscript(bytes: Uint8Array, random: Random): Uint8Array {
  if (random.chance(0.4)) return mutateBytes(bytes, random);
  const events = Buffer.from(bytes)
    .toString('latin1')
    .split(/(?<=\n\n)/);
  const data = /(?<=data: ).*/;
  const at = random.below(events.length);
  const ways: (() => unknown)[] = [
    () => events.splice(at, 1),
    () => events.splice(at, 0, events[at] as string),
    () =>
      events.splice(
        at,
        1,
        (events[at] as string).replace(data, (payload) => mutateJson(payload, random)),
      ),
    () => events.splice(at, 1, (events[at] as string).replace(/^event: .*\n/, random.pick(NAME_LINES))),
    () => events.splice(at, 0, events[random.below(events.length)] as string),
    () =>
      events.splice(at, 0, random.pick([': x\n\n', 'data\n\n', 'data:\r\ndata: x\r\n\r\n', 'id: 1\n\n', '\n', '\r\r'])),
  ];
  random.pick(ways)();
  return new Uint8Array(Buffer.from(events.join(''), 'latin1'));
}

/** What a reader makes of a stream that comes in pieces of `step` bytes. `refused`: it ended with an error, after these events. */
function readCut<E>(reader: EventReader<E>, input: Uint8Array, step: number): { events: E[]; refused: boolean } {
  const events: E[] = [];
  try {
    for (let at = 0; at < input.length; at += step) events.push(...reader.push(input.slice(at, at + step)));
    const last = reader.end();
    if (last !== null) events.push(last);
  } catch (error) {
    if (!(error instanceof SseError)) throw error;
    return { events, refused: true };
  }
  return { events, refused: false };
}

/** How a stream is cut decides nothing, and what is written of its payloads is read as them again. */
function readStream(input: Uint8Array): void {
  const { events: pieces, refused } = readCut(new PayloadReader(1 << 20), input, 1 + (input.length % 97));
  // The whole is refused where its pieces are.
  const whole = readPayloads(input, 1 << 20);
  if (refused || !Buffer.from(writeEvents(whole)).equals(Buffer.from(writeEvents(pieces))))
    throw new TypeError('how a stream is cut decides what its payloads are');
  const again = readPayloads(writeEvents(whole), 1 << 21);
  if (again.length !== whole.length || again.some((one, i) => !Buffer.from(one).equals(whole[i] as Uint8Array)))
    throw new TypeError('what was written is read as something else');
}

/** As above, of events that may have names: how the stream is cut decides nothing either. */
function readNamedStream(input: Uint8Array): NamedEvent[] {
  const { events: pieces, refused } = readCut(new NamedEventReader(1 << 20), input, 1 + (input.length % 89));
  const whole = readEvents(input, 1 << 20);
  const written = Buffer.concat(whole.map(writeNamedEvent));
  if (refused || !written.equals(Buffer.concat(pieces.map(writeNamedEvent))))
    throw new TypeError('how a stream is cut decides what its events are');
  const again = readEvents(written, 1 << 21);
  if (!written.equals(Buffer.concat(again.map(writeNamedEvent))))
    throw new TypeError('what was written is read as something else');
  return whole;
}

/** What events fold into is a JSON object, and the same however the stream is framed. */
const recordStream = (form: 'response' | 'message') => (input: Uint8Array) => {
  const record = recordEvents(form);
  for (const { name, payload } of readNamedStream(input)) record.add(name, Buffer.from(payload).toString('utf8'));
  const answer: unknown = JSON.parse(record.text());
  if (typeof answer !== 'object' || answer === null || Array.isArray(answer)) throw new TypeError('not an object');
};

function foldChunks(input: string): void {
  const fold = new Fold();
  for (const chunk of [...PAYLOADS.slice(0, 2), input, PAYLOADS[3] as string]) fold.add(parseChunk(chunk));
  JSON.parse(fold.text());
}

/** What splitRaw lets through is JSON of the members it names, cut at their borders. */
function readRaw(input: string): void {
  const { endpoint, request, response, timestamp } = splitRaw(input);
  const value = JSON.parse(input) as Record<string, unknown>;
  const same = (text: string, member: unknown) => isDeepStrictEqual(JSON.parse(text), member);
  if (endpoint !== value.endpoint) throw new TypeError('raw has another endpoint than it parses to');
  if (!same(request, value.request) || !same(response, value.response) || timestamp !== value.timestamp)
    throw new TypeError('raw is read otherwise than it parses');
}

/** A member is cut out of a JSON object, which names each once, and out of nothing else. */
function readObject(input: string): void {
  try {
    JSON.parse(input);
  } catch {
    throw new JsonTextError('not JSON');
  }
  const members = topLevelMembers(input);
  if (new Set(members.map(({ key }) => key)).size < members.length) throw new JsonTextError('a member stands twice');
  for (const [i] of members.entries()) {
    const rest = withoutMember(input, members, i);
    if (Object.keys(JSON.parse(rest) as object).length !== members.length - 1) throw new TypeError('cut elsewhere');
  }
}

export function textTargets(world: World): AnyTarget[] {
  const nonce = nonceHex(rawOf(WHOLE));
  const service = newKey();
  const keys = jwks(service.publicKey);
  const appraise = async (input: string) => {
    const parsed = parseToken(input);
    await checkTokenDigests(parsed);
    const { signature } = await verifyTokenSignature(parsed, { keys, at: AT });
    return { parsed, signature };
  };
  /** Anyone can make another that is self-asserted, so of those only errors are looked at. */
  const selfAsserted = async (input: string): Promise<void> => {
    const { signature } = await appraise(input);
    if (signature !== 'self-asserted') throw new TypeError(`called ${signature}`);
  };
  const signed = async (input: string) => {
    const { parsed, signature } = await appraise(input);
    if (signature === 'self-asserted') return null;
    const { bundles } = parsed;
    return bundles.map(({ overall, submodules }) => [
      overall.claims,
      [...submodules].sort().map(([name, jws]) => [name, jws.claims]),
    ]);
  };
  const text = (name: string, weight: number, good: string, run: (input: string) => unknown, refusal: string) => ({
    name,
    weight,
    good,
    mutate: name.startsWith('token') ? mutateToken : mutateJsonText,
    run,
    refusals: [refusal],
  });
  const nras = nrasToken({ key: service.key, nonce, devices: [world.a, world.b] });
  return [
    text('token of nvtrust', 4, makeToken(nonce, [world.a], AT), selfAsserted, 'CheckFailure'),
    text('token of nvattest', 4, nvattestToken(nonce, [world.a]), selfAsserted, 'CheckFailure'),
    text('token of NRAS', 3, nras, signed, 'CheckFailure'),
    text('token, bare', 3, (JSON.parse(nras) as [[string, string]])[0][1], signed, 'CheckFailure'),
    text('raw', 6, rawOf(STREAMED), readRaw, 'JsonTextError'),
    text('raw of an endpoint', 4, rawOf(EXCHANGES.responses.stream.parts), readRaw, 'JsonTextError'),
    text('JSON object', 6, WHOLE.response, readObject, 'JsonTextError'),
    text('chunk', 4, PAYLOADS[1] as string, foldChunks, 'FoldError'),
    {
      name: 'server-sent events',
      weight: 4,
      good: new Uint8Array(Buffer.from(transcript(PAYLOADS, { raw: 'x' }))),
      mutate: mutateTranscript,
      run: readStream,
      refusals: ['SseError'],
    },
    ...(['responses', 'messages'] as const).map((name) => ({
      name: `events of ${name}`,
      weight: 4,
      good: new Uint8Array(Buffer.from(savedStream(EXCHANGES[name].stream.events))),
      mutate: mutateTranscript,
      run: recordStream(name === 'responses' ? 'response' : 'message'),
      refusals: ['SseError', 'FoldError'],
    })),
  ];
}
