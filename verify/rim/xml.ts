// Parses the XML that RIMs are written in (XML 1.0, Namespaces in XML 1.0), and refuses what they have no need of:
// document types, entities of their own, processing instructions, CDATA sections.
import { EncodingError, fromUtf8 } from '../bytes.ts';
import { attributeValue, NCNAME, normalized, textValue } from './characters.ts';
import { type Attribute, type Element, malformed, XML_NAMESPACE } from './tree.ts';

/** NVIDIA's RIMs take about 20 KiB, 70 elements of up to a dozen attributes, 5 levels and 7 namespaces. */
const MAX_BYTES = 1024 * 1024;
const MAX_ELEMENTS = 4096;
const MAX_ATTRIBUTES = 64;
const MAX_DEPTH = 16;
const MAX_NAMESPACES = 32;

const XMLNS_NAMESPACE = 'http://www.w3.org/2000/xmlns/';
/** Absolute, as Canonical XML §1.3 wants it, and ASCII, so that it sorts the same in every encoding. */
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

  /** Canonical XML without comments drops them, and so does this, so that what is read is what was digested. */
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
