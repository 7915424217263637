// What a reference deployment of the same engine and precision missed: one file, from `audit --calibrate`, for `audit --calibration`.
import { readFileSync, writeFileSync } from 'node:fs';
import { UsageError, unusable } from '../../verify/cli/input.ts';
import { boundOf, MAX_BOUND } from './rule.ts';
import { GAPS, type Greedy } from './score.ts';

export interface Calibration {
  readonly version: 1;
  /** The name that the auditor's engine gives its model. */
  readonly model: string;
  readonly made: string;
  readonly tokens: number;
  /** Tokens whose gap to the best exceeds 0.25 nats. */
  readonly misses: number;
  /** How many of the tokens have a gap above 0, 0.05, 0.125, 0.25, 0.5, 0.75, 1, 1.5, 2, 3 and 5 nats. */
  readonly above: readonly number[];
}

/** @throws {UsageError} */
export function writeCalibration(file: string, model: string, { tokens, misses, above }: Greedy, now: Date): void {
  const calibration: Calibration = { version: 1, model, made: now.toISOString(), tokens, misses, above };
  try {
    writeFileSync(file, `${JSON.stringify(calibration, null, 2)}\n`);
  } catch (error) {
    throw unusable(file, error);
  }
}

/** @throws {UsageError} */
export function readCalibration(file: string, model: string): Calibration {
  const no = (why: string) => new UsageError(`--calibration ${file}: ${why}`, 'make one with audit --calibrate FILE');
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw unusable(file, error);
  }
  let found: Calibration;
  try {
    found = JSON.parse(text) as Calibration;
  } catch {
    throw no('not JSON');
  }
  const { version, tokens, misses, above } = found ?? {};
  const isCount = (count: unknown) => Number.isSafeInteger(count) && (count as number) >= 0;
  const counts = [tokens, misses, ...(Array.isArray(above) ? above : [])];
  if (version !== 1 || counts.length !== GAPS.length + 2 || !counts.every(isCount) || misses > tokens || tokens === 0)
    throw no('not a calibration of version 1');
  if (found.model !== model) throw no(`it is of the model ${found.model}, and the engine has ${model}`);
  if (boundOf(found) > MAX_BOUND) throw no('its reference missed too often: it had other weights or another precision');
  return found;
}
