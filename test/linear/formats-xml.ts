// Reference values in XML, and reports with their opaque data.
import type { World } from '../../scripts/vectors/world.ts';
import { makeRim } from '../twin/rim.ts';
import { each, type Format, nested, type Productions, pairs, repeat, shaped, within, words } from './grammar.ts';

const TCG = 'https://trustedcomputinggroup.org/resource/tcg-reference-integrity-manifest-rim-information-model/';
const HASH = '0'.repeat(96);
const resource = (i: number, more = '') =>
  `<Resource type="Measurement" index="${i}" active="True" alternatives="1" h:Hash0="${HASH}" name="m" size="48"${more}/>`;
const swid = (payload: string, more = '') =>
  `<SoftwareIdentity xmlns="http://standards.iso.org/iso/19770/-2/2015/schema.xsd" xmlns:h="http://www.w3.org/2001/04/xmlenc#sha384" xmlns:t="${TCG}" tagId="x"${more}><Meta colloquialVersion="1"/><Payload>${payload}</Payload></SoftwareIdentity>`;

const xml = (world: World): Format => {
  const rim = makeRim('driver', world.rimSigner);
  const [, head = '', rest = ''] = /^(.*?>)(.*)$/s.exec(rim) ?? [];
  const beforeSignature = rim.indexOf('<ds:Signature') < 0 ? rim.lastIndexOf('</') : rim.indexOf('<ds:Signature');
  return {
    name: 'XML',
    most: 16_384,
    encoding: 'utf8',
    productions: {
      ...words(
        [
          '<a>',
          '<a/>',
          '<a></a>',
          '<a x="1" y="2"/>',
          '<!-- x -->',
          '<!-- ',
          '--',
          '&amp;',
          '&',
          '&#x41;',
          '&#',
          'x',
          ' ',
          '\n',
          '\r\n',
          '\r',
          ']]>',
          ']',
          '<',
          '>',
          '"',
          "'",
          '</a>',
          '<?x?>',
          '<!',
          'é',
          '&amp;<!-- -->',
        ],
        [
          ['', ''],
          ['<r>', '</r>'],
          ['<r a="', '"/>'],
          ['<r ', '/>'],
        ],
      ),
      ...pairs(['<a/>', 'x', '<!-- -->', '&amp;', '\n', '<b y="1"></b>'], ['<r>', '</r>']),
      'a long name': within('<', repeat('x'), '/>'),
      'a long prefix': within('<', repeat('x'), ':y xmlns:x="urn:x"/>'),
      'colons in a name': within('<', repeat('x:'), 'y/>'),
      'a long attribute': within('<r x="', repeat('x'), '"/>'),
      'attributes that are long': (n) =>
        `<r${Array.from({ length: 60 }, (_, i) => ` a${i}="${'x'.repeat(n / 60)}"`).join('')}/>`,
      'elements of many attributes': within(
        '<r>',
        repeat(`<a${Array.from({ length: 12 }, (_, i) => ` a${i}="x"`).join('')}/>`),
        '</r>',
      ),
      'elements of many namespaces': within(
        '<r>',
        repeat(`<a${Array.from({ length: 6 }, (_, i) => ` xmlns:n${i}="urn:x"`).join('')}/>`),
        '</r>',
      ),
      'namespaces in scope of many': within(
        `<r${Array.from({ length: 30 }, (_, i) => ` xmlns:n${i}="urn:x"`).join('')}>`,
        repeat('<n1:a n2:b="c"><d/></n1:a>'),
        '</r>',
      ),
      'namespaces declared anew, deeper': within(
        '<r>',
        repeat(`${nested('<a xmlns="urn:x">', 'x', '</a>')(300)}`),
        '</r>',
      ),
      'a namespace that is long': within('<r xmlns:x="urn:', repeat('x'), '"><x:a/></r>'),
      'text in many parts': within('<r>', repeat('x<!-- -->'), '</r>'),
      'space in tags': within('<r', repeat(' '), '/>'),
      'space in an end tag': within('<r></r', repeat(' '), '>'),
      'space before an equals sign': within('<r x', repeat(' '), '="1"/>'),
      'many resources': (n) => swid(each((i) => resource(i % 250))(n)),
      'resources of opaque data': (n) => swid(each((i) => resource(0x1000 + i, ' minSvn="1"'))(n)),
      'a long hash': (n) => swid(resource(1).replace(HASH, '0'.repeat(n))),
      'text between resources': (n) => swid(repeat(`x${resource(1)}`)(n)),
      'a manifest with much in it': (n) => head + repeat('<x/>')(n) + rest,
      'a manifest with comments in it': (n) => head + repeat('<!-- x -->')(n) + rest,
      'a manifest with text in it': (n) => rim.slice(0, beforeSignature) + repeat('x')(n) + rim.slice(beforeSignature),
      'a manifest, digest and space': (n) => rim.replace(/<\/(\w+:)?DigestValue>/, (end) => repeat('\n ')(n) + end),
      'a manifest, signature and space': (n) =>
        rim.replace(/<\/(\w+:)?SignatureValue>/, (end) => repeat('\n ')(n) + end),
      'a manifest, certificate and space': (n) =>
        rim.replace(/<\/(\w+:)?X509Certificate>/, (end) => repeat('\n ')(n) + end),
      'many transforms': (n) => rim.replace(/<\/(\w+:)?Transforms>/, (end) => repeat('<x/>')(n) + end),
    },
  };
};

const little = (value: number, length: number) =>
  Array.from({ length }, (_, i) => String.fromCharCode((value >> (8 * i)) & 0xff)).join('');
const field = (type: number, value: string) => little(type, 2) + little(value.length, 2) + value;
const newField = (type: number, value: string) => `${little(type, 2)}\x87\0${little(value.length, 2)}${value}`;
const NVDAOD = 'NVDAOD\0\0\x01\0\0\0';
const OPAQUES: Productions = {
  'many fields': each((i) => field(1_000 + i, 'xx')),
  'one field, again and again': repeat(field(1_000, '')),
  'a field that is long': (n) => field(20, 'x'.repeat(n)),
  'a text that is long': (n) => field(3, 'x'.repeat(n)),
  'a text of zeros': (n) => field(3, '\0'.repeat(n)),
  counts: (n) => field(12, 'xxxx'.repeat(n / 4)),
  'a number that is long': (n) => field(34, '\x01'.repeat(n)),
  'many security versions': within(
    NVDAOD,
    each((i) => newField(1_000 + i, 'xx')),
    '',
  ),
  'a headed field that is long': (n) => NVDAOD + newField(20, 'x'.repeat(n)),
  zeros: repeat('\0'),
};
const report = (record: string, count: number, opaque: string) =>
  `\x11\xe0\x01\xff${'n'.repeat(32)}\0\x11\x60\0\0${little(count, 1)}${little(record.length, 3)}${record}${'n'.repeat(32)}${little(opaque.length, 2)}${opaque}${'s'.repeat(96)}`;
const measurement = (i: number, value: string) =>
  `${little(i, 1)}\x01${little(value.length + 3, 2)}\x01${little(value.length, 2)}${value}`;

const opaque: Format = { name: 'opaque data', most: 30_000, encoding: 'latin1', productions: OPAQUES };
const reports: Format = {
  name: 'reports',
  most: 30_000,
  encoding: 'latin1',
  productions: {
    ...shaped({ opaque: (text) => report(measurement(1, 'x'.repeat(48)), 1, text) }, OPAQUES),
    'many blocks': (n) =>
      report(Array.from({ length: 250 }, (_, i) => measurement(i, 'x'.repeat(n / 250))).join(''), 250, ''),
    'a block that is long': (n) => report(measurement(1, 'x'.repeat(n)), 1, ''),
    zeros: repeat('\0'),
  },
};

export const xmlFormats = (world: World): Format[] => [xml(world), opaque, reports];
