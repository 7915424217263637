// `npm run launch -- compose.json`: writes the launch file of a compose file, by which relying parties know what runs in a confidential
// guest. Prints the text without a line feed, for its SHA-256 is what counts.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { MAX_LAUNCH_CHARACTERS, readLaunch, type Weights, writeLaunch } from '../proto/attestation/launch.ts';
import { JsonTextError, parseStrict } from '../proto/json.ts';

const USAGE = `npm run -s launch -- COMPOSE [options] > launch.json

COMPOSE is the JSON of \`docker compose config\`, of a measured launch:

  docker compose -f compose.yaml -f compose.cpu.yaml -f compose.measured.yaml --profile node config --format json > compose.json

  --weights FILE|NAME=ROOT  the weights that it mounts: weights.json, as \`countersign weights\` writes it, or ORG/MODEL@REVISION
                            and the verity root; may be repeated
  --operator HEX            SHA-256 of the operator's public key; without it the launch is nobody's in particular

exit status: 0 written, 1 the compose file cannot be vouched for, 2 usage`;

/** Of a text of so many bytes no launch file can be made. */
const MAX_BYTES = MAX_LAUNCH_CHARACTERS;

/** @throws {JsonTextError} */
function readText(file: string): string {
  const bytes = readFileSync(file);
  if (bytes.length > MAX_BYTES) throw new JsonTextError(`${file} has more than ${MAX_BYTES} bytes`);
  return bytes.toString();
}

/** @param given a file, or `NAME=ROOT`. @throws {JsonTextError} */
function weightsOf(given: string): Weights {
  const [, name, root] = /^([^=]+@[^=]+)=([0-9a-f]{64})$/.exec(given) ?? [];
  if (name !== undefined && root !== undefined) return { name, verity_root: root };
  const value = parseStrict(readFileSync(given, 'utf8')) as Partial<Weights & { revision: string }> | null;
  const { name: stated = '', revision, verity_root = '' } = value ?? {};
  return { name: stated.includes('@') ? stated : `${stated}@${revision}`, verity_root };
}

async function run(argv: string[]): Promise<number> {
  const options = {
    weights: { type: 'string', multiple: true },
    operator: { type: 'string' },
    help: { type: 'boolean', short: 'h' },
  } as const;
  const { values, positionals } = parseArgs({ args: argv, options, allowPositionals: true, strict: true });
  if (values.help) {
    console.log(USAGE);
    return 0;
  }
  const [file] = positionals;
  if (file === undefined || positionals.length > 1) throw new TypeError('one COMPOSE is needed');
  try {
    const compose = readText(file);
    const written = writeLaunch({
      compose_sha256: createHash('sha256').update(compose).digest('hex'),
      weights: (values.weights ?? []).map(weightsOf),
      operator: values.operator ?? null,
      compose,
    });
    await readLaunch(written);
    process.stdout.write(written);
    console.error(`sha256 ${createHash('sha256').update(written).digest('hex')}`);
    return 0;
  } catch (error) {
    console.error(`launch: ${file}: ${(error as Error).message}`);
    return 1;
  }
}

try {
  process.exitCode = await run(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof TypeError)) throw error;
  console.error(`launch: ${error.message}\n\n${USAGE}`);
  process.exitCode = 2;
}
