// The gateway's log: JSON lines on stdout, written together; for people where that is a terminal.
import { type Logger, pino } from 'pino';
import { prettyLine } from '../../proto/log-line.ts';

/** Lines wait for each other this long, or until there are so many: a write for each would cost more than the line. */
const FLUSH_MS = 100;
const FLUSH_LENGTH = 16 * 1024;

export type Out = Pick<NodeJS.WriteStream, 'isTTY' | 'write'> & Partial<Pick<NodeJS.WriteStream, 'on'>>;

/** `onExit`: what is left is written when the process ends. A line that cannot be written, to a full disk or a reader that is gone, is lost. */
export function createLog(
  level: string,
  out: Out = process.stdout,
  onExit: (flush: () => void) => void = (flush) => void process.once('exit', flush),
): Logger {
  const options = { name: 'gateway', level };
  // Without it Node would end the process, and every answer that runs.
  out.on?.('error', () => {});
  if (out.isTTY) return pino(options, { write: (line: string) => void out.write(prettyLine(line)) });
  let waiting = '';
  let timer: NodeJS.Timeout | null = null;
  const flush = () => {
    clearTimeout(timer ?? undefined);
    timer = null;
    if (waiting !== '') out.write(waiting);
    waiting = '';
  };
  onExit(flush);
  return pino(options, {
    write(line: string) {
      waiting += line;
      if (waiting.length > FLUSH_LENGTH) flush();
      else timer ??= setTimeout(flush, FLUSH_MS).unref();
    },
  });
}
