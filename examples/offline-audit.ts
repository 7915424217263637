// Offline audit of a stored attestation, with the library: no network, reference values and OCSP answers from a folder.
//
//   npm run countersign -- collateral stored.json --into collateral            # once, while online and soon after the answer
//   npx node examples/offline-audit.ts stored.json collateral
//   npx node examples/offline-audit.ts stored.json collateral --simulated run/simulated-root/root.pem
//
// Prints every check, then what is proven and what is not, and the request that was signed. Exits 1 where a check failed.
// OCSP answers last for about a day: an audit years later says as of when (`at`), a time at which they were valid.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { createCollateral, VerificationError, verifyAttestation } from '../verify/index.ts';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { simulated: { type: 'string' }, at: { type: 'string' } },
});
const [file, folder] = positionals;
if (file === undefined || folder === undefined) throw new Error('give an attestation and a folder of collateral');

const filesIn = (name: string) => readdirSync(join(folder, name)).map((one) => readFileSync(join(folder, name, one)));

try {
  const { checks, proven, not_proven, exchange } = await verifyAttestation(readFileSync(file, 'utf8'), {
    collateral: createCollateral({ rims: filesIn('rim'), ocsp: filesIn('ocsp') }), // no fetch: no network
    ...(values.simulated === undefined ? {} : { simulatedRoot: readFileSync(values.simulated, 'utf8') }),
    ...(values.at === undefined ? {} : { at: new Date(values.at) }),
  });
  for (const { name, status, detail } of checks) console.log(`${status}  ${name.padEnd(18)} ${detail}`);
  console.log(
    `\nVALID\nproven:     ${proven.join('\n            ')}\nnot proven: ${not_proven.join('\n            ')}`,
  );
  console.log(`\nthe request that was signed: ${exchange.request}`);
} catch (error) {
  if (!(error instanceof VerificationError)) throw error;
  for (const { name, status, detail } of error.checks) console.log(`${status}  ${name.padEnd(18)} ${detail}`);
  console.log(`\nINVALID: ${error.code}`);
  process.exitCode = 1;
}
