// Takes the chunk with the usage out of a stream, where the gateway asked for it and the client did not. All other bytes stay as they are.
import { isObject } from '../../proto/json.ts';
import { EventScanner } from '../../proto/stream/sse.ts';
import { EMPTY } from '../base/bytes.ts';

const USAGE = '"usage"';
/** The chunk with the usage has a few hundred bytes. A longer event is another one. */
const MAX_BYTES = 16 * 1024;
const LF = 0x0a;
const CR = 0x0d;

export class UsageChunkFilter {
  readonly #scanner = new EventScanner();
  /** The event that has not ended. */
  #held = EMPTY;
  /** Its first bytes were passed on, because it is too long to be the one. */
  #passing = false;
  /** The last event was passed on. A line feed that comes after its carriage return, in another chunk, is part of it. */
  #passed = true;
  #endsInCr = false;

  /** Returns the bytes to pass on: those of whole events, and of an event that is too long. */
  take(chunk: Buffer): Buffer {
    const ready: Buffer[] = [];
    let from = this.#endsInCr && chunk[0] === LF ? 1 : 0;
    if (from === 1 && this.#passed) ready.push(chunk.subarray(0, 1));
    if (chunk.length > 0) this.#endsInCr = false;
    let { events } = this.#scanner;
    this.#scanner.scan(chunk, (_from, to) => {
      if (this.#scanner.events === events) return;
      ({ events } = this.#scanner);
      const end = chunk[to] === CR && chunk[to + 1] === LF ? to + 2 : to + 1;
      const event = Buffer.concat([this.#held, chunk.subarray(from, end)]);
      this.#passed = this.#passing || !isUsage(event);
      if (this.#passed) ready.push(event);
      this.#endsInCr = end === chunk.length && chunk[to] === CR;
      from = end;
      this.#held = EMPTY;
      this.#passing = false;
    });
    const rest = Buffer.concat([this.#held, chunk.subarray(from)]);
    this.#passing ||= rest.length > MAX_BYTES;
    this.#held = this.#passing ? EMPTY : rest;
    if (this.#passing) ready.push(rest);
    return Buffer.concat(ready);
  }

  /** Returns the rest of a stream that ends inside of an event. */
  end(): Buffer {
    return isUsage(this.#held) ? EMPTY : this.#held;
  }

  /** Whether the bytes that were passed on end between two events. */
  get betweenEvents(): boolean {
    return !this.#passing;
  }
}

function isUsage(event: Buffer): boolean {
  if (!event.includes(USAGE)) return false;
  const data = event
    .toString('utf8')
    .split(/\r\n|\n|\r/)
    .filter((line) => line.startsWith('data:'))
    .map((line) => line.slice('data:'.length));
  try {
    const chunk: unknown = JSON.parse(data.join('\n'));
    return isObject(chunk) && Array.isArray(chunk.choices) && chunk.choices.length === 0 && isObject(chunk.usage);
  } catch {
    return false;
  }
}
