// GET / and its assets: the page, under a content security policy that lets it load from and connect to this gateway only.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Plugin } from 'esbuild';
import type { Sidecar } from '../attestation/interfaces.ts';
import type { Canary } from '../backend/backend.ts';
import type { BackendProbe } from '../backend/probe.ts';
import { type GatewayConfig, hasKeys } from '../base/config.ts';
import { Problem } from '../base/problem.ts';
import type { Context } from '../http/context.ts';
import { documentSecurity, type SharedDocument, sendDocument, sharedDocument } from '../http/document.ts';
import type { SealingKeys } from '../sealing/sealing-keys.ts';

const SECURITY = documentSecurity(["script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'"]);

/** Other sites show the badge in a frame. Its only control is a link. */
const BADGE_SECURITY = {
  ...SECURITY,
  'content-security-policy': SECURITY['content-security-policy'].replace("frame-ancestors 'none'", 'frame-ancestors *'),
  'cross-origin-resource-policy': 'cross-origin',
};

interface Page {
  document(c: Context): Promise<Response>;
  /** The document that other sites show in a frame. */
  badge(c: Context): Promise<Response>;
  asset(c: Context): Promise<Response>;
}

/** Loads the page on the first request, so that a gateway without visitors reads no files. */
export function createPage(load: () => Promise<Assets> = loadAssets): Page {
  let loading: Promise<Assets> | null = null;
  const assets = () => {
    loading ??= load().catch((error) => {
      loading = null;
      throw error;
    });
    return loading;
  };
  return {
    async document(c) {
      return send(c, (await assets()).get('index.html'), SECURITY);
    },
    async badge(c) {
      return send(c, (await assets()).get('badge.html'), BADGE_SECURITY);
    },
    async asset(c) {
      const name = c.req.param('asset') ?? '';
      const found = name.endsWith('.html') ? undefined : (await assets()).get(name);
      return send(c, found, { ...SECURITY, 'cache-control': 'public, max-age=31536000, immutable' });
    },
  };
}

function send(c: Context, asset: SharedDocument | undefined, headers: Record<string, string>): Response {
  if (asset === undefined) throw new Problem('not_found', 'There is no such part of the page.');
  return sendDocument(c, asset, headers);
}

// GET /page/service: data for the page, to use the service and to check its attestations. Nothing in it is secret.

interface ServiceDeps {
  readonly config: GatewayConfig;
  readonly sidecar: Sidecar;
  readonly canary: Canary;
  readonly sealing: SealingKeys | null;
  readonly version: string;
}

export function service({ sidecar, config, version, canary, sealing }: ServiceDeps, probe: BackendProbe) {
  return async (c: Context): Promise<Response> => {
    const backend = await probe();
    const { state, hello, unavailable } = sidecar;
    return c.json({
      version,
      key_required: hasKeys(config),
      sealing: {
        mode: config.sealed,
        available: (sealing?.published(sidecar.session?.statement ?? null) ?? null) !== null,
      },
      backend: { ...backend, canary: { state: canary.result.state } },
      sidecar: {
        status: state,
        attester: hello?.attester ?? null,
        devices: hello?.devices ?? [],
        trouble: unavailable,
      },
      /** PEM. A simulated sidecar that is not allowed is refused before its hello is stored. */
      simulated_root: hello?.simulated?.root ?? null,
      token_keys: hello?.token_keys ?? null,
    });
  };
}

// The page's files in memory: read from build/page when they are built, or bundled once when esbuild is installed.

export interface PageFile {
  /** `index.html`, `main-7XQ2ABCD.js` */
  readonly name: string;
  readonly body: Uint8Array;
}

/** Assets by file name. The document is `index.html`. */
type Assets = ReadonlyMap<string, SharedDocument>;

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const BUILT = join(ROOT, 'build/page');
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** @throws {Problem} page_unavailable */
async function loadAssets(): Promise<Assets> {
  const files = built() ?? (await bundled());
  return new Map(files.map(({ name, body }) => [name, sharedDocument(TYPES[extname(name)] ?? '', body)]));
}

function built(): PageFile[] | null {
  try {
    return readdirSync(BUILT)
      .filter((name) => extname(name) in TYPES)
      .map((name) => ({ name, body: readFileSync(join(BUILT, name)) }));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

async function bundled(): Promise<PageFile[]> {
  try {
    return await bundlePage();
  } catch (cause) {
    const message = 'The page has not been built: "npm run make page" makes it. The API at /v1 works without it.';
    throw new Problem('page_unavailable', message, { cause });
  }
}

/**
 * Builds the page: bundles script and style under names that contain their hash, and the document that refers to them.
 * @throws {Error} when esbuild, a development dependency, is not installed, or when the page does not build.
 */
export async function bundlePage(): Promise<PageFile[]> {
  const { build } = await import('esbuild');
  const { outputFiles } = await build({
    entryPoints: ['page/main.ts', 'page/style.css', 'page/icon.svg', 'page/badge/badge.ts', 'page/badge/badge.css'],
    absWorkingDir: ROOT,
    outdir: 'build/page',
    entryNames: '[name]-[hash]',
    bundle: true,
    // The checks of a processor's evidence are a separate chunk, loaded for an attestation with such evidence.
    splitting: true,
    chunkNames: '[name]-[hash]',
    format: 'esm',
    platform: 'browser',
    // Every browser with P-384 in WebCrypto and BigInt supports this target.
    target: 'es2022',
    loader: { '.svg': 'copy' },
    minify: true,
    plugins: [NOTICES],
    legalComments: 'eof',
    write: false,
    logLevel: 'silent',
  });
  const assets = outputFiles.map(({ path, contents }) => ({ name: basename(path), body: contents }));
  return [
    document('index.html', 'page/index.html', assets),
    document('badge.html', 'page/badge/badge.html', assets),
    ...assets,
  ];
}

/** Puts the licence of each package beside its code, as that licence asks. */
const NOTICES: Plugin = {
  name: 'notices',
  setup({ onLoad }) {
    onLoad({ filter: /\.m?js$/ }, ({ path }) =>
      path.includes('node_modules')
        ? { contents: `/*! ${noticeOf(path)} */\n${readFileSync(path, 'utf8')}`, loader: 'js' }
        : undefined,
    );
  },
};

/** Name, version and licence of the package that a file belongs to. */
function noticeOf(path: string): string {
  let folder = dirname(path);
  while (!existsSync(join(folder, 'package.json'))) folder = dirname(folder);
  const { name, version } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const licence = readdirSync(folder).find((file) => /^licen[cs]e/i.test(file));
  const text = licence === undefined ? '' : readFileSync(join(folder, licence), 'utf8').replaceAll('*/', '* /').trim();
  return `${name} ${version}\n${text}\n`;
}

/** Returns a document in which names of sources, such as `./main.ts`, are replaced by the paths of their assets. */
function document(name: string, path: string, assets: readonly PageFile[]): PageFile {
  let text = readFileSync(`${ROOT}${path}`, 'utf8');
  for (const asset of assets) {
    const [, stem, extension] = /^(\w+)-\w+\.(\w+)$/.exec(asset.name) ?? [];
    text = text.replace(`./${stem}.${extension === 'js' ? 'ts' : extension}`, `/page/assets/${asset.name}`);
  }
  return { name, body: new TextEncoder().encode(text) };
}
