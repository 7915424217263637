// GET /docs: the OpenAPI document as one page of HTML and CSS. It loads nothing, and the browser's search finds all of its text.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Context } from '../../http/context.ts';
import { documentSecurity, type SharedDocument, sendDocument, sharedDocument } from '../../http/document.ts';
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
  // Serialized and parsed, so that it equals /openapi.json.
  const document = JSON.parse(JSON.stringify(buildDocument())) as Document;
  return {
    document: sharedDocument('text/html; charset=utf-8', htmlPage(document, style)),
    headers: securityHeaders(style),
  };
}

/** Allows only the inline style, by its hash, and the inline icon: the page has no script and loads nothing. */
const securityHeaders = (style: string) =>
  documentSecurity([`style-src 'sha256-${createHash('sha256').update(style).digest('base64')}'`, 'img-src data:']);
