// Canonical XML 1.1 without comments (https://www.w3.org/TR/xml-c14n11/), for a whole document and for one element of it.
import { type Attribute, type Element, isElement, malformed, XML_NAMESPACE } from './tree.ts';

/** Simple inheritable attributes (§2.4). `xml:id` is not inherited. */
const INHERITED = ['lang', 'space'];

/** The canonical form of the document below `root`, without the element `omitted` and all below it. */
export function canonicalDocument(root: Element, omitted: Element): string {
  return rendered(root, new Map(), root.attributes, omitted);
}

/**
 * The canonical form of the document subset that is `element` and all below it; `ancestors` from the root down.
 * @throws {CheckFailure} where an ancestor has `xml:base`, whose joining (§2.4) no RIM has a use for.
 */
export function canonicalSubset(element: Element, ancestors: readonly Element[]): string {
  return rendered(element, new Map(), [...element.attributes, ...imported(element, ancestors)], null);
}

function imported(element: Element, ancestors: readonly Element[]): Attribute[] {
  const found = new Map<string, Attribute>();
  for (const { attributes } of ancestors) {
    for (const attribute of attributes) {
      if (attribute.namespace !== XML_NAMESPACE) continue;
      if (attribute.local === 'base') throw malformed('xml:base above what is signed');
      if (INHERITED.includes(attribute.local)) found.set(attribute.local, attribute);
    }
  }
  for (const { local, namespace } of element.attributes) if (namespace === XML_NAMESPACE) found.delete(local);
  return [...found.values()];
}

/** `above`: the namespaces that the nearest element in the output has rendered or inherited. */
function rendered(
  element: Element,
  above: ReadonlyMap<string, string>,
  attributes: readonly Attribute[],
  omitted: Element | null,
): string {
  const name = element.prefix === '' ? element.local : `${element.prefix}:${element.local}`;
  let out = `<${name}${namespaceNodes(element.scope, above)}`;
  for (const { prefix, local, value } of [...attributes].sort(byName))
    out += ` ${prefix === '' ? local : `${prefix}:${local}`}="${escapedAttribute(value)}"`;
  out += '>';
  for (const node of element.children) {
    if (!isElement(node)) out += escapedText(node);
    else if (node !== omitted) out += rendered(node, element.scope, node.attributes, omitted);
  }
  return `${out}</${name}>`;
}

/** §2.3: the default namespace first, then by prefix; none that an element above has rendered the same. */
function namespaceNodes(scope: ReadonlyMap<string, string>, above: ReadonlyMap<string, string>): string {
  if (scope === above) return '';
  const fresh = [...scope].filter(([prefix, uri]) => uri !== (above.get(prefix) ?? '')).sort(([a], [b]) => order(a, b));
  return fresh.map(([prefix, uri]) => ` xmlns${prefix === '' ? '' : `:${prefix}`}="${escapedAttribute(uri)}"`).join('');
}

/** §2.2: by namespace URI, then by local name; no namespace comes first. */
function byName(a: Attribute, b: Attribute): number {
  return order(a.namespace, b.namespace) || order(a.local, b.local);
}

function order(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  '\t': '&#x9;',
  '\n': '&#xA;',
  '\r': '&#xD;',
};
const escaped = (character: string) => ESCAPES[character] ?? character;
const escapedText = (text: string) => text.replace(/[&<>\r]/g, escaped);
const escapedAttribute = (text: string) => text.replace(/[&<"\t\n\r]/g, escaped);
