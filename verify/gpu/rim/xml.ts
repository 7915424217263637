// Parses the XML of RIMs (XML 1.0, Namespaces in XML 1.0), and refuses the features that they do not need:
// document types, entities of their own, processing instructions, CDATA sections.

import { EncodingError, fromUtf8 } from '../../common/bytes.ts';
import { CheckFailure } from '../../common/checks.ts';

// The characters of XML 1.0: allowed ones, those of names, references and line ends.

/** NCName (Namespaces in XML 1.0 §3), for names in the Basic Multilingual Plane: others would sort differently as UTF-16. */
const NAME_START =
  'A-Za-z_\\u00C0-\\u00D6\\u00D8-\\u00F6\\u00F8-\\u02FF\\u0370-\\u037D\\u037F-\\u1FFF\\u200C\\u200D\\u2070-\\u218F\\u2C00-\\u2FEF\\u3001-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFFD';
const NCNAME = `[${NAME_START}][${NAME_START}0-9.\\u00B7\\u0300-\\u036F\\u203F\\u2040\\-]*`;

/** Anything but Char (XML 1.0 §2.2). With the u flag, that includes a lone surrogate. */
const NOT_CHAR = /[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/u;

const PREDEFINED: ReadonlyMap<string, string> = new Map([
  ['lt', '<'],
  ['gt', '>'],
  ['amp', '&'],
  ['apos', "'"],
  ['quot', '"'],
]);
/** `&#x10FFFF;` is the longest that is needed. */
const MAX_REFERENCE_CHARACTERS = 10;

/** XML 1.0 §2.11: one LF for CR LF and for CR. @throws {CheckFailure} for what is not Char. */
function normalized(source: string): string {
  const text = source.startsWith('\uFEFF') ? source.slice(1) : source;
  if (NOT_CHAR.test(text)) throw malformed('a character that XML does not allow');
  return text.includes('\r') ? text.replace(/\r\n?/g, '\n') : text;
}

/** Character data between tags. @throws {CheckFailure} */
function textValue(raw: string): string {
  if (raw.includes(']]>')) throw malformed(']]> in text');
  return resolved(raw);
}

/** XML 1.0 §3.3.3 for attributes without a DTD: space for each white space character that is not a reference. */
function attributeValue(raw: string): string {
  return resolved(raw.replace(/[\t\n]/g, ' '));
}

function resolved(raw: string): string {
  let at = raw.indexOf('&');
  if (at < 0) return raw;
  let out = '';
  let from = 0;
  for (; at >= 0; at = raw.indexOf('&', from)) {
    const end = raw.slice(at, at + 1 + MAX_REFERENCE_CHARACTERS + 1).indexOf(';');
    if (end < 0) throw malformed('a reference does not end');
    out += raw.slice(from, at) + referred(raw.slice(at + 1, at + end));
    from = at + end + 1;
  }
  return out + raw.slice(from);
}

function referred(name: string): string {
  const known = PREDEFINED.get(name);
  if (known !== undefined) return known;
  const match = /^#(?:([0-9]+)|x([0-9A-Fa-f]+))$/.exec(name);
  if (match === null) throw malformed('an entity that is not predefined');
  const code = match[1] === undefined ? Number.parseInt(match[2] ?? '', 16) : Number.parseInt(match[1], 10);
  if (code > 0x10ffff || NOT_CHAR.test(String.fromCodePoint(code))) throw malformed('a reference to no character');
  return String.fromCodePoint(code);
}

// The elements of a parsed RIM, and lookups in them.

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

/** The RIM is malformed. `message` quotes nothing of it but names and numbers already checked. */
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

/** NVIDIA's RIMs take about 20 KiB, 70 elements of up to a dozen attributes, 5 levels and 7 namespaces. */
const MAX_BYTES = 1024 * 1024;
const MAX_ELEMENTS = 4096;
const MAX_ATTRIBUTES = 64;
const MAX_DEPTH = 16;
const MAX_NAMESPACES = 32;

const XMLNS_NAMESPACE = 'http://www.w3.org/2000/xmlns/';
/** Absolute, as Canonical XML §1.3 requires, and ASCII, so that it sorts the same in every encoding. */
const NAMESPACE_URI = /^[A-Za-z][A-Za-z0-9+.-]*:[!-~]*$/;

const SPACE = '[ \\t\\n]';
const QNAME = `(?:(${NCNAME}):)?(${NCNAME})`;
const DECLARATION = new RegExp(
  `<\\?xml${SPACE}+version${SPACE}*=${SPACE}*(?:"1\\.0"|'1\\.0')(?:${SPACE}+encoding${SPACE}*=${SPACE}*(?:"utf-8"|'utf-8'))?(?:${SPACE}+standalone${SPACE}*=${SPACE}*(?:"(?:yes|no)"|'(?:yes|no)'))?${SPACE}*\\?>`,
  'iy',
);
const START_TAG = new RegExp(`<${QNAME}`, 'y');
const ATTRIBUTE = new RegExp(`${SPACE}+${QNAME}${SPACE}*=${SPACE}*(?:"([^<"]*)"|'([^<']*)')`, 'y');
const START_TAG_END = new RegExp(`${SPACE}*(/?)>`, 'y');
const END_TAG = new RegExp(`</${QNAME}${SPACE}*>`, 'y');

interface OpenElement extends Element {
  readonly children: (Element | string)[];
}

/** The root element. Nothing in it is trusted yet. @throws {CheckFailure} rim_malformed. */
export function parseXml(source: string | Uint8Array): Element {
  return new Parser(text(source)).document();
}

function text(source: string | Uint8Array): string {
  if (source.length > MAX_BYTES) throw malformed(`larger than ${MAX_BYTES} bytes`);
  if (typeof source === 'string') return normalized(source);
  try {
    return normalized(fromUtf8(source));
  } catch (cause) {
    if (cause instanceof EncodingError) throw malformed('not UTF-8', { cause });
    throw cause;
  }
}

class Parser {
  readonly #text: string;
  #at = 0;
  #elements = 0;
  readonly #open: OpenElement[] = [];
  #root: Element | null = null;

  constructor(source: string) {
    this.#text = source;
  }

  document(): Element {
    this.#match(DECLARATION);
    while (this.#at < this.#text.length) {
      const tag = this.#text.indexOf('<', this.#at);
      this.#characters(tag < 0 ? this.#text.length : tag);
      if (tag < 0) break;
      if (this.#text.startsWith('</', tag)) this.#endTag();
      else if (this.#text.startsWith('<!--', tag)) this.#comment();
      else if (this.#text.startsWith('<!', tag)) throw malformed('a document type or a CDATA section');
      else if (this.#text.startsWith('<?', tag)) throw malformed('a processing instruction');
      else this.#startTag();
    }
    if (this.#open.length > 0) throw malformed('an element does not end');
    if (this.#root === null) throw malformed('no element');
    return this.#root;
  }

  #match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    const match = pattern.exec(this.#text);
    if (match !== null) this.#at += match[0].length;
    return match;
  }

  #characters(end: number): void {
    const raw = this.#text.slice(this.#at, end);
    this.#at = end;
    if (raw === '') return;
    const parent = this.#open.at(-1);
    if (parent !== undefined) append(parent.children, textValue(raw));
    else if (/[^ \t\n]/.test(raw)) throw malformed('text outside of the root element');
  }

  /** Skips a comment, as Canonical XML without comments does, so that everything that is read was digested. */
  #comment(): void {
    const dashes = this.#text.indexOf('--', this.#at + 4);
    if (dashes < 0 || this.#text[dashes + 2] !== '>') throw malformed('a comment does not end, or holds --');
    this.#at = dashes + 3;
  }

  #startTag(): void {
    const [, prefix = '', local = ''] = this.#match(START_TAG) ?? fail('a tag without a name');
    if (++this.#elements > MAX_ELEMENTS) throw malformed(`more than ${MAX_ELEMENTS} elements`);
    if (this.#open.length === MAX_DEPTH) throw malformed(`deeper than ${MAX_DEPTH} elements`);
    const parent = this.#open.at(-1);
    if (parent === undefined && this.#root !== null) throw malformed('a second root element');
    const raw = this.#attributes();
    const scope = inScope(raw, parent?.scope ?? new Map());
    const namespace = resolve(scope, prefix, scope.get('') ?? '');
    const element: OpenElement = { prefix, local, namespace, attributes: named(raw, scope), scope, children: [] };
    if (parent === undefined) this.#root = element;
    else parent.children.push(element);
    const [, empty] = this.#match(START_TAG_END) ?? fail('a start tag does not end');
    if (empty === '') this.#open.push(element);
  }

  #attributes(): Omit<Attribute, 'namespace'>[] {
    const found: Omit<Attribute, 'namespace'>[] = [];
    for (let match = this.#match(ATTRIBUTE); match !== null; match = this.#match(ATTRIBUTE)) {
      if (found.length === MAX_ATTRIBUTES) throw malformed(`more than ${MAX_ATTRIBUTES} attributes`);
      const [, prefix = '', local = '', double, single = ''] = match;
      found.push({ prefix, local, value: attributeValue(double ?? single) });
    }
    return found;
  }

  #endTag(): void {
    const [, prefix = '', local = ''] = this.#match(END_TAG) ?? fail('an end tag is broken');
    const element = this.#open.pop();
    if (element?.local !== local || element.prefix !== prefix) throw malformed('an end tag without its start tag');
  }
}

function append(children: (Element | string)[], value: string): void {
  const last = children.at(-1);
  if (typeof last === 'string') children[children.length - 1] = last + value;
  else children.push(value);
}

const isDeclaration = ({ prefix, local }: Omit<Attribute, 'namespace'>) =>
  prefix === 'xmlns' || (prefix === '' && local === 'xmlns');

/** Namespaces in XML 1.0 §2 and §3: the parent's scope with this element's declarations. */
function inScope(
  raw: readonly Omit<Attribute, 'namespace'>[],
  outer: ReadonlyMap<string, string>,
): ReadonlyMap<string, string> {
  const declarations = raw.filter(isDeclaration);
  if (declarations.length === 0) return outer;
  const scope = new Map(outer);
  const own = new Set<string>();
  for (const { prefix, local, value } of declarations) {
    const declared = prefix === '' ? '' : local;
    if (own.has(declared)) throw malformed('a namespace is declared twice');
    own.add(declared);
    if (declared === 'xml' || declared === 'xmlns') throw malformed('a reserved prefix is declared');
    if (value === '' && declared !== '') throw malformed('a prefix is bound to nothing');
    if (value !== '' && !NAMESPACE_URI.test(value)) throw malformed('a namespace is not an absolute URI');
    if (value === XML_NAMESPACE || value === XMLNS_NAMESPACE) throw malformed('a reserved namespace is declared');
    scope.set(declared, value);
  }
  if (scope.size > MAX_NAMESPACES) throw malformed(`more than ${MAX_NAMESPACES} namespaces`);
  return scope;
}

function named(raw: readonly Omit<Attribute, 'namespace'>[], scope: ReadonlyMap<string, string>): Attribute[] {
  const names = new Set<string>();
  return raw
    .filter((attribute) => !isDeclaration(attribute))
    .map((attribute) => {
      const namespace = resolve(scope, attribute.prefix, '');
      const name = `${namespace} ${attribute.local}`;
      if (names.has(name)) throw malformed('an attribute stands twice');
      names.add(name);
      return { ...attribute, namespace };
    });
}

function resolve(scope: ReadonlyMap<string, string>, prefix: string, unprefixed: string): string {
  if (prefix === '') return unprefixed;
  if (prefix === 'xml') return XML_NAMESPACE;
  return scope.get(prefix) ?? fail('a prefix is not declared');
}

function fail(message: string): never {
  throw malformed(message);
}
