// A file that is no proof: what it seems to be instead, and what to do.
import { isObject } from '../../proto/json.ts';
import type { FailureCode } from '../common/checks.ts';
import { parsed } from './kinds.ts';
import { SAVE } from './words.ts';

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
