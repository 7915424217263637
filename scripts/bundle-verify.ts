// Bundles the verifier for browsers: one ES module, minified, with nothing of Node's in it, and small enough for a page.
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { dirname, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

export const MAX_GZIPPED_BYTES = 66 * 1024;

export interface Bundle {
  readonly code: string;
  readonly bytes: number;
  readonly gzippedBytes: number;
  /** Bytes in the bundle by folder or package, the largest first. */
  readonly parts: readonly (readonly [part: string, bytes: number])[];
}

const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** @throws {Error} where a module of Node's is reached, or something that replaces one. */
export async function bundleVerify(): Promise<Bundle> {
  const { outputFiles, metafile } = await build({
    entryPoints: ['verify/index.ts'],
    absWorkingDir: ROOT,
    bundle: true,
    format: 'esm',
    platform: 'browser',
    // What runs WebCrypto with P-384 and BigInt runs this too.
    target: 'es2022',
    minify: true,
    legalComments: 'none',
    metafile: true,
    write: false,
    logLevel: 'silent',
  });
  const [file] = outputFiles;
  const [output] = Object.values(metafile.outputs);
  if (file === undefined || output === undefined) throw new Error('esbuild gave no bundle');
  const inputs = Object.keys(metafile.inputs);
  for (const input of inputs)
    if (isNodes(input)) throw new Error(`the browser's verifier reaches ${input}, which is Node's`);
  const parts = new Map<string, number>();
  for (const [input, { bytesInOutput }] of Object.entries(output.inputs))
    parts.set(partOf(input), (parts.get(partOf(input)) ?? 0) + bytesInOutput);
  return {
    code: file.text,
    bytes: file.contents.length,
    gzippedBytes: gzipSync(file.contents, { level: 9 }).length,
    parts: [...parts].sort(([, a], [, b]) => b - a),
  };
}

/** Under its own name, or as a package of that name: `node_modules/buffer/index.js`. */
function isNodes(input: string): boolean {
  const name = /(?:^|.*\/)node_modules\/(@[^/]+\/[^/]+|[^/]+)/.exec(input)?.[1];
  return input.startsWith('node:') || input.startsWith('(disabled):') || builtinModules.includes(name ?? '');
}

const partOf = (input: string) =>
  /(?:.*\/)?node_modules\/(@[^/]+\/[^/]+|[^/]+)/.exec(input)?.[1] ?? `${dirname(input)}/`;

/** `node scripts/bundle-verify.ts [FILE]`: prints the size, and writes the bundle where FILE is given. */
async function main(): Promise<void> {
  const { code, bytes, gzippedBytes, parts } = await bundleVerify();
  const file = process.argv[2];
  if (file !== undefined) {
    if (!existsSync(dirname(file))) mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, code);
  }
  for (const [part, size] of parts) console.log(`${String(size).padStart(8)}  ${part}`);
  console.log(`${String(bytes).padStart(8)}  ${file === undefined ? 'in all' : relative(process.cwd(), file)}`);
  console.log(`${String(gzippedBytes).padStart(8)}  gzipped; the bar is ${MAX_GZIPPED_BYTES}`);
  if (gzippedBytes > MAX_GZIPPED_BYTES) process.exitCode = 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main();
