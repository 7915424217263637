// The verifier as one ES module for a page.
import { builtinModules } from 'node:module';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

/** @throws {Error} where a module of Node's is reached, or something that replaces one. */
export async function bundleVerifier(): Promise<string> {
  const { outputFiles, metafile } = await build({
    entryPoints: [fileURLToPath(new URL('verifier.ts', import.meta.url))],
    bundle: true,
    format: 'esm',
    platform: 'browser',
    // What runs WebCrypto with P-384 and BigInt runs this too.
    target: 'es2022',
    minify: true,
    metafile: true,
    write: false,
    logLevel: 'silent',
  });
  for (const input of Object.keys(metafile.inputs))
    if (isNodes(input)) throw new Error(`the browser's verifier reaches ${input}, which is Node's`);
  const [file] = outputFiles;
  if (file === undefined) throw new Error('esbuild gave no bundle');
  return file.text;
}

/** Under its own name, or as a package of that name: `node_modules/buffer/index.js`. */
function isNodes(input: string): boolean {
  const name = /(?:^|.*\/)node_modules\/(@[^/]+\/[^/]+|[^/]+)/.exec(input)?.[1];
  return input.startsWith('node:') || input.startsWith('(disabled):') || builtinModules.includes(name ?? '');
}
