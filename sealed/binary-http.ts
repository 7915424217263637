// Reads binary HTTP (RFC 9292) of known and of indeterminate length: the head first, then the content as it arrives.
import { ByteSource, type Bytes, joined, varint } from './byte-source.ts';
import { malformed, type SealedError, tooLarge, truncated } from './errors.ts';

interface MessageLimits {
  /** Bytes of the control data and of each section of fields. */
  readonly max_head_bytes: number;
  /** Fields of a section. */
  readonly max_fields: number;
  /** Zeros after the message. */
  readonly max_padding_bytes: number;
}

const DEFAULT_LIMITS: MessageLimits = {
  max_head_bytes: 32 * 1024,
  max_fields: 1_000,
  max_padding_bytes: 256 * 1024,
};
/** Responses with a status of 1xx before the final one. */
const MAX_INFORMATIONAL = 16;

export interface Message<Head> {
  readonly head: Head;
  /**
   * The content, in chunks of any size. It throws if the message is truncated or malformed after the head; trailers are checked and
   * dropped. The message is complete only when this has ended.
   */
  readonly content: AsyncGenerator<Uint8Array, void, undefined>;
}

/** @throws {SealedError} sealed_malformed, sealed_truncated, sealed_too_large */
export async function readRequest(
  chunks: AsyncIterable<Uint8Array>,
  limits: MessageLimits = DEFAULT_LIMITS,
): Promise<Message<RequestHead>> {
  const reader = new Reader(chunks, limits);
  const isKnown = await reader.framing(FRAMING.known_request, FRAMING.request);
  reader.beginSection();
  const method = await reader.text('the method');
  const scheme = await reader.text('the scheme');
  const authority = await reader.text('the authority');
  const path = await reader.text('the path');
  if (faultOfField(method, '') !== null) throw malformed('The method is not one.');
  const fields = await reader.fields(isKnown);
  return { head: { method, scheme, authority, path, fields }, content: reader.content(isKnown) };
}

/** Informational responses are skipped. @throws {SealedError} sealed_malformed, sealed_truncated, sealed_too_large */
export async function readResponse(
  chunks: AsyncIterable<Uint8Array>,
  limits: MessageLimits = DEFAULT_LIMITS,
): Promise<Message<ResponseHead>> {
  const reader = new Reader(chunks, limits);
  const isKnown = await reader.framing(FRAMING.known_response, FRAMING.response);
  for (let informational = 0; ; informational++) {
    reader.beginSection();
    const status = await reader.number('the status');
    if (isFinalStatus(status)) {
      const fields = await reader.fields(isKnown);
      return { head: { status, fields }, content: reader.content(isKnown) };
    }
    if (status < 100 || status > 199) throw malformed('The status is not one of HTTP.');
    if (informational === MAX_INFORMATIONAL) throw tooLarge(`More than ${MAX_INFORMATIONAL} informational responses.`);
    await reader.fields(isKnown);
  }
}

class Reader {
  readonly #bytes: ByteSource;
  readonly #limits: MessageLimits;
  /** Bytes that the current section may still have. */
  #allowed_bytes = 0;

  constructor(chunks: AsyncIterable<Uint8Array>, limits: MessageLimits) {
    this.#bytes = new ByteSource(chunks);
    this.#limits = limits;
  }

  /** Returns whether the message has a known length. */
  async framing(known: number, indeterminate: number): Promise<boolean> {
    const framing = await this.#bytes.varint('the framing indicator');
    if (framing !== known && framing !== indeterminate)
      throw malformed('The framing indicator is none of this kind of message.');
    return framing === known;
  }

  number(what: string): Promise<number> {
    return this.#bytes.varint(what);
  }

  /** Resets the allowed bytes for a new section. */
  beginSection(): void {
    this.#allowed_bytes = this.#limits.max_head_bytes;
  }

  async text(what: string, bytes = this.#bytes): Promise<string> {
    return this.#text(await bytes.varint(what), what, bytes);
  }

  async #text(length: number, what: string, bytes: ByteSource): Promise<string> {
    this.#allowed_bytes -= length;
    if (this.#allowed_bytes < 0) throw this.#tooLargeHead();
    const taken = await bytes.take(length, what);
    let text = '';
    for (let at = 0; at < length; at += CHARACTERS) text += String.fromCharCode(...taken.subarray(at, at + CHARACTERS));
    return text;
  }

  #tooLargeHead(): SealedError {
    return tooLarge(`The head of the message has more than ${this.#limits.max_head_bytes} bytes.`);
  }

  /** A section of fields. A message may end before it, as if it were empty (§3.8). */
  async fields(isKnown: boolean): Promise<Field[]> {
    if (await this.#bytes.isAtEnd()) return [];
    this.beginSection();
    if (!isKnown) return this.#lines(this.#bytes, false);
    const length = await this.#bytes.varint('the length of the fields');
    if (length > this.#limits.max_head_bytes) throw this.#tooLargeHead();
    const section = await this.#bytes.take(length, 'the fields');
    return this.#lines(new ByteSource(only(section)), true);
  }

  /** Reads field lines up to the end of `bytes` or, without `toEnd`, up to the terminator. */
  async #lines(bytes: ByteSource, toEnd: boolean): Promise<Field[]> {
    const fields: Field[] = [];
    while (!(toEnd && (await bytes.isAtEnd()))) {
      const length = await bytes.varint('a field');
      if (length === 0 && !toEnd) break;
      const name = (await this.#text(length, 'a field', bytes)).toLowerCase();
      const value = await this.text('a field', bytes);
      const fault = faultOfField(name, value);
      if (fault !== null) throw malformed(fault);
      if (fields.push([name, value]) > this.#limits.max_fields)
        throw tooLarge(`The message has more than ${this.#limits.max_fields} headers.`);
    }
    return fields;
  }

  async *content(isKnown: boolean): AsyncGenerator<Uint8Array, void, undefined> {
    const bytes = this.#bytes;
    // A message without content and trailers may end here.
    if (await bytes.isAtEnd()) return;
    for (let length = await bytes.varint('the content'); length > 0; length = await bytes.varint('the content')) {
      for (let left = length; left > 0; ) {
        const some = await bytes.some(left);
        if (some === null) throw truncated('the content');
        left -= some.length;
        yield some;
      }
      if (isKnown) break;
    }
    await this.fields(isKnown);
    await this.#padding();
  }

  async #padding(): Promise<void> {
    const { max_padding_bytes } = this.#limits;
    let length = 0;
    for (
      let some = await this.#bytes.some(max_padding_bytes);
      some !== null;
      some = await this.#bytes.some(max_padding_bytes)
    ) {
      if (some.some((byte) => byte !== 0)) throw malformed('Behind the message stands something else than zeros.');
      length += some.length;
      if (length > max_padding_bytes) throw tooLarge(`More than ${max_padding_bytes} bytes of padding.`);
    }
  }
}

async function* only(chunk: Uint8Array): AsyncGenerator<Uint8Array, void, undefined> {
  yield chunk;
}

/** As many arguments of one call as every engine supports. */
const CHARACTERS = 8_192;

// Writes binary HTTP (RFC 9292) of indeterminate length: a message can be sent while it is made.

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

interface ResponseHead {
  /** 200 to 599. */
  readonly status: number;
  readonly fields: readonly Field[];
}

const FRAMING = { known_request: 0, known_response: 1, request: 2, response: 3 } as const;
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

const isFinalStatus = (status: number) => Number.isInteger(status) && status >= 200 && status <= 599;

const NO_TOKEN = /[^!#$%&'*+\-.^_`|~0-9A-Za-z]/;
/** Excluded by RFC 9113 §8.2.1: NUL, CR and LF anywhere, white space at either end. */
const NO_VALUE = /[\0\r\n]|^[ \t]|[ \t]$/;

/** The fault of a field; null: it is valid. */
function faultOfField(name: string, value: string): string | null {
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
