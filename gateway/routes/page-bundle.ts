// Builds the page: bundles script and style under names that contain their hash, and the document that refers to them.
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';

export interface PageFile {
  /** `index.html`, `main-7XQ2ABCD.js` */
  readonly name: string;
  readonly body: Uint8Array;
}

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** @throws {Error} when esbuild, a development dependency, is not installed, or when the page does not build. */
export async function bundlePage(): Promise<PageFile[]> {
  const { build } = await import('esbuild');
  const { outputFiles } = await build({
    entryPoints: ['page/main.ts', 'page/style.css', 'page/icon.svg'],
    absWorkingDir: ROOT,
    outdir: 'build/page',
    entryNames: '[name]-[hash]',
    bundle: true,
    format: 'esm',
    platform: 'browser',
    // Every browser with P-384 in WebCrypto and BigInt supports this target.
    target: 'es2022',
    loader: { '.svg': 'copy' },
    minify: true,
    legalComments: 'none',
    write: false,
    logLevel: 'silent',
  });
  const assets = outputFiles.map(({ path, contents }) => ({ name: basename(path), body: contents }));
  let document = readFileSync(`${ROOT}page/index.html`, 'utf8');
  for (const { name } of assets) {
    const [, stem, extension] = /^(\w+)-\w+\.(\w+)$/.exec(name) ?? [];
    document = document.replace(`./${stem}.${extension === 'js' ? 'ts' : extension}`, `/page/assets/${name}`);
  }
  return [{ name: 'index.html', body: new TextEncoder().encode(document) }, ...assets];
}
