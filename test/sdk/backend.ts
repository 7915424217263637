// A backend for the tests of OpenAI's own clients: it answers each route of the API with the least that its types allow.
import { type Backend, chatStream, type Script, startBackend } from '../support/backend.ts';
import { namedStream, responseEvents } from '../support/named-streams.ts';

/** As routes.py prints it. */
export interface Route {
  readonly method: string;
  /** A template, with the query that tells it from another: `/responses/{response_id}?beta=true`. */
  readonly path: string;
  readonly kind: 'json' | 'bytes' | 'nothing';
  readonly body?: unknown;
}

export function startApi(routes: readonly Route[]): Promise<Backend> {
  // `/threads/runs` before `/threads/{thread_id}`.
  const known = routes
    .toSorted((a, b) => placeholders(a.path) - placeholders(b.path))
    .map((route) => ({ ...route, pattern: patternOf(route.path) }));
  return startBackend((request, response) => {
    const url = request.url.replace(/^\/v1/, '');
    const path = url.includes('beta=true') ? `${url.split('?')[0]}?beta=true` : (url.split('?')[0] ?? '');
    const route = known.find(({ method, pattern }) => method === request.method && pattern.test(path));
    if (isStreamed(request.body) || url.includes('stream=true')) return streamOf(path)(request, response);
    if (route === undefined) response.writeHead(404, JSON_TYPE).end('{"error":{"message":"no such route"}}');
    else if (route.kind === 'nothing') response.writeHead(204).end();
    else if (route.kind === 'bytes') response.writeHead(200, { 'content-type': 'application/octet-stream' }).end('\0');
    else response.writeHead(200, JSON_TYPE).end(JSON.stringify(route.body));
  });
}

const JSON_TYPE = { 'content-type': 'application/json' };

const placeholders = (path: string): number => path.split('{').length - 1;

const patternOf = (path: string): RegExp => new RegExp(`^${path.replace('?', '\\?').replace(/\{\w+\}/g, '[^/?]+')}$`);

const isStreamed = (body: string): boolean => /"stream":\s*true/.test(body) || /name="stream"\s+true/.test(body);

const streamOf = (path: string): Script =>
  path.startsWith('/responses') ? namedStream(responseEvents(['Hello.'])) : chatStream(['Hello.']);
