// The document of /openapi.json as its tests read it: references resolved, and what a response declares.
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { expect } from 'vitest';
import { openapiDocument } from '../../../gateway/routes/status.ts';
import type { Answer } from '../../support/client.ts';

export type Json = Readonly<Record<string, unknown>>;

interface Shown {
  readonly schema: Json;
  readonly example?: unknown;
  readonly examples?: Readonly<Record<string, { readonly value: unknown }>>;
}
interface Parameter extends Shown {
  readonly name: string;
  readonly in: 'path' | 'query' | 'header';
}
interface Body {
  readonly description: string;
  readonly content: Readonly<Record<string, Shown>>;
}
export interface DeclaredResponse extends Body {
  readonly headers: Json;
}
export interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly security?: readonly Json[];
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: Body;
  readonly responses: Readonly<Record<string, DeclaredResponse>>;
}
export interface Document {
  readonly openapi: string;
  readonly info: { readonly version: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: {
    readonly schemas: Readonly<Record<string, Json>>;
    readonly headers: Json;
    readonly responses: Json;
  };
}

export const document = JSON.parse(Buffer.from(openapiDocument().body).toString('utf8')) as Document;

/** Each example of a parameter or a body with its schema. */
export function examplesOf({
  schema,
  example,
  examples = {},
}: Shown): readonly (readonly [schema: Json, value: unknown])[] {
  const values = Object.values(examples).map(({ value }) => value);
  return [...values, ...(example === undefined ? [] : [example])].map((value) => [schema, value] as const);
}

/** What a reference leads to. */
export function resolved<T>(value: T): T {
  const ref = (value as { $ref?: string }).$ref;
  if (ref === undefined) return value;
  const names = ref.slice('#/'.length).split('/');
  return names.reduce((at, name) => at[name] as Json, document as unknown as Json) as T;
}

/** Each operation by its method and path: `GET /health`. */
export const operations = new Map<string, Operation>(
  Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, one]) => [`${method.toUpperCase()} ${path}`, one] as const),
  ),
);

export function operationOf(name: string): Operation {
  const operation = operations.get(name);
  if (operation === undefined) throw new Error(`no operation ${name}`);
  return operation;
}

/** The response that the operation declares for a status. */
export function declared(name: string, status: number | string): DeclaredResponse {
  const response = operationOf(name).responses[status];
  if (response === undefined) throw new Error(`${name} declares no ${status}`);
  return resolved(response);
}

export function schemaOf(name: string): Json {
  const schema = document.components.schemas[name];
  if (schema === undefined) throw new Error(`no schema ${name}`);
  return schema;
}

/** The gateway's own codes, each with what it means, which begins with its status. */
export const errorCodes = new Map(
  (schemaOf('ErrorCode').anyOf as { const: string; description: string }[]).map((one) => [one.const, one.description]),
);
export const verificationCodes = schemaOf('VerificationCode').enum as readonly string[];

/** The codes of an error response, which are its description; none of another response. */
export function codesOf({ description, content }: DeclaredResponse): readonly string[] {
  if ((content['application/json']?.schema as { $ref?: string })?.$ref !== '#/components/schemas/Error') return [];
  const names = [...description.matchAll(/`(\w+)`/g)].map(([, name = '']) => name);
  return names.flatMap((name) => (name === 'VerificationCode' ? verificationCodes : [name]));
}

// A schema may require a member that `allOf` describes.
const ajv = new Ajv2020({ strict: true, strictRequired: false, allowUnionTypes: true });
formats.default(ajv);
ajv.addKeyword('components');
// Of OpenAPI, where a schema has an example.
ajv.addKeyword('example');
ajv.addSchema({ $id: 'doc', components: { schemas: document.components.schemas } } as object, 'doc');

export const compiled = (schema: unknown): ValidateFunction =>
  ajv.compile(JSON.parse(JSON.stringify(schema).replaceAll('"#/components/', '"doc#/components/')));

/** The schema of that name, as a function that says whether a value is one. */
export function is(name: string): (value: unknown) => boolean {
  const validate = compiled({ $ref: `#/components/schemas/${name}` });
  return (value) => validate(value) as boolean;
}

/** Status, media type, headers and body are those of the operation. A stream is compared as a text. */
export function expectDeclared(name: string, got: Answer, status = 200): void {
  expect([name, got.status]).toEqual([name, status]);
  const { content, headers } = declared(name, status);
  const [type = ''] = String(got.headers['content-type']).split(';');
  expect(Object.keys(content), name).toContain(type);
  const validate = compiled(content[type]?.schema);
  const body: unknown = type.endsWith('json') ? got.json() : got.text;
  expect(validate(body), `${name}: ${JSON.stringify(validate.errors)?.slice(0, 400)}`).toBe(true);
  const sent = Object.keys(got.headers).filter((header) => Object.hasOwn(document.components.headers, header));
  expect(Object.keys(headers), name).toEqual(expect.arrayContaining(sent));
  expect(sent, name).toContain('x-request-id');
}
