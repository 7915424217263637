// GET /docs: the OpenAPI document as a page of HTML and CSS alone. What it says is all there for the browser's own search; nothing is loaded.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Context } from '../../http/context.ts';
import { type SharedDocument, sendDocument, sharedDocument } from '../../http/document.ts';
import { type Document, htmlPage } from './docs-page.ts';
import { buildDocument } from './openapi.ts';

interface Page {
  readonly document: SharedDocument;
  readonly headers: Record<string, string>;
}

let cached: Page | null = null;

export function docs(c: Context): Response {
  const { document, headers } = docsPage();
  return sendDocument(c, document, headers);
}

/** Built once in a process: it takes 60 ms. */
export function docsPage(): Page {
  cached ??= buildPage();
  return cached;
}

function buildPage(): Page {
  const style = readFileSync(new URL('docs.css', import.meta.url), 'utf8');
  // Through JSON, so that it is exactly what /openapi.json has.
  const document = JSON.parse(JSON.stringify(buildDocument())) as Document;
  return {
    document: sharedDocument('text/html; charset=utf-8', htmlPage(document, style)),
    headers: securityHeaders(style),
  };
}

/** The page has no script and loads nothing: only its own style, by its hash, and the icon that it carries. */
const securityHeaders = (style: string) => ({
  'content-security-policy': [
    "default-src 'none'",
    `style-src 'sha256-${createHash('sha256').update(style).digest('base64')}'`,
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; '),
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
});
