// The elements of a parsed RIM and how to look things up in them.
import { CheckFailure } from '../checks.ts';

export interface Attribute {
  readonly prefix: string;
  readonly local: string;
  /** '' for an attribute without prefix: the default namespace does not apply to attributes. */
  readonly namespace: string;
  readonly value: string;
}

export interface Element {
  readonly prefix: string;
  readonly local: string;
  readonly namespace: string;
  /** Namespace declarations are not among them. */
  readonly attributes: readonly Attribute[];
  /** The namespaces in scope by prefix, '' being the default one; without `xml`. */
  readonly scope: ReadonlyMap<string, string>;
  /** Elements and text, comments left out and the text around them joined. */
  readonly children: readonly (Element | string)[];
}

export const XML_NAMESPACE = 'http://www.w3.org/XML/1998/namespace';

/** A RIM that is not what it has to be. `message` quotes nothing of it but names and numbers already checked. */
export function malformed(message: string, options?: ErrorOptions): CheckFailure {
  return new CheckFailure('rim_malformed', message, options);
}

export function isElement(node: Element | string): node is Element {
  return typeof node !== 'string';
}

export function isNamed(element: Element, namespace: string, local: string): boolean {
  return element.namespace === namespace && element.local === local;
}

export function childElements(element: Element): Element[] {
  return element.children.filter(isElement);
}

/** The child elements of an element that holds nothing else but space. @throws {CheckFailure} */
export function onlyElements(element: Element): Element[] {
  if (element.children.some((node) => !isElement(node) && /[^ \t\n\r]/.test(node)))
    throw malformed(`${element.local} holds text`);
  return childElements(element);
}

/** The text of an element that holds nothing else. @throws {CheckFailure} */
export function onlyText(element: Element): string {
  if (element.children.some(isElement)) throw malformed(`${element.local} holds elements`);
  return element.children.join('');
}

export function attribute(element: Element, local: string, namespace = ''): string | undefined {
  return element.attributes.find((a) => a.local === local && a.namespace === namespace)?.value;
}

/** The elements at and below this one, in document order. */
export function* descendants(element: Element): Generator<Element> {
  yield element;
  for (const child of childElements(element)) yield* descendants(child);
}
