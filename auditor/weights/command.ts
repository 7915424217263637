// `countersign weights`: makes a folder of weights the volume that a launch file names by its root hash, or makes it again and compares.
import { existsSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { WEIGHTS_NAME } from '../../proto/attestation/launch.ts';
import { type Arguments, fileIn, type OwnCommand } from '../../verify/cli/args.ts';
import { readText, UsageError } from '../../verify/cli/input.ts';
import type { FileDigest } from './tar.ts';
import { IMAGE, makeVolume, TREE, type Volume } from './volume.ts';

export const WEIGHTS: OwnCommand = {
  name: 'weights',
  operands: 'DIR',
  text: 'make a folder of weights one volume with a root hash that a launch file can name',
  options: [
    { name: 'name', value: 'NAME', text: 'ORG/MODEL@REVISION, which the guest must name as well to open the volume' },
    { name: 'out', short: 'o', value: 'OUT', text: `a new folder: ${IMAGE}, ${TREE} and weights.json` },
    { name: 'check', value: 'FILE', text: 'make the volume of this weights.json again, compare, and keep nothing' },
  ],
  examples: [
    'countersign weights DIR --name ORG/MODEL@REVISION -o weights',
    'countersign weights DIR --check weights/weights.json',
  ],
  run: weights,
};

const INFO = 'weights.json';
type Env = Parameters<OwnCommand['run']>[1];

/** Between two lines of progress. */
const PROGRESS_MS = 10_000;
const SHOWN = 10;

/** What weights.json holds. */
interface Info extends Volume {
  readonly version: 1;
  readonly name: string;
  readonly revision: string;
}

async function weights(args: Arguments, env: Env): Promise<number> {
  const folder = fileIn(args.operands, WEIGHTS);
  const { name, out, check } = args.values as { name?: string; out?: string; check?: string };
  if (check !== undefined) {
    if (name !== undefined || out !== undefined)
      throw new UsageError('--check takes the name from FILE, and keeps nothing');
    return compare(folder, readInfo(check), dirname(resolve(check)), env);
  }
  if (name === undefined || !WEIGHTS_NAME.test(name)) throw new UsageError('weights needs --name ORG/MODEL@REVISION');
  if (out === undefined) throw new UsageError('weights needs -o OUT');
  if (existsSync(out)) throw new UsageError(`${out}: is there already`);
  const { verity_root } = await inside(dirname(resolve(out)), async (work) => {
    const volume = await makeVolume({ folder, name, env, onBytes: progress() }, work);
    const info: Info = { version: 1, name, revision: name.slice(name.indexOf('@') + 1), ...volume };
    writeFileSync(join(work, INFO), `${JSON.stringify(info, null, 2)}\n`);
    renameSync(work, out);
    return info;
  });
  console.log(verity_root);
  return 0;
}

/** Runs `make` in a new folder below `parent`, and leaves nothing of it unless `make` renames it. */
async function inside<T>(parent: string, make: (work: string) => Promise<T>): Promise<T> {
  let work: string;
  try {
    work = mkdtempSync(join(parent, '.weights-'));
  } catch {
    throw new UsageError(`${parent}: no folder can be made there`);
  }
  const remove = () => rmSync(work, { recursive: true, force: true });
  const stop = (signal: NodeJS.Signals) => {
    remove();
    process.exit(signal === 'SIGINT' ? 130 : 143);
  };
  process.once('SIGINT', stop).once('SIGTERM', stop);
  try {
    return await make(work);
  } finally {
    process.off('SIGINT', stop).off('SIGTERM', stop);
    remove();
  }
}

/** Says how far it is, once it takes long. */
function progress(): (read: number, of: number) => void {
  let said = Date.now();
  const gigabytes = (bytes: number) => (bytes / 1e9).toFixed(1);
  return (read, of) => {
    if (Date.now() - said < PROGRESS_MS) return;
    said = Date.now();
    console.error(`weights: ${gigabytes(read)} of ${gigabytes(of)} GB read`);
  };
}

/** @throws {UsageError} */
function readInfo(file: string): Info {
  const wrong = new UsageError(`${file}: not what countersign weights wrote`);
  let info: Info;
  try {
    info = JSON.parse(readText(file)) as Info;
  } catch (error) {
    throw error instanceof UsageError ? error : wrong;
  }
  const { version, name, verity_root, files, tools } = (info ?? {}) as Partial<Info>;
  const isInfo =
    version === 1 &&
    WEIGHTS_NAME.test(name ?? '') &&
    /^[0-9a-f]{64}$/.test(verity_root ?? '') &&
    typeof tools === 'object' &&
    Array.isArray(files) &&
    files.every((one: FileDigest | null) => typeof one?.path === 'string' && typeof one.sha256 === 'string');
  if (!isInfo) throw wrong;
  return info;
}

/** @returns the exit status */
async function compare(folder: string, info: Info, parent: string, env: Env): Promise<number> {
  const options = { folder, name: info.name, env, onBytes: progress() };
  const made = await inside(parent, (work) => makeVolume(options, work));
  const differences = differencesOf(info, made);
  if (made.verity_root === info.verity_root && differences.length === 0) {
    console.log(`${made.verity_root}\nthe same: ${info.name}`);
    return 0;
  }
  console.log(`${made.verity_root}\nnot the root of ${info.name} in the file: ${info.verity_root}`);
  for (const line of differences.slice(0, SHOWN)) console.log(line);
  if (differences.length > SHOWN) console.log(`and ${differences.length - SHOWN} more`);
  return 1;
}

function differencesOf(info: Info, made: Volume): string[] {
  const digests = (files: readonly FileDigest[]) => new Map(files.map(({ path, sha256 }) => [path, sha256]));
  const [before, now] = [digests(info.files), digests(made.files)];
  const paths = [...new Set([...before.keys(), ...now.keys()])].filter((path) => before.get(path) !== now.get(path));
  const files = paths.map((path) => {
    const how = !now.has(path) ? 'missing' : before.has(path) ? 'other bytes' : 'not in the file';
    return `${JSON.stringify(path)}: ${how}`;
  });
  const tools = Object.entries(made.tools)
    .filter(([tool, version]) => info.tools[tool] !== version)
    .map(([tool, version]) => `${tool} was ${JSON.stringify(info.tools[tool] ?? null)}, and is ${version} here`);
  // Other programs matter where the image they made is another.
  return made.verity_root === info.verity_root ? files : [...files, ...tools];
}
