// From Kubernetes' API description (OpenAPI 2), and from definitions of custom resources (OpenAPI 3), to one strict JSON schema a kind: a
// member that is not described is an error.

type Schema = { [member: string]: unknown };
interface Kind {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
}
interface Description {
  readonly definitions: Readonly<Record<string, Schema>>;
}

const INT_OR_STRING = { oneOf: [{ type: 'string' }, { type: 'integer' }] };
/** Kubernetes' quantities are written as numbers too. */
const QUANTITY = { oneOf: [{ type: 'string' }, { type: 'number' }] };
const QUANTITY_NAME = 'io.k8s.apimachinery.pkg.api.resource.Quantity';

/** Pairs of file name, such as `deployment-apps-v1.json`, and schema. */
export function* jsonSchemas({ definitions }: Description): Generator<[name: string, schema: Schema]> {
  for (const [name, definition] of Object.entries(definitions)) {
    const kinds = (definition['x-kubernetes-group-version-kind'] ?? []) as readonly Kind[];
    const [kind] = kinds;
    // Definitions of several kinds are parts of requests, such as DeleteOptions.
    if (kind === undefined || kinds.length > 1) continue;
    const used = new Map<string, Schema>();
    const root = strict(name, definitions, used) as Schema;
    const properties = { ...(root.properties as Schema), ...identity(kind) };
    const required = [...new Set([...((root.required ?? []) as string[]), 'apiVersion', 'kind'])];
    yield [fileName(kind), { ...root, properties, required, definitions: Object.fromEntries(used) }];
  }
}

interface CustomDefinition {
  readonly spec: {
    readonly group: string;
    readonly names: { readonly kind: string };
    readonly versions: readonly { readonly name: string; readonly schema: { readonly openAPIV3Schema: Schema } }[];
  };
}

/** The same for a CustomResourceDefinition. Rules in CEL are left out: the API server alone evaluates them. */
export function* customSchemas({ spec }: CustomDefinition): Generator<[name: string, schema: Schema]> {
  for (const { name: version, schema } of spec.versions) {
    const kind: Kind = { group: spec.group, version, kind: spec.names.kind };
    const root = closed(schema.openAPIV3Schema) as Schema;
    // Metadata is described once for all kinds, and `any object` here.
    const properties = { ...(root.properties as Schema), metadata: { type: 'object' }, ...identity(kind) };
    const required = [...new Set([...((root.required ?? []) as string[]), 'apiVersion', 'kind'])];
    yield [fileName(kind), { ...root, properties, required }];
  }
}

function closed(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(closed);
  if (typeof node !== 'object' || node === null) return node;
  const schema = node as Schema;
  if (schema['x-kubernetes-int-or-string'] === true) return INT_OR_STRING;
  const open = schema['x-kubernetes-preserve-unknown-fields'] === true;
  const rest = Object.entries(schema).filter(
    ([key]) => !/^(description|format|default|nullable|x-kubernetes-.*)$/.test(key),
  );
  const plain: Schema = Object.fromEntries(
    rest.map(([key, value]) => [
      key,
      key === 'properties'
        ? Object.fromEntries(Object.entries(value as Schema).map(([name, one]) => [name, closed(one)]))
        : closed(value),
    ]),
  );
  return 'properties' in plain && !('additionalProperties' in plain) && !open
    ? { ...plain, additionalProperties: false }
    : plain;
}

/** The definition and, into `used`, all that it refers to. */
function strict(name: string, definitions: Description['definitions'], used: Map<string, Schema>): unknown {
  const definition = definitions[name];
  if (definition === undefined) throw new Error(`${name} is not described`);
  const convert = (node: unknown): unknown => {
    if (Array.isArray(node)) return node.map(convert);
    if (typeof node !== 'object' || node === null) return node;
    const schema = node as Schema;
    if (typeof schema.$ref === 'string') {
      const target = schema.$ref.replace('#/definitions/', '');
      if (!used.has(target)) {
        used.set(target, {});
        used.set(target, strict(target, definitions, used) as Schema);
      }
      return { $ref: `#/definitions/${target}` };
    }
    if (schema.format === 'int-or-string') return INT_OR_STRING;
    const rest = Object.entries(schema).filter(([key]) => !/^(description|format|x-kubernetes-.*)$/.test(key));
    const plain = Object.fromEntries(
      rest.map(([key, value]) => [key, key === 'properties' ? each(value) : convert(value)]),
    );
    return 'properties' in plain && !('additionalProperties' in plain)
      ? { ...plain, additionalProperties: false }
      : plain;
  };
  // A property may be named as a keyword is: `format`, `description`.
  const each = (properties: unknown) =>
    Object.fromEntries(Object.entries(properties as Schema).map(([key, value]) => [key, convert(value)]));
  return name === QUANTITY_NAME ? QUANTITY : convert(definition);
}

const identity = ({ group, version, kind }: Kind) => ({
  apiVersion: { const: group === '' ? version : `${group}/${version}` },
  kind: { const: kind },
});

/** As kubeconform names them: kind, the first label of the group, version. */
function fileName({ group, version, kind }: Kind): string {
  const [label] = group.split('.');
  return `${[kind, ...(label === '' ? [] : [label]), version].join('-').toLowerCase()}.json`;
}
