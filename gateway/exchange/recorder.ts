// Looks at the events of a stream that will be attested: hashes and folds what the backend sent, and finds the chunk to hold.
import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { type Chunk, Fold, FoldError, type Piece, parseChunk } from '../../proto/fold.ts';
import { numberOf } from '../../proto/json.ts';
import { isDone } from '../../proto/sse.ts';
import { MANY_BYTES } from '../http/bytes.ts';
import { Problem } from '../http/problem.ts';
import type { Folded } from '../offload/jobs.ts';
import { Repeat, type Repeated } from './repeated-event.ts';

/** What an event is to the delivery. */
export type Seen =
  /** A delta, or anything else that may go out now. `live`: of a choice that has not finished. */
  | { readonly kind: 'chunk'; readonly live: boolean }
  /** It carries the finish_reason of a choice. `live`: that choice had not finished before. */
  | { readonly kind: 'finish'; readonly live: boolean }
  | { readonly kind: 'done' }
  /** The backend gave up inside its stream. */
  | { readonly kind: 'error'; readonly body: unknown };

const bad = (message: string, cause?: unknown) => new Problem('backend_bad_response', message, { cause });
/** It is nested deeper than the stack. What could just be merged may still be too deep to be written. */
const unfoldable = (cause: unknown): never => {
  throw bad('The backend sent a chunk that cannot be folded.', cause);
};

export class Recorder {
  readonly #max_answer_bytes: number;
  readonly #hash = new PayloadHash();
  readonly #repeat = new Repeat();
  readonly #fold = new Fold();
  readonly #open = new Set<number>();
  readonly #finished = new Set<number>();
  #events = 0;
  #bytes = 0;
  #completionId: string | null = null;

  constructor(max_answer_bytes: number) {
    this.#max_answer_bytes = max_answer_bytes;
  }

  /** The backend's id of the completion, once a chunk has said it. */
  get completionId(): string | null {
    return this.#completionId;
  }

  /** How many choices have finished. */
  get finished(): number {
    return this.#finished.size;
  }

  /**
   * Takes the events at the start of `bytes` that repeat the one before but for their text; says where they end. `bytes`
   * must begin with an event. What is wrong is left for {@link observe}.
   */
  repeats(bytes: Buffer): number {
    let at = 0;
    for (;;) {
      const repeated = this.#repeat.read(bytes, at);
      if (repeated === null || !this.#hasRoomFor(repeated.data)) return at;
      this.#add(repeated);
      at = repeated.end;
    }
  }

  /** @throws {Problem} backend_bad_response */
  observe(payload: Uint8Array): Seen {
    if (isDone(payload)) return { kind: 'done' };
    const chunk = this.#parse(payload);
    const { error, choices } = chunk;
    if (error !== undefined && error !== null) return { kind: 'error', body: chunk };
    if ('attestation' in chunk) throw bad('The backend sent an attestation of its own.');
    if (choices !== undefined && choices !== null && !Array.isArray(choices))
      throw bad('The backend sent choices that are no list.');
    this.#record(payload, chunk);
    this.#repeat.learn(payload, chunk);
    return this.#choices(choices ?? []);
  }

  /** What raw needs. @throws {Problem} backend_bad_response unless every choice has finished. A promise rejects with the same. */
  finish(): Folded | Promise<Folded> {
    if (this.#finished.size === 0 || this.#open.size > 0)
      throw bad('The backend ended its stream before its answer was finished.');
    return this.#bytes > MANY_BYTES
      ? inTurns(this.#fold.pieces()).then((pieces) => this.#folded(pieces), unfoldable)
      : this.#folded(this.#text());
  }

  #text(): string {
    try {
      return this.#fold.text();
    } catch (cause) {
      return unfoldable(cause);
    }
  }

  #folded(response: string | readonly Piece[]): Folded {
    const stream = { events: this.#events, sha256: this.#hash.digest() };
    return { response, stream, completionId: this.#completionId };
  }

  #parse(data: Uint8Array): Chunk {
    if (!isUtf8(data)) throw bad('The backend sent a chunk that is not UTF-8.');
    try {
      return parseChunk(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('utf8'));
    } catch (cause) {
      throw bad(
        cause instanceof FoldError
          ? `The backend broke its stream: ${cause.message}.`
          : 'The backend sent a chunk that cannot be read.',
        cause,
      );
    }
  }

  #add({ index, content, data }: Repeated): void {
    this.#count(data);
    this.#fold.addContent(index, content);
  }

  #hasRoomFor(data: Uint8Array): boolean {
    return this.#bytes + data.length + 1 <= this.#max_answer_bytes;
  }

  #count(data: Uint8Array): void {
    if (!this.#hasRoomFor(data)) throw bad('The answer grew larger than what is attested.');
    this.#bytes += data.length + 1;
    this.#events++;
    this.#hash.add(data);
  }

  #record(data: Uint8Array, chunk: Chunk): void {
    this.#count(data);
    if (this.#completionId === null && typeof chunk.id === 'string' && chunk.id !== '') this.#completionId = chunk.id;
    try {
      this.#fold.add(chunk);
    } catch (cause) {
      unfoldable(cause);
    }
  }

  #choices(choices: readonly unknown[]): Seen {
    let live = false;
    let finishes = false;
    for (const choice of choices) {
      if (typeof choice !== 'object' || choice === null) continue;
      const { index, finish_reason } = choice as { index?: unknown; finish_reason?: unknown };
      const at = numberOf(index) ?? 0;
      if (!this.#finished.has(at)) {
        live = true;
        this.#open.add(at);
      }
      if (finish_reason === undefined || finish_reason === null || finish_reason === '') continue;
      finishes = true;
      this.#open.delete(at);
      this.#finished.add(at);
    }
    return { kind: finishes ? 'finish' : 'chunk', live };
  }
}

// Writes a large completion down in turns of the event loop, between which others have theirs.

/** What is written in one turn; what a piece costs, however short. */
const TURN_LENGTH = 256 * 1024;
const PIECE_LENGTH = 64;

async function inTurns(pieces: Iterable<Piece>): Promise<readonly Piece[]> {
  const written: Piece[] = [];
  let length = 0;
  // The first comes while nothing new is read, and belongs to the turn that there is; each after it is a turn.
  await setImmediate();
  for (const piece of pieces) {
    written.push(piece);
    if (typeof piece === 'string') {
      length += piece.length + PIECE_LENGTH;
      if (length < TURN_LENGTH) continue;
    } else {
      // A text that grew chunk by chunk is put together when it is first looked into: here, and not with what follows.
      piece.quote.charCodeAt(0);
    }
    length = 0;
    await setImmediate();
  }
  return written;
}

// SHA-256 over the payloads of a stream, each followed by a line feed; small ones are gathered, since each call costs more than its bytes.

const LF = 10;
const GATHERED_BYTES = 2_048;

class PayloadHash {
  readonly #hash = createHash('sha256');
  readonly #gathered = Buffer.allocUnsafe(GATHERED_BYTES);
  #length = 0;

  add(payload: Uint8Array): void {
    if (this.#length + payload.length + 1 > GATHERED_BYTES) this.#flush();
    if (payload.length + 1 > GATHERED_BYTES) this.#hash.update(payload);
    else {
      this.#gathered.set(payload, this.#length);
      this.#length += payload.length;
    }
    this.#gathered[this.#length++] = LF;
  }

  /** Lowercase hex, once. */
  digest(): string {
    this.#flush();
    return this.#hash.digest('hex');
  }

  #flush(): void {
    if (this.#length > 0) this.#hash.update(this.#gathered.subarray(0, this.#length));
    this.#length = 0;
  }
}
