// The soak's command line.
import { parseArgs } from 'node:util';

export interface SoakOptions {
  readonly minutes: number;
  /** Clients that ask one question after the other. */
  readonly clients: number;
  /** Between two faults. */
  readonly fault_s: number;
}

/** @throws {TypeError} for an option that is unknown or no number. */
export function readOptions(args: readonly string[]): SoakOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      minutes: { type: 'string', default: '10' },
      clients: { type: 'string', default: '16' },
      'fault-seconds': { type: 'string', default: '7' },
    },
  });
  return {
    minutes: number('--minutes', values.minutes, 0.2, 24 * 60),
    clients: number('--clients', values.clients, 1, 1_000),
    fault_s: number('--fault-seconds', values['fault-seconds'], 1, 3_600),
  };
}

function number(name: string, text: string, min: number, max: number): number {
  const value = Number(text);
  if (!(value >= min && value <= max)) throw new TypeError(`${name} must be a number from ${min} to ${max}`);
  return value;
}
