// GET / and what it names: the page, under a policy by which it can load nothing and reach nobody but this gateway.
import type { Context } from '../context.ts';
import { Problem } from '../problem.ts';
import { type Asset, type Assets, loadAssets } from './assets.ts';

const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  // No text can become markup or script.
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ');

const SECURITY = {
  'content-security-policy': POLICY,
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
};

export interface Page {
  document(c: Context): Promise<Response>;
  asset(c: Context): Promise<Response>;
}

/** Loads on the first request, so that a gateway nobody looks at reads nothing. */
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
      return answer(c, (await assets()).get('index.html'), 'no-cache');
    },
    async asset(c) {
      const name = c.req.param('asset') ?? '';
      const found = name === 'index.html' ? undefined : (await assets()).get(name);
      return answer(c, found, 'public, max-age=31536000, immutable');
    },
  };
}

function answer(c: Context, asset: Asset | undefined, cacheControl: string): Response {
  if (asset === undefined) throw new Problem('not_found', 'There is no such part of the page.');
  const { type, body, gzipped, etag } = asset;
  const headers = { ...SECURITY, 'cache-control': cacheControl, vary: 'accept-encoding', etag };
  if (c.req.header('if-none-match')?.includes(etag)) return c.body(null, 304, headers);
  const zip = /\bgzip\b/.test(c.req.header('accept-encoding') ?? '');
  return c.body(zip ? gzipped : body, 200, {
    ...headers,
    'content-type': type,
    ...(zip ? { 'content-encoding': 'gzip' } : {}),
  });
}
