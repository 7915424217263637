// Parts of the operations in /openapi.json: responses with their examples, and parameters.
import { type HeaderName, headerRefs } from './headers.ts';

export const JSON_TYPE = 'application/json';
export const EVENTS_TYPE = 'text/event-stream';
/** The security of an operation that needs no API key. */
export const OPEN = { security: [] };

/** `name`: a member of NAMED in schemas.ts. A test resolves every reference. */
export const schemaRef = (name: string) => ({ $ref: `#/components/schemas/${name}` });

/** Returns the examples of a response by operation, status and media type. */
export type Examples = (operation: string, status: number, type: string) => Record<string, object>;

/** A response with examples for each media type. */
export function response(
  examples: Examples,
  operation: string,
  description: string,
  schemas: Readonly<Record<string, object>>,
  headers: readonly HeaderName[] = [],
  status = 200,
) {
  const content = Object.entries(schemas).map(([type, schema]) => [
    type,
    { schema, examples: examples(operation, status, type) },
  ]);
  return { description, headers: headerRefs(['x-request-id', ...headers]), content: Object.fromEntries(content) };
}

/** A response with the given example. */
export const fixed = (
  description: string,
  type: string,
  schema: object,
  summary: string,
  value: unknown,
  headers: readonly HeaderName[] = [],
) => ({
  description,
  headers: headerRefs(['x-request-id', ...headers]),
  content: { [type]: { schema, examples: { example: { summary, value } } } },
});

export const parameter = (
  name: string,
  place: 'path' | 'query',
  description: string,
  schema: object,
  value: unknown,
) => ({
  name,
  in: place,
  ...(place === 'path' ? { required: true } : {}),
  description,
  schema,
  example: value,
});
