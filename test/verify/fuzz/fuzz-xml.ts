// Mutations that know XML: tags, attributes and text taken out, doubled, renamed; document types, entities, comments put in.
import { mutateText } from './fuzz-bytes.ts';
import type { Random } from './fuzz-random.ts';

const PUT = [
  '<!DOCTYPE x [<!ENTITY a "b">]>',
  '<!ENTITY a "b">',
  '&a;',
  '&#0;',
  '&#x110000;',
  '&#x41;',
  '&amp;',
  '<![CDATA[x]]>',
  '<?xml-stylesheet href="x"?>',
  '<!-- -->',
  '<!-- -- -->',
  '<x/>',
  '<x xmlns="urn:x">',
  '</x>',
  ']]>',
  '\uFEFF',
  '\u0000',
  '\r\n',
  ' ',
  'x',
];
const ATTRIBUTES = [
  ' xmlns="urn:x"',
  ' xmlns:ds="urn:x"',
  ' xml:base="urn:x"',
  ' xml:lang="x"',
  ' xmlns:xml="urn:x"',
  ' Id="x"',
  ' URI="#x"',
  ' active="False"',
  ' index="0"',
  ' x:y="z"',
];

/** The text cut into tags and what stands between them. */
const pieces = (xml: string): string[] => xml.match(/<[^>]*>|[^<]+/g) ?? [];

export function mutateXml(xml: string, random: Random): string {
  const parts = pieces(xml);
  if (parts.length === 0) return mutateText(xml, random);
  const at = random.below(parts.length);
  const piece = parts[at] as string;
  const other = random.pick(parts);
  const ways: (() => void)[] = [
    () => parts.splice(at, 1),
    () => parts.splice(at, 0, piece),
    () => parts.splice(at, 0, random.pick(PUT)),
    () => parts.splice(at, 1, other),
    () => parts.splice(at, 1, piece.replace(/(\/?>)$/, `${random.pick(ATTRIBUTES)}$1`)),
    () => parts.splice(at, 1, without(piece, random)),
    () => parts.splice(at, 1, mutateText(piece, random)),
    () => parts.splice(at, 0, ...parts.slice(at, at + 1 + random.below(40))),
    () => parts.splice(at, 1 + random.below(40)),
    () => parts.splice(at, 0, '<x>'.repeat(1 + random.below(64))),
  ];
  random.pick(ways)();
  return parts.join('');
}

/** A tag without one of its attributes; text without a character. */
function without(piece: string, random: Random): string {
  const attributes = piece.match(/ [\w:]+="[^"]*"/g);
  if (attributes !== null) return piece.replace(random.pick(attributes), '');
  const at = random.below(piece.length);
  return piece.slice(0, at) + piece.slice(at + 1);
}
