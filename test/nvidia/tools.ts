// What the side-by-side run needs: NVIDIA's verifier, a clock for it, and the genuine evidence.
import { debianProgram, MissingPart } from '../support/debian.ts';
import { vectorsPresent } from '../support/vectors.ts';
import { nvidiaPython } from './venv.ts';
import type { Tools } from './verifier.ts';

/** @throws {MissingPart} */
export function nvidiaTools(): Tools {
  if (!vectorsPresent) throw new MissingPart('the genuine evidence (npm run make genuine)');
  return { python: nvidiaPython(), faketime: debianProgram('faketime', 'faketime') };
}
