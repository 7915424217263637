// The gateway's log: JSON lines on stdout, written in batches. A terminal gets a readable form.
// The batches are ours because `pino.destination` keeps a process from its end while a pipe is full or a disk is: it retries without limit.
import { type Logger, pino } from 'pino';
import { prettyLine } from '../../node/log.ts';

/** Lines are buffered for this time, or up to FLUSH_LENGTH: one write for each line would cost more than the line. */
const FLUSH_MS = 100;
/** A write of this length to a pipe is atomic (PIPE_BUF). In longer writes the lines of several processes could mix. */
const FLUSH_LENGTH = 4096;
/** Limit for chunks that wait for a slow reader: 4 MiB. */
const MAX_CHUNKS = 1024;

type Out = Pick<NodeJS.WriteStream, 'isTTY' | 'write'> & Partial<Pick<NodeJS.WriteStream, 'on' | 'writableLength'>>;

/**
 * `onExit` registers a flush for the end of the process. A line that cannot be written, to a full disk or a closed or blocked reader, is
 * lost.
 */
export function createLog(
  level: string,
  out: Out = process.stdout,
  onExit: (flush: () => void) => void = (flush) => void process.once('exit', flush),
): Logger {
  const options = { name: 'gateway', level };
  /** A full disk may have taken half of a line. */
  let cut = false;
  // Without a handler Node would end the process and every running response.
  out.on?.('error', () => {
    cut = true;
  });
  if (out.isTTY) return pino(options, { write: (line: string) => void out.write(prettyLine(line)) });
  let buffer = '';
  let timer: NodeJS.Timeout | null = null;
  const chunks: string[] = [];
  /** Chunks are written one at a time: the stream would join those that wait, and a full pipe would cut them anywhere. */
  const send = () => {
    while (chunks.length > 0 && (out.writableLength ?? 0) === 0) {
      const start = cut ? '\n' : '';
      cut = false;
      out.write(start + chunks.shift(), send);
    }
  };
  const flush = () => {
    clearTimeout(timer ?? undefined);
    timer = null;
    if (buffer !== '' && chunks.length < MAX_CHUNKS) chunks.push(buffer);
    buffer = '';
    send();
  };
  onExit(flush);
  return pino(options, {
    write(line: string) {
      if (buffer.length + line.length > FLUSH_LENGTH) flush();
      buffer += line;
      timer ??= setTimeout(flush, FLUSH_MS).unref();
    },
  });
}
