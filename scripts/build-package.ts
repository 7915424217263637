// `npm run make package`: compiles the npm package @countersign/verify into packages/verify/dist, and prints what a page loads of it.
import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { AUDITOR } from '../auditor/commands.ts';
import { manPage } from '../verify/cli/help.ts';
import { COMMANDS } from '../verify/cli/table.ts';

/** Of what a page loads to verify an attestation; what a processor's evidence and streams of named events need is loaded when there are some. */
export const MAX_GZIPPED_BYTES = 45 * 1024;

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const PACKAGE = fileURLToPath(new URL('../packages/verify', import.meta.url));
const TSC = fileURLToPath(new URL('../node_modules/typescript/bin/tsc', import.meta.url));

/** Gzipped bytes, by a bundler that splits. */
export interface Weight {
  /** What is loaded at once. */
  readonly first: number;
  /** What is loaded when it is needed: of `verifyAttestation`, what a processor's evidence and streams of named events need. */
  readonly later: number;
  /** What is loaded where the caller names a release, and by nobody else; Sigstore's root in it is a third. */
  readonly release: number;
}

/** What `./fetch` and `./sealed` may be together, the checks of a processor's evidence and of a launch file included: for a page that seals. */
export const MAX_SEALED_GZIPPED_BYTES = 94 * 1024;

const RELEASE = 'verify/release/check.ts';
const VERIFYING = "export { verifyAttestation } from './verify/attestation.ts';";
export const SEALING =
  "export { verifyingFetch } from './verify/clients/fetch.ts'; export { sealedFetch } from './verify/clients/sealed.ts';";

/** @param contents a module that exports what is weighed. @throws {Error} where a module of Node's is reached: platform `browser` has none. */
export async function weigh(contents = VERIFYING): Promise<Weight> {
  const { outputFiles, metafile } = await build({
    stdin: { contents, resolveDir: ROOT, loader: 'ts' },
    outdir: 'build',
    bundle: true,
    splitting: true,
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
  const outputs = Object.entries(metafile.outputs);
  const entry = outputs.find(([, { entryPoint }]) => entryPoint === '<stdin>')?.[1];
  const atOnce = new Set(entry?.imports.filter(({ kind }) => kind === 'import-statement').map(({ path }) => path));
  const weight = { first: 0, later: 0, release: 0 };
  for (const [path, output] of outputs) {
    const file = outputFiles.find((one) => basename(one.path) === basename(path));
    if (file === undefined) throw new Error(`esbuild gave no ${path}`);
    const first = output === entry || atOnce.has(path);
    const part = output.entryPoint === RELEASE ? 'release' : first ? 'first' : 'later';
    weight[part] += gzipSync(file.contents, { level: 9 }).length;
  }
  return weight;
}

/** The tarball, under a name without its version. */
function pack(): void {
  const build = `${ROOT}/build`;
  mkdirSync(build, { recursive: true });
  const { status, stdout } = spawnSync('npm', ['pack', '--silent', '--pack-destination', build], {
    cwd: PACKAGE,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  if (status !== 0) process.exit(status ?? 1);
  renameSync(`${build}/${stdout.trim()}`, `${build}/countersign-verify.tgz`);
}

async function main(): Promise<void> {
  rmSync(`${PACKAGE}/dist`, { recursive: true, force: true });
  const { status } = spawnSync(process.execPath, [TSC, '-p', PACKAGE], { stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
  chmodSync(`${PACKAGE}/dist/auditor/main.js`, 0o755);
  copyFileSync(`${ROOT}/LICENSE`, `${PACKAGE}/LICENSE`);
  mkdirSync(`${PACKAGE}/man`, { recursive: true });
  writeFileSync(`${PACKAGE}/man/countersign.1`, manPage([...COMMANDS, ...AUDITOR]));
  pack();
  const { first, later, release } = await weigh();
  console.log(
    `${PACKAGE.slice(dirname(dirname(PACKAGE)).length + 1)}: ${first} bytes gzipped to verify an attestation`,
  );
  console.log(
    `(the bar is ${MAX_GZIPPED_BYTES}), ${later} more for a processor's evidence and streams of named events`,
  );
  console.log(`${release} where the caller names a release`);
  const sealing = await weigh(SEALING);
  const sealed = sealing.first + sealing.later;
  console.log(`${sealed} for ./fetch and ./sealed together (the bar is ${MAX_SEALED_GZIPPED_BYTES})`);
  if (first > MAX_GZIPPED_BYTES || sealed > MAX_SEALED_GZIPPED_BYTES) process.exitCode = 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main();
