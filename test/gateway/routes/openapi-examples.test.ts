// The examples in /openapi.json: each is of its schema, each answer has the shape of what a gateway answers now, and the attestations verify.
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { beforeAll, describe, expect, it } from 'vitest';
import { EXAMPLE_REQUESTS, type ExampleResponses, readExamples } from '../../../gateway/routes/openapi/examples.ts';
import { buildDocument } from '../../../gateway/routes/openapi/openapi.ts';
import { askForExamples } from '../../../scripts/examples/ask.ts';
import { verifySession } from '../../../verify/cpu.ts';
import { verifyAttestation } from '../../../verify/index.ts';

type Json = Readonly<Record<string, unknown>>;

const document = JSON.parse(JSON.stringify(buildDocument())) as Json;
const { answers: kept, simulated_root: simulatedRoot } = readExamples();
/** When they were made: tokens, sessions and revocation lists hold for hours. */
const MADE = new Date(1000 * ((kept.verify?.ear?.body as { iat: number } | undefined) ?? { iat: 0 }).iat);

/** What a reference leads to. */
function resolved(value: unknown): unknown {
  const ref = (value as { $ref?: string }).$ref;
  if (ref === undefined) return value;
  return ref
    .slice(2)
    .split('/')
    .reduce((at, name) => at[name] as Json, document);
}

/** Every object of the document that stands under `name`, with the way to it. References are not followed. */
function* everywhere(name: string, value: unknown = document, way = ''): Generator<[way: string, found: Json]> {
  if (typeof value !== 'object' || value === null) return;
  for (const [member, inside] of Object.entries(value)) {
    // What an example shows is no part of the document.
    if (member === 'value' || member === 'example') continue;
    const next = `${way}/${member}`;
    if (member === name && !Array.isArray(inside)) yield [next, inside as Json];
    yield* everywhere(name, inside, next);
  }
}

const isDescribed = (value: unknown): boolean => {
  const { description } = value as { description?: string };
  if (description !== undefined) return description.trim().length >= 3;
  return '$ref' in (value as object) && isDescribed(resolved(value));
};

describe('descriptions', () => {
  it.each(['properties', 'headers', 'responses', 'schemas', 'securitySchemes'])(
    'there is one of each of %s',
    (name) => {
      const all = [...everywhere(name)].flatMap(([way, named]) =>
        Object.entries(named).map(([member, value]) => [`${way}/${member}`, value] as const),
      );
      expect(all.length).toBeGreaterThan(1);
      expect(all.filter(([, value]) => !isDescribed(value)).map(([way]) => way)).toEqual([]);
    },
  );

  it('there is one of each parameter, request and tag, and a summary of each operation and example', () => {
    const operations = Object.values(document.paths as Json).flatMap((path) => Object.values(path as Json)) as Json[];
    for (const { operationId, summary, parameters = [], requestBody } of operations) {
      expect(String(summary).length, String(operationId)).toBeGreaterThan(5);
      for (const parameter of parameters as Json[]) expect(isDescribed(parameter), String(parameter.name)).toBe(true);
      if (requestBody !== undefined) expect(isDescribed(requestBody), String(operationId)).toBe(true);
    }
    for (const tag of document.tags as Json[]) expect(isDescribed(tag)).toBe(true);
    const examples = [...everywhere('examples')].flatMap(([, named]) => Object.entries(named));
    expect(examples.length).toBeGreaterThan(200);
    for (const [name, one] of examples) expect((resolved(one) as Json).summary, name).toMatch(/.{3}/);
  });
});

describe('examples', () => {
  let ajv: Ajv2020;
  beforeAll(() => {
    ajv = new Ajv2020({ strict: true, allowUnionTypes: true });
    formats.default(ajv);
    ajv.addKeyword('components');
    ajv.addSchema({ $id: 'doc', components: { schemas: (document.components as Json).schemas } } as object, 'doc');
  });

  const compiled = (schema: unknown): ValidateFunction =>
    ajv.compile(JSON.parse(JSON.stringify(schema).replaceAll('"#/components/', '"doc#/components/')));

  it('stand at every body and parameter, and are of its schema', () => {
    let count = 0;
    const check = (way: string, schema: unknown, examples: Json) => {
      expect(Object.keys(examples).length, way).toBeGreaterThan(0);
      const validate = compiled(schema);
      for (const [name, one] of Object.entries(examples)) {
        count++;
        const { value } = resolved(one) as { value: unknown };
        expect(validate(value), `${way} ${name}: ${JSON.stringify(validate.errors)?.slice(0, 300)}`).toBe(true);
      }
    };
    for (const [way, content] of everywhere('content'))
      for (const [type, { schema, examples = {} }] of Object.entries(content) as [string, Record<string, Json>][])
        check(`${way} ${type}`, schema, examples as Json);
    for (const path of Object.values(document.paths as Json))
      for (const { operationId, parameters = [] } of Object.values(path as Json) as Json[])
        for (const { name, schema, example, examples } of parameters as Json[])
          check(`${operationId} ${name}`, schema, (examples as Json | undefined) ?? { example: { value: example } });
    expect(count).toBeGreaterThan(180);
  });

  it('would not pass if they were of another schema', () => {
    const attestation = kept.getChatCompletionAttestation?.attestation?.body;
    expect(compiled({ $ref: '#/components/schemas/Attestation' })(attestation)).toBe(true);
    expect(compiled({ $ref: '#/components/schemas/Health' })(attestation)).toBe(false);
  });

  it('of generation are whole, as a stream, with an attestation and both', () => {
    for (const operation of ['createChatCompletion', 'createCompletion', 'createResponse', 'createMessage'])
      expect(Object.keys(kept[operation] ?? {})).toEqual(
        expect.arrayContaining(['plain', 'stream', 'tee', 'tee_stream']),
      );
    for (const operation of ['createEmbedding', 'createOther'])
      expect(Object.keys(kept[operation] ?? {})).toEqual(['plain', 'tee']);
  });
});

// What a gateway answers now.

/** Names and types, at every depth. An event stream is the list of its payloads. */
function shapeOf(value: unknown): unknown {
  if (typeof value === 'string')
    return value.includes('\ndata: ') || value.startsWith('data: ') ? eventsOf(value) : 'string';
  if (typeof value !== 'object' || value === null) return value === null ? 'null' : typeof value;
  if (Array.isArray(value)) return value.map(shapeOf);
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [named(name), shapeOf(member)]));
}
const eventsOf = (text: string) =>
  text
    .split('\n')
    .filter((line) => line.startsWith('data: {'))
    .map((line) => shapeOf(JSON.parse(line.slice('data: '.length))));
/** The name of a submodule has the device's id. */
const named = (name: string) => name.replace(/^gpu\/\d+$/, 'gpu/ID');

/** The request, where it is one of the examples. */
function requestOf(operation: string, name: string): { request?: string } {
  const body = EXAMPLE_REQUESTS[operation]?.[name]?.body;
  return typeof body === 'object' ? { request: JSON.stringify(body) } : {};
}

describe('answers', () => {
  let now: ExampleResponses;
  beforeAll(async () => {
    now = (await askForExamples()).answers;
  });

  it('are what a gateway answers: the same statuses, types, names and types of members', () => {
    expect(Object.keys(kept)).toEqual(Object.keys(now));
    for (const [operation, answers] of Object.entries(now)) {
      expect(Object.keys(kept[operation] ?? {}), operation).toEqual(Object.keys(answers));
      for (const [name, answer] of Object.entries(answers)) {
        const { status, type, body } = kept[operation]?.[name] ?? {};
        expect([operation, name, status, type]).toEqual([operation, name, answer.status, answer.type]);
        expect(shapeOf(body), `${operation} ${name}`).toEqual(shapeOf(answer.body));
      }
    }
  });

  it('with an attestation verify, as what was asked and answered', async () => {
    let verified = 0;
    for (const [operation, answers] of Object.entries(kept))
      for (const [name, { type, body }] of Object.entries(answers)) {
        if (!/^(tee|tee_stream|tee_batch|attestation)$/.test(name)) continue;
        const text = type === 'text/event-stream' ? String(body) : JSON.stringify(body);
        const { valid, level, exchange } = await verifyAttestation(
          type === 'text/event-stream' ? Buffer.from(text) : text,
          { simulatedRoot, at: MADE, expected: requestOf(operation, name) },
        );
        expect([operation, name, valid, level]).toEqual([operation, name, true, 'none']);
        expect(exchange.timestamp).toBeGreaterThan(1_790_000_000);
        verified++;
      }
    expect(verified).toBe(14);
  });

  it('with a session verify', async () => {
    const session = kept.getAttestationSession?.session?.body as never;
    const verified = await verifySession(session, { simulatedRoot, at: MADE });
    expect(verified.valid).toBe(true);
  });
});
