// What a file is that holds no proof: one sentence about it, and one next step.
import { readEvents, SseError } from '../../proto/stream/sse.ts';
import { isTranscript } from '../../verify/index.ts';
import { MAX_INPUT_BYTES, textOf } from '../proof/subject.ts';

type Bytes = Uint8Array<ArrayBuffer>;

/** `is` follows the name of the file. */
export interface Refusal {
  readonly is: string;
  readonly next: string;
}

const ASK = 'Ask again with "tee": true, and save that answer.';
const WHOLE = 'Save the answer again, whole and unchanged.';
const READS = 'Choose an attestation, an answer that carries one, a saved stream, or evidence of a GPU or a processor.';
const UNPACK = 'Unpack it, and choose the answer inside.';
const NOT_A_PICTURE = 'Choose the answer itself, as it was saved or downloaded.';

export const EMPTY: Refusal = { is: 'is empty', next: 'Save the answer again, then choose that file.' };
export const FOLDER: Refusal = { is: 'is a folder', next: 'Open it, and drop the file of one answer.' };
export const UNREADABLE: Refusal = {
  is: 'cannot be read: it was moved or changed, or is a folder',
  next: 'Choose it again.',
};
export const TOO_LARGE: Refusal = {
  is: `is larger than the ${MAX_INPUT_BYTES / 1024 / 1024} MiB that this page reads`,
  next: 'Choose the file of one answer.',
};

/** The first bytes of what people choose by mistake, in hex. */
const BEGINNINGS: readonly (readonly [hex: string, what: string, next: string])[] = [
  ['89504e47', 'a PNG picture', NOT_A_PICTURE],
  ['ffd8ff', 'a JPEG picture', NOT_A_PICTURE],
  ['47494638', 'a GIF picture', NOT_A_PICTURE],
  ['25504446', 'a PDF document', NOT_A_PICTURE],
  ['504b0304', 'a ZIP archive', UNPACK],
  ['1f8b', 'a gzip archive', UNPACK],
];

/** For bytes in which the verifier found no proof. */
export function foreign(bytes: Bytes): Refusal {
  const text = textOf(bytes);
  if (bytes.length > 0 && (text === '' || text.includes('\0'))) return binary(bytes);
  if (text.trim() === '') return EMPTY;
  if (/^\ufeff?\s*<(!doctype|html|head|body|!--)/i.test(text))
    return { is: 'is a web page, not an answer', next: 'Open it in a browser: it may say what went wrong.' };
  return isTranscript(text) ? stream(bytes) : json(text);
}

function binary(bytes: Bytes): Refusal {
  const hex = [...bytes.subarray(0, 4)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  const known = BEGINNINGS.find(([beginning]) => hex.startsWith(beginning));
  if (known !== undefined) return { is: `is ${known[1]}, not a proof`, next: known[2] };
  if (/^(fffe|feff|..00..00|00..00)/.test(hex))
    return {
      is: 'is text in UTF-16, and proofs are UTF-8',
      next: "Save it with curl's -o: PowerShell's > makes UTF-16.",
    };
  return { is: 'is not text in UTF-8', next: READS };
}

function stream(bytes: Bytes): Refusal {
  try {
    const payloads = [...readEvents(bytes, MAX_INPUT_BYTES)].map(({ payload }) => new TextDecoder().decode(payload));
    const failed = payloads.map(parsed).map(errorIn);
    const said = failed.find((one) => one !== null);
    if (said !== undefined && said !== null) return said;
    if (payloads.at(-1) === '[DONE]') return { is: 'is a stream without a proof', next: ASK };
  } catch (error) {
    if (!(error instanceof SseError)) throw error;
  }
  return { is: 'is a stream that is cut off before its proof', next: WHOLE };
}

function json(text: string): Refusal {
  const value = parsed(text.replace(/^\ufeff/, ''));
  if (value === undefined && /^\s*[[{]/.test(text))
    return isCutOff(text)
      ? { is: 'is cut off: its JSON has no end', next: WHOLE }
      : { is: 'is not quite JSON: it was changed', next: WHOLE };
  if (value === undefined) return { is: 'is text, and no proof', next: READS };
  return errorIn(value) ?? ofMembers(value);
}

function ofMembers(value: unknown): Refusal {
  const has = (...names: readonly string[]) => isObject(value) && names.some((name) => value[name] != null);
  if (has('attestation', 'raw', 'nonce', 'token'))
    return { is: 'holds an attestation with members that are missing or wrong', next: WHOLE };
  if (has('choices', 'output', 'content', 'data')) return { is: 'is an answer without a proof', next: ASK };
  if (has('messages', 'input', 'prompt'))
    return { is: 'is a request, not an answer', next: 'Choose its answer, and add this file as the request.' };
  return { is: 'is JSON, and no proof', next: READS };
}

function errorIn(value: unknown): Refusal | null {
  if (!isObject(value) || value.error == null) return null;
  const said = isObject(value.error) ? value.error.message : value.error;
  const quoted = typeof said === 'string' ? `: “${said.slice(0, 200)}”` : '';
  return { is: `is an error in place of an answer${quoted}`, next: 'Solve that, ask again, and save the new answer.' };
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Whether a text of JSON ends inside of a string, an object or a list. */
function isCutOff(text: string): boolean {
  let depth = 0;
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    const character = text[i] ?? '';
    if (character === '"') quoted = !quoted;
    if (quoted && character === '\\') i++;
    if (!quoted && '[{'.includes(character)) depth++;
    if (!quoted && ']}'.includes(character)) depth--;
  }
  return quoted || depth > 0;
}
