// `countersign expand`: a compact attestation becomes the whole one, in the file that carries it.
import type { Attestation } from '../../proto/attestation/attestation.ts';
import { checkBundle } from '../binding/bundle.ts';
import { attestationOf } from '../binding/exchange.ts';
import { readInput } from '../binding/input.ts';
import { attestationIn, CheckFailure, fetchBundle, isUnavailable } from '../index.ts';
import type { Arguments } from './args.ts';
import { bundlesIn } from './bundle-files.ts';
import { INPUT_LIMITS } from './input.ts';
import { plain } from './report.ts';

/** Prints the whole file. What is whole already is printed as it is. @returns the exit status */
export async function expand(input: string | Uint8Array, { bundles, url }: Arguments): Promise<number> {
  const ask = url === null ? undefined : (sha256: string) => fetchBundle(url, sha256);
  try {
    const carried = typeof input === 'string' ? input : attestationOf(input, INPUT_LIMITS);
    const { attestation, bundle } = readInput(carried, INPUT_LIMITS, true);
    const text = typeof input === 'string' ? input : new TextDecoder('utf-8', { ignoreBOM: true }).decode(input);
    if (bundle === null) return print(text);
    const { value } = await checkBundle({ attestation, sha256: bundle }, bundlesIn(bundles, ask), INPUT_LIMITS);
    return print(expanded(text, attestationIn(carried) ?? carried, value));
  } catch (error) {
    if (!(error instanceof CheckFailure)) throw error;
    console.error(`countersign: ${error.code}: ${plain(error.message)}`);
    return isUnavailable(error) ? 3 : 1;
  }
}

/** A compact attestation by itself is the text `carried`. The whole one takes its place: within a JSON string its quotes would be escaped. */
function expanded(text: string, compact: string, whole: Attestation): string {
  const json = JSON.stringify(whole);
  return compact === text ? json : text.replace(compact, () => json);
}

/** With one line end behind it. */
function print(text: string): number {
  console.log(text.replace(/\n$/, ''));
  return 0;
}
