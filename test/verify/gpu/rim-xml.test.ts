// The XML parser: what it reads as the standards say, and what it refuses.
import { describe, expect, it } from 'vitest';
import { CheckFailure } from '../../../verify/common/checks.ts';
import { childElements, onlyText, parseXml } from '../../../verify/gpu/rim/xml.ts';

const refused = (source: string | Uint8Array) => expect(() => parseXml(source)).toThrow(CheckFailure);

describe('the XML parser', () => {
  it('reads names by namespace, whatever their prefix', () => {
    const root = parseXml('<a:r xmlns:a="urn:x" xmlns="urn:y"><c a:k="1" k="2"/><b:c xmlns:b="urn:x"/></a:r>');
    const [first, second] = childElements(root);
    expect([root.namespace, first?.namespace, second?.namespace]).toEqual(['urn:x', 'urn:y', 'urn:x']);
    expect(first?.attributes.map(({ namespace, value }) => [namespace, value])).toEqual([
      ['urn:x', '1'],
      ['', '2'],
    ]);
  });

  it('joins the text around a comment, as the canonical form does', () => {
    expect(onlyText(parseXml('<r>ab<!-- - x <y> -->cd<!---->e</r>'))).toBe('abcde');
  });

  it('resolves the predefined and the numeric references and no others', () => {
    expect(onlyText(parseXml('<r>&lt;&gt;&amp;&apos;&quot;&#65;&#x1F600;</r>'))).toBe('<>&\'"A\u{1F600}');
    for (const reference of [
      '&nbsp;',
      '&',
      '&;',
      '&lt',
      '&#;',
      '&#x;',
      '&#0;',
      '&#xD800;',
      '&#x110000;',
      '&#xFFFE;',
      '&#-1;',
    ])
      refused(`<r>${reference}</r>`);
    refused('<r a="&x;"/>');
  });

  it('normalizes line ends, and white space in attributes', () => {
    const root = parseXml('<r a="1\r\n2\t3&#10;4">x\r\ny\rz&#13;</r>');
    expect(root.attributes[0]?.value).toBe('1 2 3\n4');
    expect(onlyText(root)).toBe('x\ny\nz\r');
  });

  it('takes a byte order mark, a declaration of UTF-8 and comments around the root', () => {
    for (const before of [
      '',
      '\uFEFF',
      '<?xml version="1.0"?>',
      "<?xml version='1.0' encoding='utf-8' standalone='yes' ?>\n",
    ])
      expect(parseXml(`${before}<!-- x --><r/>\n<!-- y -->`).local).toBe('r');
  });

  it('refuses document types, entities, CDATA sections and processing instructions', () => {
    refused('<!DOCTYPE r><r/>');
    refused('<!DOCTYPE r [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><r>&b;</r>');
    refused('<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]><r>&x;</r>');
    refused('<r><![CDATA[x]]></r>');
    refused('<r><?x y?></r>');
    refused('<?xml-stylesheet href="x"?><r/>');
    refused(' <?xml version="1.0"?><r/>');
    refused('<?xml version="1.1"?><r/>');
    refused('<?xml version="1.0" encoding="utf-16"?><r/>');
  });

  it('refuses what is not well formed', () => {
    const texts = [
      '',
      ' ',
      'x',
      '<',
      '<r',
      '<r>',
      '<r a>',
      '<r a=1/>',
      '<r a="<"/>',
      '<r a="1"b="2"/>',
      '<r/><r/>',
      '<r/>x',
    ];
    for (const text of [
      ...texts,
      '<r></s>',
      '</r>',
      '<r></r >x',
      '<a><b></a></b>',
      '<1/>',
      '<r a="1" a="2"/>',
      '< r/>',
    ])
      refused(text);
    for (const text of [
      '<r>]]></r>',
      '<r><!-- -- --></r>',
      '<r><!-- ---></r>',
      '<r><!-- </r>',
      '<r>\u0000</r>',
      '<r>\uD800</r>',
    ])
      refused(text);
    refused(Uint8Array.of(0x3c, 0x72, 0x3e, 0xff, 0x3c, 0x2f, 0x72, 0x3e));
    refused(new TextEncoder().encode('<r/>').slice(0, 3));
    refused(Buffer.from('\uFEFF<r/>', 'utf16le'));
  });

  it('refuses namespaces that are not declared, declared twice or reserved', () => {
    const texts = [
      '<a:r/>',
      '<r a:b="1"/>',
      '<r xmlns:a=""/>',
      '<r xmlns:a="urn:x" xmlns:a="urn:y"/>',
      '<:r/>',
      '<a:/>',
      '<a:b:c xmlns:a="urn:x"/>',
    ];
    for (const text of [
      ...texts,
      '<r xmlns:xml="urn:x"/>',
      '<r xmlns:xmlns="urn:x"/>',
      '<r xmlns="http://www.w3.org/2000/xmlns/"/>',
    ])
      refused(text);
    refused('<r xmlns="http://www.w3.org/XML/1998/namespace"/>');
    refused('<r xmlns="relative/uri"/>');
    refused('<r xmlns:a="urn:x" xmlns:b="urn:x" a:k="1" b:k="2"/>');
  });

  it('has limits of size, depth, elements, attributes and namespaces', () => {
    const many = (count: number, text: (i: number) => string) =>
      Array.from({ length: count }, (_, i) => text(i)).join('');
    refused(`<r>${' '.repeat(1024 * 1024)}</r>`);
    refused(`${'<r>'.repeat(17)}${'</r>'.repeat(17)}`);
    refused(`<r>${'<s/>'.repeat(4096)}</r>`);
    refused(`<r${many(65, (i) => ` a${i}="1"`)}/>`);
    refused(`<r${many(33, (i) => ` xmlns:a${i}="urn:x"`)}/>`);
    expect(parseXml(`${'<r>'.repeat(16)}${'</r>'.repeat(16)}`)).toBeDefined();
    expect(childElements(parseXml(`<r>${'<s/>'.repeat(4095)}</r>`))).toHaveLength(4095);
  });

  it('takes time in proportion to what it reads', () => {
    const mega = 1000 * 1000;
    const texts = [
      `<${'a'.repeat(mega)}`,
      `<r ${' '.repeat(mega)}x`,
      `<r a="${'&amp;'.repeat(mega / 5)}`,
      `<r a="${'<'.repeat(mega)}"/>`,
      `<r>${'&#65;'.repeat(mega / 5)}</r`,
      `<r>${'<!---->'.repeat(mega / 7)}`,
      `<r>${'<!-- '.repeat(mega / 5)}`,
      '<'.repeat(mega),
      '&'.repeat(mega),
      `<r>${'\r'.repeat(mega)}`,
    ];
    const started = performance.now();
    for (const text of texts) refused(text);
    expect(performance.now() - started).toBeLessThan(3000);
  });
});
