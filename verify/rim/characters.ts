// The characters of XML 1.0: which are allowed, which make a name, and what references and line ends stand for.
import { malformed } from './tree.ts';

/** NCName (Namespaces in XML 1.0 §3), for names in the Basic Multilingual Plane: others would sort differently as UTF-16. */
const NAME_START =
  'A-Za-z_\\u00C0-\\u00D6\\u00D8-\\u00F6\\u00F8-\\u02FF\\u0370-\\u037D\\u037F-\\u1FFF\\u200C\\u200D\\u2070-\\u218F\\u2C00-\\u2FEF\\u3001-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFFD';
export const NCNAME = `[${NAME_START}][${NAME_START}0-9.\\u00B7\\u0300-\\u036F\\u203F\\u2040\\-]*`;

/** Char (XML 1.0 §2.2). With the u flag a surrogate without its partner matches no range. */
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
export function normalized(source: string): string {
  const text = source.startsWith('\uFEFF') ? source.slice(1) : source;
  if (NOT_CHAR.test(text)) throw malformed('a character that XML does not allow');
  return text.includes('\r') ? text.replace(/\r\n?/g, '\n') : text;
}

/** Character data between tags. @throws {CheckFailure} */
export function textValue(raw: string): string {
  if (raw.includes(']]>')) throw malformed(']]> in text');
  return resolved(raw);
}

/** XML 1.0 §3.3.3 for attributes without a DTD: space for each white space character that is not a reference. */
export function attributeValue(raw: string): string {
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
