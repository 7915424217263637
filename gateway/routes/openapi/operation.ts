// The operators' routes in /openapi.json, and the pages.
import { VERSION } from '../../base/config.ts';
import { errorResponses } from './errors.ts';
import { RATES } from './headers.ts';
import { type Examples, fixed, JSON_TYPE, OPEN, response, schemaRef } from './parts.ts';

const html = (description: string, title: string) =>
  fixed(
    description,
    'text/html',
    { type: 'string', description: 'HTML' },
    'Its beginning',
    `<!doctype html><html lang="en"><head><title>${title}</title>`,
    ['etag'],
  );

export function operationPaths(examples: Examples) {
  const open = errorResponses('open');
  const get = (operationId: string, summary: string, responses: object) => ({
    get: { operationId, summary, tags: ['Operation'], ...OPEN, responses },
  });
  const health = (description: string, status: number) =>
    response(examples, 'health', description, { [JSON_TYPE]: schemaRef('Health') }, [], status);
  return {
    '/health': get('health', 'Does chat without tee work, and does tee?', {
      200: health('Chat without tee works', 200),
      ...open,
      503: health('The backend is out, or the gateway was told to stop', 503),
    }),
    '/usage': {
      get: {
        operationId: 'usage',
        summary: 'What the API key has used in the last days, by day and model',
        tags: ['Operation'],
        responses: {
          200: response(examples, 'usage', 'Of this key only', { [JSON_TYPE]: schemaRef('Usage') }, RATES.slice(0, 3)),
          ...errorResponses('usage'),
        },
      },
    },
    '/metrics': get('metrics', 'Prometheus text, unless it has a port of its own', {
      200: fixed(
        'docs/metrics.md lists them',
        'text/plain',
        { type: 'string', description: 'Prometheus’ text format' },
        'Two of its lines',
        '# TYPE countersign_sidecar_state gauge\ncountersign_sidecar_state{state="connected"} 1\n',
      ),
      ...errorResponses('metrics'),
    }),
    '/openapi.json': get('openapi', 'This document', {
      200: fixed(
        'OpenAPI 3.1',
        JSON_TYPE,
        { type: 'object', description: 'The document' },
        'Its beginning',
        { openapi: '3.1.1', info: { title: 'Countersign', version: VERSION } },
        ['etag'],
      ),
      ...open,
    }),
    '/docs': get('docs', 'This document as a page', { 200: html('The page', 'Countersign API'), ...open }),
    '/': get('page', 'The page for browsers: a chat, and its proofs', {
      200: html('The page', 'Countersign'),
      ...errorResponses('page'),
    }),
  };
}
