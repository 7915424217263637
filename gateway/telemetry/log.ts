// The gateway's log: JSON lines on stdout, for people where that is a terminal.
import { type Logger, pino } from 'pino';
import { prettyLine } from '../../proto/log-line.ts';

/** Lines are written together, at the latest after this time: a write for each would cost more than the line. */
const FLUSH_MS = 100;
const BUFFER_BYTES = 4096;
/** When nobody reads stdout, lines past this are dropped: the log never holds up an answer. */
const MAX_WAITING_BYTES = 16 * 1024 * 1024;

export function createLog(level: string, out: NodeJS.WriteStream & { fd: number } = process.stdout): Logger {
  const options = { name: 'gateway', level };
  if (out.isTTY) return pino(options, { write: (line: string) => void out.write(prettyLine(line)) });
  const buffered = { dest: out.fd, sync: false, minLength: BUFFER_BYTES, periodicFlush: FLUSH_MS };
  // What is left when the process ends is written then: pino sees to that.
  return pino(options, pino.destination({ ...buffered, maxLength: MAX_WAITING_BYTES }));
}
