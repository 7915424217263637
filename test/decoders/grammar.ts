// A grammar of nasty streams: a stream as a server sends it, and lines, payloads, bytes and cuts that some reader takes otherwise.
import fc from 'fast-check';
import { PAYLOADS } from '../verify/maker.ts';

/** How a stream is sent, whatever it says. */
export interface Manner {
  /** Whose proof it carries: of the stream before it was changed, or, by an operator with a GPU, of what it says by the standard. */
  readonly signed: 'genuine' | 'as read';
  /** Where the bytes are cut into chunks, in thousandths of the whole. */
  readonly cuts: readonly number[];
  readonly status: number;
  readonly type: string;
  /** What the connection breaks with, by name, behind the last byte; null where it does not. */
  readonly broken: string | null;
}

/** How one nasty stream is made; {@link textOf} makes it. */
export interface Recipe extends Manner {
  readonly newline: '\n' | '\r\n' | '\r';
  /** Before all else. */
  readonly start: string;
  readonly changes: readonly Change[];
}

type Change =
  | { readonly kind: 'insert' | 'replace'; readonly at: number; readonly text: string }
  | { readonly kind: 'drop' | 'double' | 'swap'; readonly at: number }
  /** Inside an event, at thousandths of it; `split` behind the next comma from there. */
  | { readonly kind: 'poke' | 'split'; readonly at: number; readonly offset: number; readonly text: string }
  | { readonly kind: 'stop'; readonly at: number; readonly offset: number };

/** Stands for the JSON text of the attestation. */
export const PROOF = '@PROOF@';
export const BOM = '\uFEFF';
export const EVENT_STREAM = 'text/event-stream';

/** What nobody signed: in a chunk that goes on, and in one that ends the answer. */
export const EVIL = 'Send it to me.';
export const chunkOf = (choice: string, more = ''): string =>
  `{"id":"c2","object":"chat.completion.chunk","choices":[${choice}]${more}}`;
export const choiceOf = (delta: string, finish: string): string =>
  `{"index":0,"delta":${delta},"finish_reason":${finish}}`;
const evilDelta = `{"content":"${EVIL}"}`;
export const EVIL_DELTA = chunkOf(choiceOf(evilDelta, 'null'));
export const EVIL_FINISH = chunkOf(choiceOf(evilDelta, '"stop"'));

/** The stream before it is changed: an event each. */
export const GENUINE: readonly string[] = [
  ...PAYLOADS.slice(0, -1).map((payload) => `data: ${payload}`),
  ': attesting',
  `data: ${PAYLOADS.at(-1)?.replace(/\}$/, `,"attestation":${PROOF}}`)}`,
  'data: [DONE]',
];

/** One byte that is no UTF-8 by itself: written as the half of a surrogate pair, as Python's surrogateescape does. */
const byte = (value: number): string => String.fromCharCode(0xdc00 + value);
const bytes = (...values: readonly number[]): string => values.map(byte).join('');

const NOT_UTF8 = [
  byte(0xff),
  bytes(0xc0, 0x8a), // an overlong LF
  bytes(0xe0, 0x80, 0x8d), // an overlong CR
  bytes(0xed, 0xa0, 0x80), // a surrogate
  bytes(0xf4, 0x90, 0x80, 0x80), // beyond U+10FFFF
  bytes(0xef, 0xbb), // a byte order mark that is cut
  bytes(0xe2, 0x80),
];
/** Line breaks for some reader. */
export const BREAKS = ['\u2028', '\u2029', '\u0085', '\v', '\f', '\x1c', '\x1d', '\x1e', '\0'];
const NEWLINES = ['\n', '\r\n', '\r', '\n\n', '\r\r', '\r\n\r\n', '\n\r', '\r\n\n', '\n\r\n', '\r\r\n', ''];
/** Before a field's name. `\u00ef\u00bb\u00bf` is what a byte order mark is called when its bytes are read as Latin-1. */
const BEFORE = [
  BOM,
  BOM,
  BOM,
  BOM + BOM,
  '\u00ef\u00bb\u00bf',
  '\u200b',
  '\u2060',
  '\u00a0',
  '\0',
  ' ',
  '\t',
  ...NOT_UTF8,
];
const NAMES = [
  ...['Data', 'DATA', 'data ', 'data\t', 'da\0ta', 'data\0', 'dat', 'datas', '\uff44ata', `data${BOM}`],
  ...['event', 'id', 'retry', '', 'Event', 'error', 'comment'],
];
const COLONS = ['', '\uff1a', ' :', '::', ':\0', `${BOM}:`, `:${BOM}`];
const SPACES = ['', '  ', '\t', ' \t', '\u00a0', '\u3000', BOM, '\0', '\v'];
const DONES = ['[DONE]', ' [DONE]', '[DONE] ', '[DONE]\t', '[DONE]x', '[done]', '"[DONE]"', '[ DONE ]', `${BOM}[DONE]`];
const VALUES = ['message', 'error', 'thread.x', 'ping', 'done', 'close', '0', '1', 'x\0y', '', ' '];
export const ABORTS = ['FetchRequestCanceledException', 'AbortError'];
const ERRORS = [
  ...['0.0', '-0', '0e0', '0', '1', '""', '"x"', 'false', 'true', 'null', '[]', '{}', '[0]'],
  ...['{"message":"no","type":"x","param":null,"code":null}', '{"message":null}'],
  ...ABORTS.flatMap((name) => [`"${name}"`, `{"message":"${name}","name":"${name}"}`]),
];
const FINISHES = ['"stop"', '"length"', '""', '0', '0.0', '-0', '1', 'false', 'true', '[]', '{}', '"\\u0000"', '" "'];
const DELTAS = [
  evilDelta,
  '{}',
  'null',
  '[]',
  `{"content":[{"type":"text","text":"${EVIL}"}]}`,
  `{"content":"a","content":"${EVIL}"}`,
  `{"content":"a","c\\u006fntent":"${EVIL}"}`,
  `{"role":"tool","content":"${EVIL}"}`,
  `{"tool_calls":[{"index":0,"id":"x","type":"function","function":{"name":"evil","arguments":"{}"}}]}`,
  ...BREAKS.slice(0, 3).map(
    (mark) => `{"content":"a${mark}data: ${EVIL_FINISH.replaceAll('"', '\\"')}${mark}${mark}"}`,
  ),
  `{"content":"a\\ndata: [DONE]\\n\\n"}`,
  `{"content":"\\ud800"}`,
  `{"content":"${byte(0xff)}"}`,
  `{"content":${'['.repeat(400)}${']'.repeat(400)}}`,
];
const MORE = [
  ...ERRORS.map((error) => `,"error":${error}`),
  `,"\\u0065rror":"x"`,
  `,"error":null,"error":"x"`,
  `,"error":"x","error":null`,
  ...['attestation', '\\u0061ttestation', 'attestatio\\u006e', 'Attestation'].map((name) => `,"${name}":${PROOF}`),
  `,"attestation":${PROOF},"attestation":${PROOF}`,
  `,"attestation":null,"attestation":${PROOF}`,
  ',"attestation":null',
  ...ABORTS.map((name) => `,"attestation":{"x":{"${name}":1,"${name}":2}}`),
  `,"x":{"attestation":${PROOF}}`,
  `,"choices":[${choiceOf(evilDelta, '"stop"')}]`,
  `,"\\u0063hoices":[${choiceOf(evilDelta, '"stop"')}]`,
  ',"usage":{"total_tokens":1}',
  ',"n":12345678901234567890.0',
  `,"deep":${'['.repeat(3000)}${']'.repeat(3000)}`,
  ',"__proto__":{"a":1}',
];
const ODD_PAYLOADS = [
  ...['null', 'true', '1', '""', '[]', '{}', '', '{', 'NaN', '{"a":NaN}', '{"a":1,}', 'Infinity', "{'a':1}", '//x'],
  `{"choices":{"0":${choiceOf(evilDelta, '"stop"')}}}`,
  `{"choices":[[${choiceOf(evilDelta, '"stop"')}]]}`,
  ...['{"choices":null}', '{"choices":[null]}', '{"choices":[]}', '{"choices":"stop"}', '{"choices":1}'],
  `[${EVIL_FINISH}]`,
  `${EVIL_DELTA}${EVIL_DELTA}`,
  ...ERRORS.map((error) => `{"error":${error}}`),
  `{"attestation":${PROOF}}`,
];

/** Between two members, where JSON has room for a line break. */
const SPLITS = ['\ndata: ', '\ndata:', '\r\ndata: ', '\ndata:  ', '\ndata:\ndata:', '\n: x\ndata: ', '\rdata: ', '\n'];

const mostly = (usual: string, others: readonly string[], weight = 6): fc.Arbitrary<string> =>
  fc.oneof({ weight, arbitrary: fc.constant(usual) }, { weight: 1, arbitrary: fc.constantFrom(...others) });

const payload: fc.Arbitrary<string> = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(EVIL_DELTA, EVIL_FINISH, ...PAYLOADS) },
  { weight: 2, arbitrary: fc.constantFrom(...DONES) },
  { weight: 2, arbitrary: fc.constantFrom(...ODD_PAYLOADS) },
  {
    weight: 4,
    arbitrary: fc
      .tuple(mostly(evilDelta, DELTAS, 1), mostly('null', FINISHES, 1), mostly('', MORE, 1))
      .map(([delta, finish, more]) => chunkOf(choiceOf(delta, finish), more)),
  },
);

const line: fc.Arbitrary<string> = fc
  .tuple(
    mostly('', BEFORE, 2),
    mostly('data', NAMES, 2),
    mostly(':', COLONS),
    mostly(' ', SPACES),
    fc.oneof({ weight: 4, arbitrary: payload }, { weight: 1, arbitrary: fc.constantFrom(...VALUES) }),
    mostly('\n\n', NEWLINES, 3),
  )
  .map((parts) => parts.join(''));

/** A comment that some reader breaks into lines. */
const comment: fc.Arbitrary<string> = fc
  .tuple(fc.constantFrom(...BREAKS, ...NOT_UTF8, BOM), payload, mostly('\n\n', NEWLINES))
  .map(([mark, text, end]) => `: x${mark}data: ${text}${mark}${mark}${end}`);

/** What can be proven, written in every way that can be: of these, readers must think the same. */
const provable: fc.Arbitrary<string> = fc
  .tuple(
    fc.constantFrom(' ', '', '  ', '\t', ' \t'),
    fc
      .tuple(mostly('{"content":"a"}', DELTAS, 1), mostly('null', FINISHES, 2), mostly('', MORE, 2))
      .map(([delta, finish, more]) => chunkOf(choiceOf(delta, finish), more)),
    fc.constantFrom('', '', ' ', '\t', '\ndata:', '\ndata: ', '\r\ndata:\t', '\n: x', '\r\n:'),
    fc.constantFrom('\n\n', '\r\n\r\n', '\n\r\n', '\r\n\n', '\n\n\n', '\r\n\r\n\n'),
  )
  .map(([space, chunk, behind, end]) => `data:${space}${chunk}${behind}${end}`);

const text = fc.oneof(
  { weight: 4, arbitrary: provable },
  { weight: 5, arbitrary: line },
  { weight: 1, arbitrary: comment },
  { weight: 1, arbitrary: fc.tuple(line, line).map((two) => two.join('')) },
  { weight: 1, arbitrary: fc.constantFrom(...BEFORE, ...BREAKS, ...NEWLINES) },
);

const at = fc.nat({ max: GENUINE.length });
const offset = fc.nat({ max: 999 });
const change: fc.Arbitrary<Change> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ kind: fc.constantFrom('insert' as const, 'replace' as const), at, text }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constantFrom('drop' as const, 'double' as const, 'swap' as const), at }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant('split' as const), at, offset, text: fc.constantFrom(...SPLITS) }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('poke' as const), at, offset, text }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('stop' as const), at, offset }) },
);

export const recipe: fc.Arbitrary<Recipe> = fc.record({
  broken: fc.oneof(
    { weight: 20, arbitrary: fc.constant(null) },
    { weight: 1, arbitrary: fc.constantFrom('TypeError', ...ABORTS) },
  ),
  signed: fc.constantFrom('genuine' as const, 'as read' as const),
  newline: fc.oneof(
    { weight: 6, arbitrary: fc.constant('\n' as const) },
    { weight: 1, arbitrary: fc.constantFrom('\r\n' as const, '\r' as const) },
  ),
  start: mostly('', [BOM, BOM, ...BEFORE, ...NEWLINES], 12),
  changes: fc.array(change, { maxLength: 4 }),
  cuts: fc.array(offset, { maxLength: 6 }),
  status: fc.oneof(
    { weight: 40, arbitrary: fc.constant(200) },
    { weight: 1, arbitrary: fc.constantFrom(201, 203, 204, 205, 206, 302, 307, 400, 500) },
  ),
  type: fc.oneof(
    { weight: 20, arbitrary: fc.constant(EVENT_STREAM) },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        ...['; charset=utf-8', '; charset=utf-7', '; charset=utf-16le', '; charset=iso-8859-1', ';', 's', ' '].map(
          (rest) => `${EVENT_STREAM}${rest}`,
        ),
        ...['Text/Event-Stream', 'application/json', 'text/plain', 'application/x-ndjson', ''],
      ),
    },
  ),
});

/** The stream as text, with {@link PROOF} where the attestation goes. */
export function textOf({ newline, start, changes }: Recipe): string {
  const events = GENUINE.map((event) => `${event}${newline}${newline}`);
  for (const one of changes) apply(one, events);
  return start + events.join('');
}

function apply(change: Change, events: string[]): void {
  const i = Math.min(change.at, events.length - 1);
  const event = events[i];
  if (event === undefined) return;
  const cut = 'offset' in change ? Math.floor((event.length * change.offset) / 1000) : 0;
  switch (change.kind) {
    case 'insert':
      return void events.splice(change.at, 0, change.text);
    case 'replace':
      return void events.splice(i, 1, change.text);
    case 'drop':
      return void events.splice(i, 1);
    case 'double':
      return void events.splice(i, 0, event);
    case 'swap':
      return void events.splice(i, 2, ...events.slice(i, i + 2).reverse());
    case 'split':
      return void events.splice(i, 1, event.slice(0, cut) + event.slice(cut).replace(',', () => `,${change.text}`));
    case 'poke':
      return void events.splice(i, 1, event.slice(0, cut) + change.text + event.slice(cut));
    case 'stop':
      return void events.splice(i, events.length, event.slice(0, cut));
  }
}

/** UTF-8, except for the bytes that are written as halves of surrogate pairs. */
export function encode(text: string): Uint8Array<ArrayBuffer> {
  if (!/[\udc80-\udcff]/.test(text)) return new TextEncoder().encode(text);
  const parts = text.split(/((?<![\ud800-\udbff])[\udc80-\udcff])/);
  const encoded = parts.map((part, i) => (i % 2 === 1 ? Buffer.of(part.charCodeAt(0) & 0xff) : Buffer.from(part)));
  return new Uint8Array(Buffer.concat(encoded));
}

export function cutAt(whole: Uint8Array, cuts: readonly number[]): Uint8Array[] {
  const offsets = [...new Set(cuts.map((cut) => Math.floor((whole.length * cut) / 1000)))].sort((x, y) => x - y);
  const edges = [0, ...offsets, whole.length];
  return edges.slice(1).flatMap((end, i) => (end > (edges[i] ?? 0) ? [whole.subarray(edges[i], end)] : []));
}
