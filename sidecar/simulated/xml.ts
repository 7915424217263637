// XML as a small tree with two ways of writing it: as a file, and in the canonical form that is signed (C14N 1.1).

export interface Element {
  /** With its prefix, if any. */
  readonly name: string;
  /** Prefix to namespace; '' is the default namespace. */
  readonly namespaces?: Readonly<Record<string, string>>;
  readonly attributes?: Readonly<Record<string, string>>;
  readonly children?: readonly (Element | string)[];
}

type Namespaces = Readonly<Record<string, string>>;

/** As a file: declarations and attributes in the order given, an element without children closed at once. */
export function serialize(node: Element | string): string {
  if (typeof node === 'string') return text(node);
  const declared = Object.entries(node.namespaces ?? {})
    .map(declaration)
    .join('');
  const attributes = Object.entries(node.attributes ?? {})
    .map(attribute)
    .join('');
  const children = node.children ?? [];
  const end = children.length === 0 ? '/>' : `>${children.map(serialize).join('')}</${node.name}>`;
  return `<${node.name}${declared}${attributes}${end}`;
}

/**
 * Canonical XML 1.1, inclusive, without comments (§1.1, §2.3): namespaces sorted by prefix and written where they first
 * come into force, attributes sorted by namespace and then local name, no element closed at once. For an element apart
 * from its document, `inherited` are the namespaces its ancestors declare: all of them are written on it (§2.4).
 */
export function canonicalize(node: Element | string, inherited: Namespaces = {}): string {
  return canonical(node, inherited, {});
}

function canonical(node: Element | string, inScope: Namespaces, written: Namespaces): string {
  if (typeof node === 'string') return text(node);
  const scope: Namespaces = { ...inScope, ...node.namespaces };
  const fresh = Object.entries(scope).filter(([prefix, uri]) => written[prefix] !== uri);
  const declared = fresh.sort(byKey).map(declaration).join('');
  const attributes = Object.entries(node.attributes ?? {})
    .map(([name, value]) => [sortKey(name, scope), attribute([name, value])] as const)
    .sort(byKey)
    .map(([, written]) => written)
    .join('');
  const children = (node.children ?? []).map((child) => canonical(child, scope, scope)).join('');
  return `<${node.name}${declared}${attributes}>${children}</${node.name}>`;
}

/** Namespace name, then local name; an attribute without a prefix is in no namespace and comes first. */
function sortKey(name: string, scope: Namespaces): string {
  const colon = name.indexOf(':');
  return colon < 0 ? `\0${name}` : `${scope[name.slice(0, colon)] ?? ''}\0${name.slice(colon + 1)}`;
}

const byKey = ([a]: readonly [string, string], [b]: readonly [string, string]): number => (a < b ? -1 : a > b ? 1 : 0);

const declaration = ([prefix, uri]: readonly [string, string]): string =>
  ` xmlns${prefix === '' ? '' : `:${prefix}`}="${quoted(uri)}"`;
const attribute = ([name, value]: readonly [string, string]): string => ` ${name}="${quoted(value)}"`;
const text = (value: string): string => value.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
const quoted = (value: string): string =>
  value.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
