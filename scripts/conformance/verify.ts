// The verifier of this repository as vectors/README.md's contract has it: `node scripts/conformance/verify.ts CASE`.
import { readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { appraiseAttestation, appraiseEvidence } from '../../verify/index.ts';
import { inputOf, type Vector, verifyOptions } from '../vectors/vector.ts';

const EXIT = { valid: 0, invalid: 1, usage: 2, incomplete: 3 } as const;

const [file, ...more] = process.argv.slice(2);
const vector = file === undefined || more.length > 0 ? null : readCase(file);
if (file === undefined || vector === null) {
  console.error('usage: node scripts/conformance/verify.ts CASE');
  process.exitCode = EXIT.usage;
} else {
  const [verdict, word] = await appraise(dirname(dirname(file)), vector);
  console.log(`${verdict} ${word}`);
  process.exitCode = EXIT[verdict];
}

function readCase(path: string): Vector | null {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Vector;
  } catch (error) {
    console.error(`${path} is no case: ${(error as Error).message}`);
    return null;
  }
}

async function appraise(folder: string, one: Vector): Promise<['valid' | 'invalid' | 'incomplete', string]> {
  const options = verifyOptions(folder, one.options);
  const input = inputOf(folder, one);
  const report = await (one.evidence === undefined ? appraiseAttestation : appraiseEvidence)(input, options);
  if (report.valid) return ['valid', report.level];
  const failed = report.checks.find(({ status }) => status === 'fail');
  return [report.incomplete ? 'incomplete' : 'invalid', failed?.code ?? 'no_code'];
}
