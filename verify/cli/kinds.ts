// The kinds of files: which command takes each, and which of that command's options it can answer. The caller names the command, and never the
// file: a stranger's file of another kind is refused.
import { isObject } from '../../proto/json.ts';
import { isFinalResponse } from '../../proto/stream/events.ts';
import { BUNDLE_MEMBERS } from '../binding/bundle.ts';
import type { FailureCode } from '../common/checks.ts';
import { CheckFailure } from '../common/checks.ts';
import { parseBounded, unquoted } from '../common/limited.ts';
import { type Kind, kindOf } from '../index.ts';
import type { Arguments } from './args.ts';
import { INPUT_LIMITS, UsageError } from './input.ts';
import { SAVE } from './words.ts';

/** `unknown`: no kind, or a text over the limits. The command's own reader reports what is wrong with it. */
export type FileKind = Exclude<Kind, 'attestation'> | keyof typeof ANSWERS | 'bundle' | 'unknown';

interface Row {
  readonly words: string;
  /** The command that checks it. */
  readonly command: Arguments['command'];
  /** The options of that command that it cannot answer. */
  readonly unfit: readonly string[];
}

const ANSWERS = {
  attestation: { words: 'an attestation by itself', command: 'verify', unfit: ['event'] },
  answer: { words: 'a whole answer', command: 'verify', unfit: ['event'] },
  event: { words: 'an event of a stream', command: 'verify', unfit: [] },
  stream: { words: 'a stream', command: 'verify', unfit: ['event'] },
} as const satisfies Readonly<Record<string, Row>>;

const KINDS: Readonly<Record<Exclude<FileKind, 'bundle' | 'unknown'>, Row>> = {
  ...ANSWERS,
  evidence: { words: 'evidence of devices', command: 'evidence', unfit: ['release'] },
  cpu: { words: "a processor's evidence", command: 'cpu', unfit: [] },
  session: { words: 'a session', command: 'session', unfit: [] },
};

/** The options that evidence of one maker's processor cannot answer. */
const PROCESSORS = {
  amd: { words: "AMD's evidence", unfit: ['tcb'] },
  intel: { words: "Intel's evidence", unfit: ['product'] },
} as const;

/** The options that only a processor's evidence can meet: what they name must be found. */
const OF_PROCESSORS = ['session', 'challenge', 'product', 'tcb', 'chip', 'demand', 'reference', 'weights', 'release'];

/** What commands take that check more than one kind, or none. */
const ALSO: Readonly<Partial<Record<Arguments['command'], readonly Arguments['command'][]>>> = {
  collateral: ['verify', 'evidence', 'session'],
  export: ['verify', 'session'],
  expand: ['verify'],
  replay: ['verify'],
  audit: ['verify'],
};

export const isAnswer = (kind: FileKind): kind is keyof typeof ANSWERS => kind in ANSWERS;

/** @throws {UsageError} naming the command that checks such a file, or the option that it cannot answer. */
export function refuseMisfit({ command, given }: Arguments, kind: FileKind): void {
  if (kind === 'unknown') return;
  if (kind === 'bundle')
    throw new UsageError(`${command} does not take a bundle: name it beside its attestation, with --bundle FILE`);
  const row = KINDS[kind];
  if (!(ALSO[command] ?? [command]).includes(row.command))
    throw new UsageError(`${command} does not take ${row.words}: countersign ${row.command} FILE checks it`);
  refuseOptions(given, row);
}

/** @param type of the processor; null: none was read. @throws {UsageError} */
export function refuseOtherProcessor({ given }: Arguments, type: string | null): void {
  if (type !== null) refuseOptions(given, PROCESSORS[type.endsWith('TDX') ? 'intel' : 'amd']);
}

export const demandsProcessor = ({ given }: Arguments): boolean => OF_PROCESSORS.some((name) => given.includes(name));

function refuseOptions(given: readonly string[], { words, unfit }: Pick<Row, 'words' | 'unfit'>): void {
  const name = given.find((one) => unfit.includes(one));
  if (name !== undefined) throw new UsageError(`--${name} has no use for ${words}`);
}

/** The last line for what passes: only an answer is valid. @param level null: of a processor's evidence, which has none. */
export function passedWords(kind: FileKind, level: string | null, simulated = false): string {
  if (isAnswer(kind)) return `VALID (level: ${level})`;
  const what = kind === 'unknown' || kind === 'bundle' ? 'a file' : KINDS[kind].words;
  const how = level === null ? (simulated ? ' (simulated)' : '') : ` (level: ${level})`;
  return `PASSED: ${what}, about no answer${how}`;
}

/** By its shape alone. @param input a text, or the bytes of a stream. */
export function fileKindOf(input: string | Uint8Array): FileKind {
  if (typeof input !== 'string') return 'stream';
  const kind = kindOf(input, INPUT_LIMITS);
  return kind === 'attestation' ? answerKindOf(parsed(input)) : kind;
}

function answerKindOf(value: unknown): FileKind {
  if (!isObject(value)) return 'unknown';
  if (isBundle(value)) return 'bundle';
  if (isFinalResponse(value.type) && isObject(value.response)) return 'event';
  if (!('attestation' in value)) return 'raw' in value ? 'attestation' : 'unknown';
  return value.type === 'message_delta' || isChunk(value) ? 'event' : 'answer';
}

const isBundle = (value: object): boolean =>
  ('token' in value || 'cpu' in value) && Object.keys(value).every((name) => BUNDLE_MEMBERS.includes(name));

/** A text completion looks the same whole and as a chunk: the caller knows which of them it is. */
function isChunk({ object, choices }: Readonly<Record<string, unknown>>): boolean {
  if (object === 'chat.completion' || !Array.isArray(choices)) return false;
  return choices.every((choice) => !isObject(choice) || !('message' in choice));
}

function parsed(text: string): unknown {
  try {
    return parseBounded(unquoted(text, INPUT_LIMITS), INPUT_LIMITS);
  } catch (error) {
    if (error instanceof CheckFailure) return null;
    throw error;
  }
}

// A file that is no proof: what it seems to be instead, and what to do.

export interface Stranger {
  readonly sentence: string;
  /** null: the sentence says it. */
  readonly next: string | null;
}

/** Only a text up to this size is looked at closely. */
const MAX_SCANNED = 4 * 1024 * 1024;
const WEB_PAGE = /^\s*<(!doctype|html|head|body|\?xml)\b/i;
/** A code of the service may be printed; other words of its could be anything. */
const CODE = /^[\w.-]{1,64}$/;
/** What a reader says of a text that is not JSON. */
const UNREADABLE: readonly FailureCode[] = ['not_json', 'cpu_malformed', 'evidence_malformed'];
/** The members of answers, by which an answer is known whose service made no proof. */
const OF_ANSWERS = ['choices', 'content', 'output', 'data'];

/** @param code of the check that failed first. @returns null for a file that is one of ours, or of no known kind */
export function strangerIn(input: string | Uint8Array, code: FailureCode | undefined): Stranger | null {
  if (code !== undefined && UNREADABLE.includes(code)) return typeof input === 'string' ? unreadable(input) : null;
  if (code !== 'not_an_attestation') return null;
  if (typeof input === 'string') return answerOf(parsed(input));
  const text = new TextDecoder().decode(input);
  if (text.includes('"attestation"')) return null;
  return { sentence: 'the stream carries no proof; ask with "tee": true, and save it to its end', next: null };
}

function unreadable(text: string): Stranger | null {
  const head = text.slice(0, 256);
  if (text.length < 256 && head.trim() === '') return { sentence: 'the file is empty', next: SAVE };
  if (WEB_PAGE.test(head))
    return {
      sentence: 'the file is a web page, not an answer',
      next: "ask the service's API, whose paths begin with /v1/",
    };
  if (isCutOff(text))
    return { sentence: 'the file breaks off before its end', next: 'ask again, and save the whole answer' };
  return null;
}

/** Whether JSON begins that does not end. */
function isCutOff(text: string): boolean {
  if (!/^\s*[[{]/.test(text.slice(0, 256)) || text.length > MAX_SCANNED) return false;
  let depth = 0;
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    const character = text[i] as string;
    if (quoted && character === '\\') i++;
    else if (character === '"') quoted = !quoted;
    else if (!quoted && '{['.includes(character)) depth++;
    else if (!quoted && '}]'.includes(character)) depth--;
  }
  return quoted || depth > 0;
}

function answerOf(value: unknown): Stranger | null {
  if (!isObject(value) || 'attestation' in value) return null;
  const error = errorIn(value);
  if (error !== null)
    return {
      sentence: `the file is an error of the service${error === '' ? '' : ` (${error})`}, not an answer`,
      next: 'do what the error says, and ask again',
    };
  if (!OF_ANSWERS.some((name) => Array.isArray(value[name]))) return null;
  return { sentence: 'the answer carries no proof; ask with "tee": true', next: null };
}

/** The code of an error of OpenAI's or Anthropic's form, or an empty text; null: it is none. */
function errorIn({ error }: Readonly<Record<string, unknown>>): string | null {
  if (typeof error === 'string') return '';
  if (!isObject(error)) return null;
  return [error.code, error.type].find((one): one is string => typeof one === 'string' && CODE.test(one)) ?? '';
}
