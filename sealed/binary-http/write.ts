// Writes binary HTTP (RFC 9292) of indeterminate length: a message can be sent while it is made.
import { type Bytes, joined, varint } from '../byte-source.ts';
import { malformed } from '../errors.ts';

/** A header's name in lower case, and its value: one character a byte, as in Node and Fetch. */
export type Field = readonly [name: string, value: string];

export interface RequestHead {
  readonly method: string;
  readonly scheme: string;
  /** Empty where a `host` field names it. */
  readonly authority: string;
  /** With the query. */
  readonly path: string;
  readonly fields: readonly Field[];
}

export interface ResponseHead {
  /** 200 to 599. */
  readonly status: number;
  readonly fields: readonly Field[];
}

export const FRAMING = { known_request: 0, known_response: 1, request: 2, response: 3 } as const;
const NO_BYTES: Bytes = new Uint8Array();

/** @throws {SealedError} sealed_malformed where a name or value cannot be sent. */
export function writeRequestHead({ method, scheme, authority, path, fields }: RequestHead): Bytes {
  const control = [method, scheme, authority, path].flatMap(lengthAndText);
  return joined([varint(FRAMING.request), ...control, fieldSection(fields)]);
}

/** @throws {SealedError} sealed_malformed where a name or value cannot be sent. */
export function writeResponseHead({ status, fields }: ResponseHead): Bytes {
  if (!isFinalStatus(status)) throw malformed('The status is not one of a final response.');
  return joined([varint(FRAMING.response), varint(status), fieldSection(fields)]);
}

/** A chunk of the content. Of no bytes, nothing is written: an empty chunk would end the content. */
export function writeContent(bytes: Uint8Array): Bytes {
  return bytes.length === 0 ? NO_BYTES : joined([varint(bytes.length), bytes]);
}

/** The prefix of a chunk of the content. `length` is not 0. */
export const contentHead = (length: number): Bytes => varint(length);

/** The end of the content and of the message, without trailers, and `padding_bytes` of padding. */
export function writeEnd(padding_bytes = 0): Bytes {
  return new Uint8Array(2 + padding_bytes);
}

export const isFinalStatus = (status: number) => Number.isInteger(status) && status >= 200 && status <= 599;

const NO_TOKEN = /[^!#$%&'*+\-.^_`|~0-9A-Za-z]/;
/** Excluded by RFC 9113 §8.2.1: NUL, CR and LF anywhere, white space at either end. */
const NO_VALUE = /[\0\r\n]|^[ \t]|[ \t]$/;

/** The fault of a field; null: it is valid. */
export function faultOfField(name: string, value: string): string | null {
  if (name === '' || NO_TOKEN.test(name)) return 'A header has a name that HTTP does not allow.';
  return NO_VALUE.test(value) ? `The header ${name} has a value that HTTP does not allow.` : null;
}

function fieldSection(fields: readonly Field[]): Bytes {
  const lines = fields.flatMap(([name, value]) => {
    const fault = faultOfField(name, value);
    if (fault !== null) throw malformed(fault);
    return [...lengthAndText(name.toLowerCase()), ...lengthAndText(value)];
  });
  return joined([...lines, varint(0)]);
}

function lengthAndText(text: string): [Bytes, Bytes] {
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code > 0xff) throw malformed('A header or the target has a character that is no byte.');
    bytes[i] = code;
  }
  return [varint(bytes.length), bytes];
}
