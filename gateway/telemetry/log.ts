// The gateway's log: JSON lines on stdout, written together; for people where that is a terminal.
import { type Logger, pino } from 'pino';
import { prettyLine } from '../../proto/log.ts';

/** Lines wait for each other this long, or until there are so many: a write for each would cost more than the line. */
const FLUSH_MS = 100;
/** What a pipe takes in one piece (PIPE_BUF): of more, several workers' lines could end up inside of each other. */
const FLUSH_LENGTH = 4096;
/** What may wait for a reader that takes nothing: 4 MiB. */
const MAX_CHUNKS = 1024;

export type Out = Pick<NodeJS.WriteStream, 'isTTY' | 'write'> &
  Partial<Pick<NodeJS.WriteStream, 'on' | 'writableLength'>>;

/** `onExit`: what is left is written when the process ends. A line that cannot be written, to a full disk or a reader that is gone or takes nothing, is lost. */
export function createLog(
  level: string,
  out: Out = process.stdout,
  onExit: (flush: () => void) => void = (flush) => void process.once('exit', flush),
): Logger {
  const options = { name: 'gateway', level };
  // Without it Node would end the process, and every answer that runs.
  out.on?.('error', () => {});
  if (out.isTTY) return pino(options, { write: (line: string) => void out.write(prettyLine(line)) });
  let buffer = '';
  let timer: NodeJS.Timeout | null = null;
  const chunks: string[] = [];
  /** One after the other: what waits in the stream leaves together, and the pipe cuts it where its room ends. */
  const send = () => {
    while (chunks.length > 0 && (out.writableLength ?? 0) === 0) out.write(chunks.shift() as string, send);
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
