// Canonical XML 1.1: strings written by hand from the standard. A thousand generated documents were compared with Java's.
import { describe, expect, it } from 'vitest';
import { descendants, type Element, parseXml } from '../../../verify/gpu/rim/xml.ts';
import { canonicalDocument, canonicalSubset } from '../../../verify/gpu/rim/xml-signature.ts';

const NOTHING = parseXml('<nothing/>');
const whole = (xml: string) => canonicalDocument(parseXml(xml), NOTHING);
const find = (root: Element, local: string) =>
  [...descendants(root)].find((element) => element.local === local) as Element;

describe('Canonical XML 1.1', () => {
  it('drops declaration, comments and what stands outside of the root (§1.1)', () => {
    expect(whole('<?xml version="1.0"?>\n<!-- a -->\n<r>x<!-- b -->y</r>\n<!-- c -->\n')).toBe('<r>xy</r>');
  });

  it('writes empty elements as pairs of tags and keeps white space in content', () => {
    expect(whole('<r  >\n <a />\t<b></b >\n</r>')).toBe('<r>\n <a></a>\t<b></b>\n</r>');
  });

  it('sorts namespaces by prefix, then attributes by namespace and name (§2.2)', () => {
    expect(whole('<r z="1" b:a="2" xmlns:b="http://b" a:z="3" B="4" xmlns="http://d" xmlns:a="http://z" a="5"/>')).toBe(
      '<r xmlns="http://d" xmlns:a="http://z" xmlns:b="http://b" B="4" a="5" z="1" b:a="2" a:z="3"></r>',
    );
  });

  it('escapes as §2.3 says', () => {
    expect(whole(`<r a='&lt;&gt;&amp;"&#39;&#9;&#10;&#13;'>&lt;&gt;&amp;"'&#9;&#13;</r>`)).toBe(
      `<r a="&lt;>&amp;&quot;'&#x9;&#xA;&#xD;">&lt;&gt;&amp;"'\t&#xD;</r>`,
    );
  });

  it('writes a namespace once, and an empty default one only where it undoes another', () => {
    expect(
      whole(
        '<r xmlns=""><a xmlns="urn:a" xmlns:p="urn:p"><a xmlns="urn:a"/><b xmlns=""><p:c xmlns:p="urn:p"/></b></a></r>',
      ),
    ).toBe('<r><a xmlns="urn:a" xmlns:p="urn:p"><a></a><b xmlns=""><p:c></p:c></b></a></r>');
  });

  it('leaves out the omitted element and nothing around it', () => {
    const root = parseXml('<r> <a/>\n<s><t/></s>\n<b/> </r>');
    expect(canonicalDocument(root, find(root, 's'))).toBe('<r> <a></a>\n\n<b></b> </r>');
  });

  it('gives an element apart from its document every namespace in scope, and xml:lang and xml:space (§2.4)', () => {
    const root = parseXml(
      '<r xmlns="urn:d" xmlns:u="urn:u" xml:lang="fr" xml:space="default" xml:id="i"><m xml:lang="de"><e b="1"/></m></r>',
    );
    const [m, e] = [find(root, 'm'), find(root, 'e')];
    expect(canonicalSubset(e, [root, m])).toBe(
      '<e xmlns="urn:d" xmlns:u="urn:u" b="1" xml:lang="de" xml:space="default"></e>',
    );
    expect(canonicalSubset(m, [root])).toBe(
      '<m xmlns="urn:d" xmlns:u="urn:u" xml:lang="de" xml:space="default"><e b="1"></e></m>',
    );
  });

  it('refuses to join xml:base, and writes it where it stands', () => {
    const root = parseXml('<r xml:base="http://x/"><e/></r>');
    expect(() => canonicalSubset(find(root, 'e'), [root])).toThrow(expect.objectContaining({ code: 'rim_malformed' }));
    expect(canonicalDocument(root, NOTHING)).toBe('<r xml:base="http://x/"><e></e></r>');
  });
});
