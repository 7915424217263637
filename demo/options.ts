// The options of `npm start`. They import nothing slow, because they are read before its first line.
import { OptionError, readTwinOptions, TWIN_OPTIONS } from './twin/options.ts';

export { OptionError };

export interface DemoOptions {
  /** The demo engine has a real model too. */
  readonly model: boolean;
  /** Options of the simulated machine, as they were given. */
  readonly twin: readonly string[];
}

const MODEL = '--model';
const NAMES = [MODEL, ...Object.keys(TWIN_OPTIONS).map((name) => `--${name}`)];
const isKnown = (arg: string): boolean => !arg.startsWith('-') || NAMES.includes(arg.split('=', 1)[0] ?? '');

/** @throws {OptionError} */
export function readDemoOptions(args: readonly string[]): DemoOptions {
  if (!args.every(isKnown))
    throw new OptionError(
      `the options are ${NAMES.join(', ')}: settings are environment variables, all of them in docs/configuration.md`,
    );
  const twin = args.filter((arg) => arg !== MODEL);
  readTwinOptions(twin);
  return { model: twin.length < args.length, twin };
}
