// Streams of named events as they are sent: how they are read, and that what the gateway records is what the verifier accepts, and nothing else.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { NamedRecorder } from '../../gateway/exchange/named-recorder.ts';
import { buildRaw, nonceOf, type RawParts } from '../../proto/attestation/raw.ts';
import type { StreamForm } from '../../proto/stream/forms.ts';
import { NamedEventReader, readEvents, SseError, writeNamedEvent } from '../../proto/stream/sse.ts';
import { compareTranscript } from '../../verify/binding/exchange.ts';
import { CheckFailure } from '../../verify/common/checks.ts';
import { functionCallEvents, messageBody, messageEvents, named, responseEvents } from '../support/named-streams.ts';

type Form = Exclude<StreamForm, 'completion'>;
type Event = Readonly<Record<string, unknown>> & { readonly type: string };
const MAX = 1 << 20;

const bytes = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);

describe('the reader of named events', () => {
  const read = (text: string) =>
    readEvents(bytes(text), MAX).map(({ name, payload }) => [name, new TextDecoder().decode(payload)]);

  it.each([
    ['LF', 'event: a.b_c-1\ndata: {}\n\n', [['a.b_c-1', '{}']]],
    ['CR LF', 'event:a\r\ndata:{}\r\n\r\n', [['a', '{}']]],
    ['a name after its data', 'data: {}\nevent: a\n\n', [['a', '{}']]],
    [
      'several lines and a comment',
      ': x\nevent: a\n: y\ndata: {\ndata: }\n\ndata: 1\n\n',
      [
        ['a', '{\n}'],
        [null, '1'],
      ],
    ],
    ['no empty line at the end', 'event: a\ndata: {}', [['a', '{}']]],
  ])('reads %s', (_name, text, events) => {
    expect(read(text)).toEqual(events);
  });

  it.each([
    ['two names', 'event: a\nevent: a\ndata: {}\n\n'],
    ['a name without data', 'event: a\n\n'],
    ['a name at the end', 'event: a'],
    ['an empty name', 'event:\ndata: {}\n\n'],
    ['two spaces', 'event:  a\ndata: {}\n\n'],
    ['a space at the end', 'event: a \ndata: {}\n\n'],
    ['a CR in the name', 'event: a\r\r\ndata: {}\n\n'],
    ['a name that is not ASCII', 'event: ä\ndata: {}\n\n'],
    ['a line separator', 'event: a\u2028\ndata: {}\n\n'],
    ['no colon', 'event\ndata: {}\n\n'],
    ['129 characters', `event: ${'a'.repeat(129)}\ndata: {}\n\n`],
    ['another field', 'event: a\nid: 1\ndata: {}\n\n'],
  ])('refuses %s', (_name, text) => {
    expect(() => read(text)).toThrow(SseError);
  });

  it('has names of 128 characters', () => {
    expect(read(`event: ${'a'.repeat(128)}\ndata: {}\n\n`)).toEqual([['a'.repeat(128), '{}']]);
  });
});

/** What the gateway makes of a stream that comes in these pieces: raw's parts, and what it sends. */
function recorded(form: Form, pieces: readonly Uint8Array[]) {
  const recorder = new NamedRecorder(form, MAX);
  const events = pieces.flatMap((piece) => recorder.reader.push(Uint8Array.from(piece)));
  const last = recorder.reader.end();
  if (last !== null) events.push(last);
  const observed = events.map((one) => recorder.observe(one).kind);
  const { completion, stream } = recorder.finish() as { completion: string; stream: RawParts['stream'] };
  const endpoint = form === 'response' ? '/v1/responses' : '/v1/messages';
  const parts: RawParts = { endpoint, request: '{}', response: completion, stream, timestamp: 1 } as RawParts;
  return { recorder, events, parts, final: observed.indexOf('finish') };
}

const pieceTexts = fc.array(fc.string({ unit: 'binary', maxLength: 6 }), { maxLength: 5 });
const anyEvents: fc.Arbitrary<{ form: Form; events: readonly Event[] }> = fc.oneof(
  pieceTexts.map((pieces) => ({ form: 'response' as const, events: responseEvents(pieces) })),
  pieceTexts.map((pieces) => ({ form: 'response' as const, events: functionCallEvents('f', pieces) })),
  fc.tuple(pieceTexts, fc.option(fc.json({ maxDepth: 2 }), { nil: '' })).map(([pieces, json]) => ({
    form: 'message' as const,
    events: messageEvents(pieces, json === '' ? [] : [json.slice(0, 2), json.slice(2)]),
  })),
);
/** Where a text is cut, as shares of its length. */
const borders = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 8 });

function cut(stream: Uint8Array, at: readonly number[]): Uint8Array[] {
  const offsets = [0, ...at.map((share) => Math.floor(share * stream.length)).sort((a, b) => a - b), stream.length];
  return offsets.slice(1).map((to, i) => stream.subarray(offsets[i], to));
}

describe('gateway and verifier', () => {
  it('agree on any stream, wherever it is cut, and refuse any other than that', async () => {
    await fc.assert(
      fc.asyncProperty(
        anyEvents,
        borders,
        fc.boolean(),
        fc.nat(),
        fc.nat(),
        async ({ form, events }, at, crlf, which, how) => {
          const sent = `${events.map(named).join('')}${how % 2 === 0 ? 'data: [DONE]\n\n' : ''}`;
          const stream = bytes(crlf ? sent.replaceAll('\n', '\r\n') : sent);
          const done = how % 2 === 0 ? 1 : 0;
          const { recorder, events: read, parts, final } = recorded(form, cut(stream, at));
          expect(read.length - done).toBe(events.length);
          const raw = buildRaw(parts);
          const attestation = { raw, nonce: await nonceOf(raw), token: 'x' };
          const json = Buffer.from(JSON.stringify(attestation));
          const out = read
            .slice(0, events.length)
            .map((one, i) =>
              i === final ? new Uint8Array(Buffer.concat(recorder.withAttestation(one, json))) : writeNamedEvent(one),
            );
          await compareTranscript(attestation, parts, new Uint8Array(Buffer.concat(out)));
          await compareTranscript(attestation, parts, new Uint8Array(Buffer.from(events.map(named).join(''))));

          const index = which % events.length;
          const one = out[index] as Uint8Array<ArrayBuffer>;
          const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(one);
          const ways: readonly (() => Uint8Array<ArrayBuffer>[])[] = [
            () => out.toSpliced(index, 1),
            () => out.toSpliced(index, 0, one),
            () => out.with(index, bytes(text.replace(/^event: /, 'event: x'))),
            () => out.with(index, bytes(text.replace(/^event: .*\n/, ''))),
            () => out.with(index, bytes(text.replace('data: {', 'data: {"more":1,'))),
            () => out.with(index, bytes(text.replace('data: {', 'data: { '))),
            () => out.toSpliced(index, 0, bytes('event: ping\ndata: {"type":"ping"}\n\n')),
            () => [...out.slice(index), ...out.slice(0, index)],
          ];
          const changed = Buffer.concat((ways[how % ways.length] as () => Uint8Array<ArrayBuffer>[])());
          if (!changed.equals(Buffer.concat(out)))
            await expect(compareTranscript(attestation, parts, new Uint8Array(changed))).rejects.toBeInstanceOf(
              CheckFailure,
            );
        },
      ),
      { numRuns: 300 },
    );
  });

  it('agree on a message that has nothing in it, and on numbers as they are written', async () => {
    const start = { ...messageBody([], null), n: 0 };
    const text = [{ type: 'message_start', message: start }, ...messageEvents([]).slice(-2)]
      .map((one) => named(one as Event).replace('"n":0', '"n":0.0'))
      .join('');
    const { parts } = recorded('message', [bytes(text)]);
    expect(parts.response).toContain('"content":[],"stop_reason":"end_turn"');
    expect(parts.response).toContain('"n":0.0}');
    await compareTranscript({ raw: '', nonce: '', token: '' }, parts, bytes(text));
  });

  it('read a stream that comes byte by byte', () => {
    const text = `\ufeff: hello\r\n${messageEvents(['a']).map(named).join('')}`;
    const reader = new NamedEventReader(MAX);
    const events = [...bytes(text)].flatMap((byte) => reader.push(Uint8Array.of(byte)));
    expect(events.map(({ name }) => name)).toEqual(messageEvents(['a']).map(({ type }) => type));
    expect([reader.comments, reader.end()]).toEqual([1, null]);
  });
});
