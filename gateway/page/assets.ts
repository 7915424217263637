// The page's files in memory: from build/page where they were built, bundled once where esbuild is installed.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { Problem } from '../problem.ts';
import { bundlePage, type PageFile } from './bundle.ts';

export interface Asset {
  readonly type: string;
  readonly body: Uint8Array<ArrayBuffer>;
  readonly gzipped: Uint8Array<ArrayBuffer>;
  /** Quoted, as the header has it. */
  readonly etag: string;
}

/** By file name; the document is `index.html`. */
export type Assets = ReadonlyMap<string, Asset>;

const BUILT = fileURLToPath(new URL('../../build/page', import.meta.url));
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** @throws {Problem} page_unavailable */
export async function loadAssets(folder: string = BUILT): Promise<Assets> {
  const files = built(folder) ?? (await bundled());
  return new Map(files.map(({ name, body }) => [name, asset(name, body)]));
}

function built(folder: string): PageFile[] | null {
  try {
    return readdirSync(folder)
      .filter((name) => extname(name) in TYPES)
      .map((name) => ({ name, body: readFileSync(join(folder, name)) }));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

async function bundled(): Promise<PageFile[]> {
  try {
    return await bundlePage();
  } catch (cause) {
    const message = 'The page has not been built: "npm run build:page" makes it. The API at /v1 works without it.';
    throw new Problem('page_unavailable', message, { cause });
  }
}

function asset(name: string, bytes: Uint8Array): Asset {
  const body = new Uint8Array(bytes);
  const etag = `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"`;
  return { type: TYPES[extname(name)] ?? '', body, gzipped: new Uint8Array(gzipSync(body, { level: 9 })), etag };
}
