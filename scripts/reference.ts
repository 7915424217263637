// `npm run make reference -- OUT COMPOSE`: what a release of deploy/cvm publishes to be expected, as its workflow computes it: launch file, firmware
// and image, their measurements, and the statement that is signed. As root; deploy/cvm's scripts say what they need.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { parse } from 'yaml';
import { CheckFailure } from '../verify/index.ts';
import { predicateType, readRelease, weightsOf } from '../verify/release/release-statement.ts';

const USAGE = `npm run make reference -- OUT COMPOSE --repository OWNER/REPO --tag TAG --commit COMMIT [--weights …] [--operator HEX]

OUT      a folder: image, firmware, launch.json, reference.json, statement.json
COMPOSE  the JSON of \`docker compose config\`, of a measured launch
MIRROR, VCPUS and TYPES as in deploy/cvm; --weights and --operator as of \`npm run launch\`

exit status: 0 written, 1 a step failed, 2 usage`;

export interface Released {
  readonly repository: string;
  readonly tag: string;
  readonly commit: string;
  /** `reference.json`, and launch files by name. */
  readonly files: Readonly<Record<string, string>>;
  /** By name, pinned. */
  readonly images: Readonly<Record<string, string>>;
}

/** The in-toto statement, checked as its verifiers will. @throws {CheckFailure} */
export async function statementOf({ repository, tag, commit, files, images }: Released): Promise<string> {
  const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
  const statement = JSON.stringify({
    _type: 'https://in-toto.io/Statement/v1',
    subject: Object.entries(files).map(([name, text]) => ({ name, digest: { sha256: sha256(text) } })),
    predicateType: predicateType(repository, 'release'),
    predicate: {
      version: 1,
      repository,
      tag,
      commit,
      files,
      weights: weightsOf(new Map(Object.entries(files))),
      images,
    },
  });
  await readRelease(new TextEncoder().encode(statement), { repository, ref: `refs/tags/${tag}`, commit });
  return statement;
}

/** By service, those that have one. */
export function imagesIn(compose: string): Record<string, string> {
  const { services = {} } = parse(compose) as { services?: Record<string, { image?: string }> };
  const images = Object.entries(services).flatMap(([name, { image }]) => (image === undefined ? [] : [[name, image]]));
  return Object.fromEntries(images);
}

/** One line for the reader. */
class StepError extends Error {}

function run(command: string, args: readonly string[]): string {
  const { status, stdout } = spawnSync(command, args, { stdio: ['ignore', 'pipe', 'inherit'], encoding: 'utf8' });
  if (status !== 0) throw new StepError(`${command} ended with ${status}`);
  return stdout;
}

async function main(): Promise<number> {
  const text = { type: 'string' } as const;
  const options = {
    repository: text,
    tag: text,
    commit: text,
    operator: text,
    weights: { ...text, multiple: true },
  } as const;
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  const [out, compose, ...more] = positionals;
  const { repository, tag, commit, operator, weights = [] } = values;
  if (!out || !compose || more.length > 0 || !repository || !tag || !commit) {
    console.error(USAGE);
    return 2;
  }
  const here = (name: string) => fileURLToPath(new URL(`../deploy/cvm/${name}`, import.meta.url));
  mkdirSync(out, { recursive: true });
  const launch = run(process.execPath, [
    fileURLToPath(new URL('launch.ts', import.meta.url)),
    compose,
    ...weights.flatMap((one) => ['--weights', one]),
    ...(operator === undefined ? [] : ['--operator', operator]),
  ]);
  console.error(run(here('firmware.sh'), [out]) + run(here('build.sh'), [out]));
  const hash = createHash('sha256').update(launch).digest('hex');
  const reference = run(here('reference.sh'), [out, join(out, 'OVMF.fd'), hash]);
  const files = { 'reference.json': reference, 'launch.json': launch };
  const images = imagesIn(readFileSync(compose, 'utf8'));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(out, name), text);
  writeFileSync(join(out, 'statement.json'), await statementOf({ repository, tag, commit, files, images }));
  console.log(`${join(out, 'statement.json')}: launch file ${hash}`);
  return 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  try {
    process.exitCode = await main();
  } catch (error) {
    if (!(error instanceof StepError || error instanceof CheckFailure)) throw error;
    console.error(`reference: ${error.message}`);
    process.exitCode = 1;
  }
