// Lines out of a stream, one at a time, none longer than allowed.
import type { Readable } from 'node:stream';

export interface Lines {
  /** The next line without its end; null when the stream has ended. @throws {LineTooLong} */
  next(): Promise<string | null>;
}

/** More than `max_line_bytes` came without a line break. */
export class LineTooLong extends Error {
  override readonly name = 'LineTooLong';
}

/** What stands after the last line break is a line too: half a line is then for the reader's parser to refuse. */
export function readLines(stream: Readable, max_line_bytes: number): Lines {
  const lines = split(stream, max_line_bytes);
  return {
    async next() {
      const { value, done } = await lines.next().catch((error: NodeJS.ErrnoException) => {
        if (error.code === 'ERR_STREAM_PREMATURE_CLOSE') return { value: undefined, done: true as const };
        throw error; // too long, or the stream broke
      });
      return done ? null : value;
    },
  };
}

async function* split(stream: Readable, max_line_bytes: number): AsyncGenerator<string, undefined> {
  let held: Buffer[] = [];
  let held_bytes = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    let start = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      yield Buffer.concat([...held, chunk.subarray(start, end)]).toString('utf8');
      held = [];
      held_bytes = 0;
      start = end + 1;
    }
    held.push(chunk.subarray(start));
    held_bytes += chunk.length - start;
    if (held_bytes > max_line_bytes) throw new LineTooLong(`a line is longer than ${max_line_bytes} bytes`);
  }
  if (held_bytes > 0) yield Buffer.concat(held).toString('utf8');
}
