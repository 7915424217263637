// Makes the volume: one read-only file system (EROFS) and its hash tree (dm-verity), by the programs that Debian 13 has for them.
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { UsageError } from '../../verify/cli/input.ts';
import { type Entry, listFolder } from './folder.ts';
import { type FileDigest, tarOf } from './tar.ts';

export const IMAGE = 'weights.erofs';
export const TREE = 'weights.verity';

/** What the name and the files determine, and by which programs. */
export interface Volume {
  readonly verity_root: string;
  readonly sizes: { readonly files: number; readonly image: number; readonly tree: number };
  readonly parameters: Parameters;
  readonly tools: Readonly<Record<string, string>>;
  readonly files: readonly FileDigest[];
}

/** As Tinfoil's Modelwrap has them: the same files under the same name have the same root there. */
interface Parameters {
  readonly file_system: 'erofs';
  readonly uuid: string;
  readonly hash: 'sha256';
  readonly block: 4096;
  readonly salt: string;
}

const BLOCK = 4096;
/** Older ones write another image, or do not read tar. */
const LEAST_EROFS = [1, 8, 6];
const WHERE = 'Debian 13 has both programs: apt-get install erofs-utils cryptsetup-bin';

/** The namespace of URLs (RFC 9562, §6.6). */
const URLS = Buffer.from('6ba7b8119dad11d180b400c04fd430c8', 'hex');

function parametersOf(name: string): Parameters {
  const hash = createHash('sha1').update(URLS).update(`${name}-inner`).digest().subarray(0, 16);
  hash[6] = ((hash[6] ?? 0) & 0x0f) | 0x50;
  hash[8] = ((hash[8] ?? 0) & 0x3f) | 0x80;
  const uuid = hash.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
  // The guest makes the salt of the name in its launch file: a volume opens under its own name alone.
  const salt = createHash('sha256').update(name).digest('hex');
  return { file_system: 'erofs', uuid, hash: 'sha256', block: BLOCK, salt };
}

type Env = Readonly<Record<string, string | undefined>>;

export interface VolumeOptions {
  readonly folder: string;
  readonly name: string;
  readonly env: Env;
  /** While files are read: how many bytes of how many. */
  readonly onBytes: (read: number, of: number) => void;
}

/** @param into an empty folder: mkfs.erofs keeps what it reads there until the image is written. @throws {UsageError} */
export async function makeVolume({ folder, name, env, onBytes }: VolumeOptions, into: string): Promise<Volume> {
  const run = runner({ ...env, LC_ALL: 'C', PATH: `${env.PATH ?? ''}:/usr/sbin:/sbin`, TMPDIR: into });
  const tools = { 'mkfs.erofs': await erofsVersion(run), veritysetup: await veritysetupVersion(run) };
  const parameters = parametersOf(name);
  const entries = listFolder(folder);
  const total = entries.reduce((sum, { size }) => sum + size, 0);
  const files: FileDigest[] = [];
  let read = 0;
  const counted = async function* () {
    for await (const bytes of tarOf(entries, (file) => files.push(file))) {
      yield bytes;
      read += bytes.length;
      onBytes(Math.min(read, total), total);
    }
  };
  const image = join(into, IMAGE);
  const tree = join(into, TREE);
  const mkfs = ['--quiet', `-b${BLOCK}`, '-x-1', '-T0', `-U${parameters.uuid}`, '--all-root', '--tar=f', image];
  await run('mkfs.erofs', mkfs, counted());
  refuseChange(folder, entries);
  const verity = [
    ...['format', '--format=1', '--hash=sha256', `--data-block-size=${BLOCK}`, `--hash-block-size=${BLOCK}`],
    ...[`--salt=${parameters.salt}`, `--uuid=${parameters.uuid}`, image, tree],
  ];
  const [, verity_root] = /^Root hash:\s*([0-9a-f]{64})$/m.exec(await run('veritysetup', verity)) ?? [];
  if (verity_root === undefined) throw new UsageError('veritysetup printed no root hash');
  const sizes = { files: total, image: statSync(image).size, tree: statSync(tree).size };
  return { verity_root, sizes, parameters, tools, files };
}

/** @throws {UsageError} */
function refuseChange(folder: string, before: readonly Entry[]): void {
  const keyOf = ({ path, real, isFolder, stamp }: Entry) => [path, real, isFolder ? '' : stamp].join('\0');
  const after = new Set(listFolder(folder).map(keyOf));
  const changed = before.find((entry) => !after.has(keyOf(entry)));
  if (changed !== undefined || after.size !== before.length)
    throw new UsageError(`${folder}: changed while it was read${changed === undefined ? '' : `: ${changed.path}`}`);
}

/** @throws {UsageError} for one that is missing, or older than what the image's bytes are defined by. */
async function erofsVersion(run: Run): Promise<string> {
  const [version = 'of no version'] = /\d+\.\d+(\.\d+)?/.exec(await run('mkfs.erofs', ['-V'])) ?? [];
  const numbers = version.split('.').map(Number);
  const parts = LEAST_EROFS.findIndex((least, i) => (numbers[i] ?? 0) !== least);
  if (parts >= 0 && !((numbers[parts] ?? 0) > (LEAST_EROFS[parts] ?? 0)))
    throw new UsageError(
      `mkfs.erofs is ${version}, and makes another image than ${LEAST_EROFS.join('.')} and newer ones`,
      WHERE,
    );
  return version;
}

async function veritysetupVersion(run: Run): Promise<string> {
  const [version] = /\d+\.\d+(\.\d+)?/.exec(await run('veritysetup', ['--version'])) ?? [];
  if (version === undefined) throw new UsageError('veritysetup says no version', WHERE);
  return version;
}

/** Runs a program. @returns what it printed. @throws {UsageError} when it is missing or fails; what `input` throws. */
type Run = (command: string, args: readonly string[], input?: AsyncIterable<Buffer>) => Promise<string>;

const runner =
  (env: Env): Run =>
  (command, args, input = Readable.from([])) =>
    run(spawn(command, args, { env, stdio: 'pipe' }), command, input);

async function run(
  child: ChildProcessWithoutNullStreams,
  command: string,
  input: AsyncIterable<Buffer>,
): Promise<string> {
  let printed = '';
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    printed += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-500);
  });
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('close', resolve);
    child.once('error', () => reject(new UsageError(`${command} is not installed`, WHERE)));
  });
  try {
    const fed = pipeline(Readable.from(input, { objectMode: true }), child.stdin);
    // A program that ends early closes its input: its own words say why.
    const [status] = await Promise.all([ended, fed.catch(rethrowOwn)]);
    if (status === 0) return printed;
    const line = said.trim().split('\n').at(-1) ?? '';
    throw new UsageError(`${command} ended with ${status ?? 'a signal'}: ${line}`);
  } catch (error) {
    child.kill('SIGKILL');
    await ended.catch(() => null);
    throw error;
  }
}

function rethrowOwn(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EPIPE' && error.code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
}
