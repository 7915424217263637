// `npm run launch -- compose.yaml`: writes the launch file of a compose file, by which relying parties know what runs in a confidential
// guest. Prints the text without a line feed, for its SHA-256 is what counts.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { parse } from 'yaml';
import { EGRESS, type Launch, SERVICES, writeLaunch, wrongMember } from '../proto/attestation/launch.ts';

const USAGE = `npm run -s launch -- COMPOSE [options] > launch.json

COMPOSE is a compose file whose images are pinned by digest: what \`docker compose config\` prints. Of its services
those of the profile \`node\` count, and those without one: deploy/cvm starts no others.

  --model NAME          the model that the backend serves; without it the first word of the backend's command
  --verity-root HEX     root hash of the volume with its weights; without it nothing measures them
  --egress none|models  what the services may reach; none by default
  --operator HEX        SHA-256 of the operator's public key; without it the launch is nobody's in particular

exit status: 0 written, 1 the compose file cannot be launched, 2 usage`;

/** One line for the reader. */
class LaunchError extends Error {}

type Services = Readonly<Record<string, { image?: unknown; command?: unknown; profiles?: readonly string[] }>>;

const PROFILE = 'node';

/** What `docker compose config` prints. Anything else could bring services that this file does not name. */
const TOP_LEVEL = ['name', 'version', 'services', 'networks', 'volumes', 'secrets', 'configs'];

function servicesOf(text: string): Services {
  const file: unknown = parse(text);
  if (typeof file !== 'object' || file === null) throw new LaunchError('it is no compose file');
  const other = Object.keys(file).find((name) => !TOP_LEVEL.includes(name) && !name.startsWith('x-'));
  if (other !== undefined) throw new LaunchError(`it has ${other}: give what docker compose config prints`);
  const { services } = file as { services?: Services };
  if (typeof services !== 'object' || services === null) throw new LaunchError('it has no services');
  const isStarted = ({ profiles = [] }: Services[string]) => profiles.length === 0 || profiles.includes(PROFILE);
  return Object.fromEntries(Object.entries(services).filter(([, service]) => isStarted(service)));
}

function imagesOf(services: Services): Launch['images'] {
  const images: Record<string, string> = {};
  for (const [name, service] of Object.entries(services)) {
    const other = ['extends', 'provider'].find((member) => Object.hasOwn(service, member));
    if (other !== undefined)
      throw new LaunchError(`service ${name} has ${other}: give what docker compose config prints`);
    // Where it has `build` beside an image that is pinned, the guest does not build.
    if (typeof service.image !== 'string' || !/@sha256:[0-9a-f]{64}$/.test(service.image))
      throw new LaunchError(`service ${name} has no image that ends in @sha256: and 64 digits`);
    images[name] = service.image;
  }
  const missing = SERVICES.find((name) => !Object.hasOwn(images, name));
  if (missing !== undefined) throw new LaunchError(`it has no service ${missing}`);
  return images;
}

/** vLLM's image takes the model first. */
function modelOf({ backend }: Services): string {
  const { command } = backend ?? {};
  const first: unknown = Array.isArray(command)
    ? command[0]
    : String(command ?? '')
        .trim()
        .split(/\s/)[0];
  if (typeof first !== 'string' || !/^[A-Za-z0-9]/.test(first))
    throw new LaunchError("the backend's command does not begin with its model: name it with --model");
  return first;
}

function run(argv: string[]): number {
  const text = { type: 'string' } as const;
  const options = {
    model: text,
    'verity-root': text,
    egress: text,
    operator: text,
    help: { type: 'boolean', short: 'h' },
  } as const;
  const { values, positionals } = parseArgs({ args: argv, options, allowPositionals: true, strict: true });
  if (values.help) {
    console.log(USAGE);
    return 0;
  }
  const [file] = positionals;
  if (file === undefined || positionals.length > 1) throw new TypeError('one COMPOSE is needed');
  const egress = EGRESS.find((one) => one === (values.egress ?? 'none'));
  if (egress === undefined) throw new TypeError(`--egress is one of ${EGRESS.join(', ')}`);
  try {
    const bytes = readFileSync(file);
    const services = servicesOf(bytes.toString());
    const launch: Launch = {
      images: imagesOf(services),
      compose_sha256: createHash('sha256').update(bytes).digest('hex'),
      model: { name: values.model ?? modelOf(services), verity_root: values['verity-root'] ?? null },
      egress,
      operator: values.operator ?? null,
    };
    const wrong = wrongMember(launch);
    if (wrong !== null) throw new LaunchError(`${wrong} is not what a launch file may hold`);
    const written = writeLaunch(launch);
    process.stdout.write(written);
    console.error(`sha256 ${createHash('sha256').update(written).digest('hex')}`);
    return 0;
  } catch (error) {
    console.error(`launch: ${file}: ${(error as Error).message}`);
    return 1;
  }
}

try {
  process.exitCode = run(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof TypeError)) throw error;
  console.error(`launch: ${error.message}\n\n${USAGE}`);
  process.exitCode = 2;
}
