// The weights that the caller expects, and those of the launch file that the guest was started with.
import { isObject, JsonTextError, parseStrict } from '../../proto/json.ts';
import { isDigest } from '../common/bytes.ts';
import { CheckFailure, type Outcome, seen, skipped } from '../common/checks.ts';
import type { CpuSoftware } from './cpu-options.ts';

const MAX_CHARACTERS = 64 * 1024 * 1024;

/**
 * @param input a verity root of 64 hex digits, or `weights.json` as `countersign weights` writes it: text, or parsed.
 * @returns the root. @throws {TypeError}
 */
export function readWeights(input: unknown): string {
  if (isDigest(input)) return input;
  const value = typeof input === 'string' ? parsed(input) : input;
  const root = isObject(value) ? value.verity_root : undefined;
  if (!isDigest(root))
    throw unusable('neither a verity root nor an object with a verity_root of 64 lowercase hex digits');
  return root;
}

const unusable = (reason: string, cause?: unknown) => new TypeError(`weights: ${reason}`, { cause });

function parsed(text: string): unknown {
  if (text.length > MAX_CHARACTERS) throw unusable(`more than ${MAX_CHARACTERS} characters`);
  try {
    return parseStrict(text);
  } catch (cause) {
    throw unusable(cause instanceof JsonTextError ? cause.message : 'neither a verity root nor JSON', cause);
  }
}

/**
 * @param expected the root; null: the caller names none. @param software of a guest that is bound to what was signed; null: none is proven.
 * @throws {CheckFailure} weights_missing, weights_mismatch
 */
export function checkWeights(expected: string | null, software: CpuSoftware | null): Outcome<true> {
  if (expected === null) return skipped('the caller names no weights');
  if (software === null)
    throw new CheckFailure(
      'weights_missing',
      'no launch file is proven that could name weights: the level is not measured',
    );
  const { model } = software;
  if (model == null) throw new CheckFailure('weights_missing', 'the launch file names no weights, or is not at hand');
  if (model.verity_root !== expected)
    throw new CheckFailure(
      'weights_mismatch',
      `the launch file's weights are ${model.name}, root ${model.verity_root}`,
    );
  return seen(`${model.name}, by their root`);
}
