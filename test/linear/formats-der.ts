// DER in the shapes of certificates and revocation answers, PEM, base64.

import { chainPem } from '../../demo/twin/pki.ts';
import type { World } from '../../scripts/vectors/world.ts';
import {
  each,
  type Format,
  halves,
  type Production,
  type Productions,
  pairs,
  repeat,
  shaped,
  square,
  words,
} from './grammar.ts';

/** One value of DER, each character a byte. */
function tlv(tag: number, ...contents: readonly string[]): string {
  const content = contents.join('');
  const { length } = content;
  const octets =
    length < 0x80
      ? []
      : length < 0x100
        ? [length]
        : length < 0x10000
          ? [length >> 8, length]
          : [length >> 16, length >> 8, length];
  return (
    String.fromCharCode(
      tag,
      ...(octets.length === 0 ? [length] : [0x80 | octets.length, ...octets.map((one) => one & 0xff)]),
    ) + content
  );
}
const bytes = (hex: string): string => Buffer.from(hex, 'hex').toString('latin1');
const sequence = (...items: readonly string[]): string => tlv(0x30, ...items);
const NULL = bytes('0500');
const ONE = bytes('020101');
const ECDSA_SHA384 = sequence(bytes('06082a8648ce3d040303'));
const attribute = (value: string) => sequence(bytes('0603550403'), tlv(0x0c, value));
const NAME = sequence(tlv(0x31, attribute('x')));
const DATE = tlv(0x18, '20250601120000Z');
const UNTIL = sequence(DATE, DATE);
const KEY = sequence(
  sequence(bytes('06072a8648ce3d0201'), bytes('06052b81040022')),
  tlv(0x03, `\0\x04${'x'.repeat(96)}`),
);
const SIGNATURE = tlv(0x03, `\0${sequence(ONE, ONE)}`);
const certificate = ({ subject = NAME, issuer = NAME, extensions = '', key = KEY }) =>
  sequence(
    sequence(tlv(0xa0, bytes('020102')), ONE, ECDSA_SHA384, issuer, UNTIL, subject, key, extensions),
    ECDSA_SHA384,
    SIGNATURE,
  );
const extension = (i: number, value = NULL) =>
  sequence(tlv(0x06, '\x55\x1d', String.fromCharCode(0x81 + (i >> 7), i & 0x7f)), tlv(0x04, value));
const about = (serial: string, rest = '') =>
  sequence(
    sequence(sequence(bytes('06052b0e03021a'), NULL), tlv(0x04, 'n'.repeat(20)), tlv(0x04, 'k'.repeat(20)), serial),
    bytes('8000'),
    DATE,
    rest,
  );
const answer = ({ list = about(ONE), more = '', embedded = '' }) =>
  sequence(
    bytes('0a0100'),
    tlv(
      0xa0,
      sequence(
        bytes('06092b0601050507300101'),
        tlv(
          0x04,
          sequence(
            sequence(tlv(0xa2, tlv(0x04, 'h'.repeat(20))), DATE, sequence(list), more),
            ECDSA_SHA384,
            SIGNATURE,
            embedded,
          ),
        ),
      ),
    ),
  );
/** Fewer than the values of one sequence that are looked at. */
const few =
  (production: Production, most: number): Production =>
  (n) =>
    production(Math.min(n, most));

const CONTENTS: Productions = {
  nulls: few(repeat(NULL), 2_000),
  integers: few(repeat(ONE), 3_000),
  'an object identifier of many arcs': (n) => tlv(0x06, repeat('\x01')(n)),
  'an object identifier of one arc': (n) => tlv(0x06, `${repeat('\xff')(n)}\x01`),
  'a long integer': (n) => tlv(0x02, repeat('\x7f')(n)),
  'a long text': (n) => tlv(0x0c, repeat('x')(n)),
  'empty sequences': few(repeat(bytes('3000')), 2_000),
  sets: few(repeat(tlv(0x31, sequence(bytes('0603550404'), tlv(0x0c, 'x')))), 14_000),
  'sequences in sequences': (n) => {
    let inner = NULL;
    while (inner.length < n) inner = sequence(inner);
    return inner;
  },
  'sequences of many in many': few(repeat(sequence(NULL.repeat(30))), 14_000),
};

const der: Format = {
  name: 'DER',
  most: 14_000,
  encoding: 'latin1',
  productions: {
    ...shaped(
      {
        sequence: (text) => sequence(text),
        'a subject': (text) => certificate({ subject: sequence(text) }),
        'an issuer': (text) => certificate({ issuer: sequence(text) }),
        'a key': (text) => certificate({ key: sequence(text) }),
        'an extension': (text) => certificate({ extensions: tlv(0xa3, sequence(extension(37, sequence(text)))) }),
        answers: (text) => answer({ list: text }),
        'an answer': (text) => answer({ list: about(ONE, text) }),
        'extensions of an answer': (text) => answer({ more: tlv(0xa1, sequence(text)) }),
        'certificates of an answer': (text) => answer({ embedded: tlv(0xa0, sequence(text)) }),
      },
      CONTENTS,
    ),
    ...words(['\x30\x80', '\x30\x84', '\x30', '\0', '\xff', '\x1f', '\x30\x82\x01\0']),
    extensions: (n) => certificate({ extensions: tlv(0xa3, sequence(each((i) => extension(i))(n))) }),
    'answers about one certificate': (n) => answer({ list: repeat(about(ONE))(n) }),
    'answers about many certificates': (n) =>
      answer({ list: each((i) => about(tlv(0x02, String.fromCharCode(1 + (i >> 8), i & 0xff))))(n) }),
    'names of many parts': (n) =>
      certificate({
        subject: sequence(tlv(0x31, few(repeat(sequence(bytes('0603550404'), tlv(0x0c, 'x'))), 12_000)(n))),
      }),
  },
};

/** Revocation answers, many in a list: each a byte string with its length before it. */
const lists: Format = {
  name: 'lists of revocation answers',
  most: 30_000,
  encoding: 'latin1',
  productions: {
    'about one certificate': each(() => answer({ list: about(ONE).repeat(20) })),
    'about many certificates': each((i) =>
      answer({ list: about(tlv(0x02, String.fromCharCode(1 + (i >> 8), i & 0xff))) }),
    ),
    'one answer each, about one certificate': each(() => answer({})),
  },
};

const BEGIN = '-----BEGIN CERTIFICATE-----';
const END = '-----END CERTIFICATE-----';
const block = (der: string) => `${BEGIN}\n${Buffer.from(der, 'latin1').toString('base64')}\n${END}\n`;

const pem = (world: World): Format => ({
  name: 'PEM',
  most: 16_384,
  encoding: 'utf8',
  productions: {
    ...words(
      [
        BEGIN,
        `${BEGIN}\nAAAA\n`,
        END,
        `${BEGIN}${END}`,
        'A',
        'AAAA\n',
        '=',
        ' ',
        '\n',
        '-',
        '-----',
        '-----BEGIN ',
        '-----BEGIN X-----',
        block(sequence(NULL)),
      ],
      [
        ['', ''],
        [`${BEGIN}\n`, `\n${END}\n`],
      ],
    ),
    ...pairs([BEGIN, END, 'AAAA\n', '-', '\n']),
    'a certificate that is long': (n) =>
      block(certificate({ subject: sequence(tlv(0x31, attribute('x'.repeat(n / 5)))) })),
    'text around a chain': (n) => repeat('x\n')(n) + chainPem(world.a) + repeat('x\n')(n),
  },
});

const base64: Format = {
  name: 'base64 and hexadecimal',
  most: 16_384,
  encoding: 'utf8',
  productions: {
    ...words(['A', 'AAAA', '-', '_', '=', '==', 'AAA=', '\n', ' ', '+/', 'AAAA\n', '0', 'é']),
    'a line end behind each line': square('AAAA', '\n'),
    'padding behind the text': halves(repeat('AAAA'), repeat('=')),
  },
};

export const derFormats = (world: World): Format[] => [der, lists, pem(world), base64];
