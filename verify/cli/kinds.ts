// The kinds of files: which command takes each, and which of that command's options it can answer. The caller names the command, and never the
// file: a stranger's file of another kind is refused.
import { isObject } from '../../proto/json.ts';
import { isFinalResponse } from '../../proto/stream/events.ts';
import { parseBounded, unquoted } from '../common/bounded-json.ts';
import { CheckFailure } from '../common/checks.ts';
import { type Kind, kindOf } from '../index.ts';
import type { Arguments } from './args.ts';
import { INPUT_LIMITS, UsageError } from './input.ts';

/** `unknown`: no kind, or a text over the limits. The command's own reader reports what is wrong with it. */
export type FileKind = Exclude<Kind, 'attestation'> | keyof typeof ANSWERS | 'unknown';

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

const KINDS: Readonly<Record<Exclude<FileKind, 'unknown'>, Row>> = {
  ...ANSWERS,
  evidence: { words: 'evidence of devices', command: 'evidence', unfit: [] },
  cpu: { words: "a processor's evidence", command: 'cpu', unfit: [] },
  session: { words: 'a session', command: 'session', unfit: [] },
};

/** The options that evidence of one maker's processor cannot answer. */
const PROCESSORS = {
  amd: { words: "AMD's evidence", unfit: ['tcb'] },
  intel: { words: "Intel's evidence", unfit: ['product'] },
} as const;

/** The options that only a processor's evidence can meet: what they name must be found. */
const OF_PROCESSORS = ['session', 'challenge', 'product', 'tcb', 'chip', 'demand', 'reference'];

/** What commands take that check more than one kind, or none. */
const ALSO: Readonly<Partial<Record<Arguments['command'], readonly Arguments['command'][]>>> = {
  collateral: ['verify', 'evidence', 'session'],
  export: ['verify', 'session'],
  replay: ['verify'],
};

export const isAnswer = (kind: FileKind): kind is keyof typeof ANSWERS => kind in ANSWERS;

/** @throws {UsageError} naming the command that checks such a file, or the option that it cannot answer. */
export function refuseMisfit({ command, given }: Arguments, kind: FileKind): void {
  if (kind === 'unknown') return;
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
  const what = kind === 'unknown' ? 'a file' : KINDS[kind].words;
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
  if (isFinalResponse(value.type) && isObject(value.response)) return 'event';
  if (!('attestation' in value)) return 'raw' in value ? 'attestation' : 'unknown';
  return value.type === 'message_delta' || isChunk(value) ? 'event' : 'answer';
}

/** A text completion looks the same whole and as a chunk: the caller knows which of them it is. */
function isChunk({ object, choices }: Readonly<Record<string, unknown>>): boolean {
  if (object === 'chat.completion' || !Array.isArray(choices)) return false;
  return choices.every((choice) => !isObject(choice) || !('message' in choice));
}

export function parsed(text: string): unknown {
  try {
    return parseBounded(unquoted(text, INPUT_LIMITS), INPUT_LIMITS);
  } catch (error) {
    if (error instanceof CheckFailure) return null;
    throw error;
  }
}
