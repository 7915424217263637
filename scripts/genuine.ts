// `npm run make genuine`: brings the genuine evidence that tests read into .cache/genuine, from the folder in GENUINE_VECTORS, else from its
// public sources, and checks each file's SHA-256. Exit status: 0 where nothing that could be brought is missing, else 1.
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CACHE, type GenuineVector, genuineVectors, NAMED_FOLDER } from '../test/support/vectors.ts';

const TIMEOUT_MS = 30_000;
const MAX_BYTES = 4 * 2 ** 20;

export const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

/** `google/go-sev-guest@af1c107:verify/trust/x.pem` on GitHub. */
export function addressOf(source: string): string {
  const [, repository, commit, path] = /^([\w.-]+\/[\w.-]+)@([0-9a-f]+):(.+)$/.exec(source) ?? [];
  if (path === undefined) throw new Error(`${source}: not repository@commit:path`);
  return `https://raw.githubusercontent.com/${repository}/${commit}/${path}`;
}

/** Makes a vector of the bytes of its source. @throws {Error} for a step that there is not, or that does not fit. */
export function derive(source: Uint8Array, steps: readonly string[] = []): Uint8Array {
  return steps.reduce(step, source);
}

function step(bytes: Uint8Array, step: string): Uint8Array {
  const [name = '', ...words] = step.split(' ');
  const text = () => Buffer.from(bytes).toString();
  if (name === 'hex' || name === 'base64' || name === 'base64url')
    return Buffer.from(text().replace(/\s|^0x/g, ''), name);
  if (name === 'first') return bytes.subarray(0, Number(words[0]));
  if (name === 'member') return Buffer.from(String(JSON.parse(text())[words[0] ?? '']));
  if (name === 'entries') return Buffer.from(`${JSON.stringify(withMembers(JSON.parse(text()), words), null, 2)}\n`);
  throw new Error(`no step ${step}`);
}

const withMembers = (entries: Record<string, unknown>[], names: readonly string[]) =>
  entries.map((entry) => Object.fromEntries(names.map((name) => [name, entry[name]])));

async function fetched(vector: GenuineVector): Promise<Uint8Array> {
  const [source = ''] = vector.source;
  const response = await fetch(addressOf(source), { signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (!response.ok) throw new Error(`${response.url}: ${response.status}`);
  const bytes = new Uint8Array(await response.arrayBuffer());
  if (bytes.length > MAX_BYTES) throw new Error(`${response.url}: more than ${MAX_BYTES} bytes`);
  return derive(bytes, vector.steps);
}

/** The bytes of it, checked; null: only a folder can have it. @throws {Error} */
async function bring(vector: GenuineVector, from: string | null): Promise<Uint8Array | null> {
  if (from === null && vector.by_hand !== undefined) return null;
  const bytes = from === null ? await fetched(vector) : readFileSync(join(from, vector.path));
  if (sha256(bytes) !== vector.sha256) throw new Error('its SHA-256 is not the one of genuine.json');
  return bytes;
}

const isThere = ({ path, sha256: hash }: GenuineVector, into: string) =>
  existsSync(join(into, path)) && sha256(readFileSync(join(into, path))) === hash;

/** What was brought, what only a folder can have, and why anything else is missing. */
export async function bringAll(vectors: readonly GenuineVector[], from: string | null, into: string) {
  const [byHand, failures]: [string[], string[]] = [[], []];
  for (const vector of vectors.filter((one) => !isThere(one, into))) {
    try {
      const bytes = await bring(vector, from);
      if (bytes === null) byHand.push(vector.path);
      else write(join(into, vector.path), bytes);
    } catch (error) {
      failures.push(`${vector.path}: ${wordsOf(error)}`);
      // Without a network the others would fail as this one.
      if (error instanceof TypeError) break;
    }
  }
  return { byHand, failures };
}

function wordsOf(error: unknown): string {
  if (!(error instanceof TypeError)) return (error as Error).message;
  return 'raw.githubusercontent.com cannot be reached; GENUINE_VECTORS=FOLDER takes the files from a folder';
}

function write(path: string, bytes: Uint8Array): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, bytes);
}

if (import.meta.main) {
  const vectors = genuineVectors();
  const { byHand, failures } = await bringAll(vectors, NAMED_FOLDER, CACHE);
  for (const line of failures) console.error(line);
  const there = vectors.filter((one) => isThere(one, CACHE)).length;
  console.log(`${there} of ${vectors.length} files are in .cache/genuine, their hashes checked`);
  if (byHand.length > 0 && failures.length === 0)
    console.log(
      `${byHand.length} have no address of their own (test/support/genuine.json says why): GENUINE_VECTORS=FOLDER npm run make genuine takes them from a folder. Until then tests leave out what is genuine.`,
    );
  process.exitCode = failures.length > 0 ? 1 : 0;
}
