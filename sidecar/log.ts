// The sidecar's log: JSON lines on stdout, for people where that is a terminal.
import { type Logger, pino } from 'pino';
import { prettyLine } from '../proto/log.ts';
import type { Result } from './server/session.ts';

export type Out = Pick<NodeJS.WriteStream, 'isTTY' | 'write'> & Partial<Pick<NodeJS.WriteStream, 'on'>>;

/** A line that cannot be written, to a full disk or a reader that is gone, is lost. */
export function createLog(level: string, out: Out = process.stdout): Logger {
  // Without it Node would end the process, and every attestation that is being made.
  out.on?.('error', () => {});
  return pino(
    { name: 'sidecar', level },
    { write: (line: string) => void out.write(out.isTTY ? prettyLine(line) : line) },
  );
}

/** One line an attestation: the gateway's id, how it ended, where the time went, how many still wait. */
export function logResult(log: Logger, { id, code, ms, phases }: Result, queued: number): void {
  const times = Object.entries(phases ?? {}).map(([phase, phase_ms]) => [phase, round(phase_ms)]);
  const level = code === 'attested' || code === 'cancelled' ? 'info' : 'warn';
  log[level]({ id, code, ms: round(ms), ...Object.fromEntries(times), queued }, 'attest');
}

const round = (ms: number) => Math.round(ms * 10) / 10;
