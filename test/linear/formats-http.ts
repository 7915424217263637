// HTTP: heads, bodies, requests, targets and hosts; the lines of a keys file, and the frames of the sidecar.
import { each, type Format, halves, type Productions, pairs, repeat, shaped, within, words } from './grammar.ts';

const HASH = '0'.repeat(64);
const HEADER_LINES = [
  'a: b\r\n',
  'a:\r\n',
  'a:  \t b \r\n',
  'connection: close\r\n',
  'connection: a, b\r\n',
  'content-length: 1\r\n',
  'date: x\r\n',
  'set-cookie: a=b\r\n',
  'transfer-encoding: chunked\r\n',
  ' a\r\n',
  'a\r\n',
  '\r',
  '\n',
  'x',
  ' ',
  ':',
  ',',
  '\t',
  '\x80',
];
const HEADERS: Productions = {
  ...words(HEADER_LINES),
  ...pairs(['a: b\r\n', ' ', ':']),
  'many names': each((i) => `x-${i}: y\r\n`),
  'a long value': within('a: ', repeat('x'), '\r\n'),
  'a long value of spaces': within('a: b', repeat(' '), 'c\r\n'),
  'a long name': within('', repeat('x'), ': y\r\n'),
  'a list in connection': within(
    'connection: ',
    each((i) => `x-${i}, `),
    'close\r\n',
  ),
  'a list of addresses': within('x-forwarded-for: ', repeat('1.2.3.4, '), '1.2.3.4\r\n'),
  'an address of many groups': within('x-forwarded-for: ', repeat('0:'), ':1\r\n'),
  'an address of many pairs of colons': within('x-forwarded-for: ', repeat('::'), '\r\n'),
  'a media type of many parameters': within('content-type: text/event-stream', repeat('; a=b'), '\r\n'),
  'lengths that agree': repeat('content-length: 10\r\n'),
};

const heads: Format = {
  name: 'heads of answers',
  most: 8_192,
  encoding: 'latin1',
  productions: {
    ...shaped(
      {
        head: (text) => `HTTP/1.1 200 OK\r\n${text}\r\n`,
        'no end': (text) => `HTTP/1.1 200 OK\r\n${text}`,
      },
      HEADERS,
    ),
    'a long status line': within('HTTP/1.1 200 ', repeat('x'), '\r\n\r\n'),
    'interim answers': repeat('HTTP/1.1 100 Continue\r\n\r\n'),
    'interim answers that say much': repeat('HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n'),
    'an answer and its body': (n) => `HTTP/1.1 200 OK\r\ncontent-length: ${Math.floor(n)}\r\n\r\n${'x'.repeat(n)}`,
    'an answer of small chunks': within(
      'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n',
      repeat('1\r\nx\r\n'),
      '0\r\n\r\n',
    ),
  },
};

const chunked: Format = {
  name: 'chunked bodies',
  most: 8_192,
  encoding: 'latin1',
  productions: {
    ...words([
      '1\r\nx\r\n',
      '01\r\nx\r\n',
      '1;a\r\nx\r\n',
      '1;a=b;c="d"\r\nx\r\n',
      'a\r\n0123456789\r\n',
      '0\r\n',
      '\r\n',
      '\r',
      '\n',
      'x',
      '0',
      ' ',
      ';',
    ]),
    ...pairs(['1\r\nx\r\n', '1;a\r\nx\r\n', '\r', '0']),
    'extensions that are long': each(() => `1;${'x'.repeat(500)}\r\nx\r\n`),
    'one large chunk': (n) => `${Math.floor(n).toString(16)}\r\n${'x'.repeat(n)}\r\n0\r\n\r\n`,
    trailers: (n) => `0\r\n${repeat('a: b\r\n')(n / 4)}\r\n`,
  },
};

const asking: Format = {
  name: 'requests as bytes',
  most: 12_000,
  encoding: 'latin1',
  productions: {
    ...shaped(
      {
        head: (text) => `POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n${text}\r\n{}`,
        'no end': (text) => `POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n${text}`,
      },
      HEADERS,
    ),
    'a line that is no request': repeat('x'),
    'line ends before a request': repeat('\r\n'),
    'a body': (n) =>
      `POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: ${Math.floor(n)}\r\n\r\n${'x'.repeat(n)}`,
    'a body that is not all here': (n) =>
      `POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 60000\r\n\r\n${'x'.repeat(n)}`,
  },
};

const targets: Format = {
  name: 'targets, hosts and origins',
  most: 16_384,
  encoding: 'latin1',
  productions: {
    ...words(
      ['/', '/a', '%41', '%', '%2f', '%4', '?', '?a=b', '&', '#', '@', ':', '.', '[', ']', 'a', '-', '1', '*', '\\'],
      [
        ['', ''],
        ['/', ''],
        ['http://', ''],
        ['http://a', ''],
        ['https://a:1/', ''],
        ['[', ']:1'],
      ],
    ),
    ...pairs(['/', '%41', '?', 'a', '@', '.', ':']),
  },
};

const keys: Format = {
  name: 'lines of keys',
  most: 16_384,
  encoding: 'utf8',
  productions: {
    ...words(
      ['rps=1 ', 'tee=2 ', 'models=a,b ', 'x', ' ', ':', '=', ',', '\t', ':sha256:', 'a:sha256:', '#'],
      [
        ['', ''],
        [`a:sha256:${HASH} `, ''],
        [`a:sha256:${HASH} models=`, ''],
      ],
    ),
    ...pairs(['rps=1 ', ' ', ':', 'x', '=']),
    'many models': within(
      `a:sha256:${HASH} models=`,
      each((i) => `m${i},`),
      'x',
    ),
    'many keys': each((i) => `k${i}:sha256:${i.toString(16).padStart(64, '0')} rps=1\n`),
    'many plain keys': each((i) => `key-number-${i}\n`),
    'many comments': halves(repeat('# x\n'), repeat('\n')),
  },
};

const PART = 'content-disposition: form-data; name="model"\r\n\r\n';
const forms: Format = {
  name: 'forms',
  most: 16_384,
  encoding: 'latin1',
  productions: {
    ...words(
      ['--x', '\r\n', '\r\n--x', '\r\n\r\n', PART, 'name="model"', 'content-disposition:', ' ', ';', '\n', 'm'],
      [
        ['', ''],
        ['--x\r\n', '\r\n--x--\r\n'],
        [`--x\r\n${PART}`, '\r\n--x--\r\n'],
        ['--x\r\ncontent-disposition:', '\r\n\r\nm\r\n--x--\r\n'],
      ],
    ),
    ...pairs(['--x', '\r\n', ' ', 'name="model"', ';', 'm']),
    'many parts': within('--x', repeat(`\r\n${PART.replace('model', 'file')}a\r\n--x`), '--\r\n'),
  },
};

const frames: Format = {
  name: 'frames',
  most: 16_384,
  encoding: 'latin1',
  productions: {
    ...words(
      ['x', '\n', '{}', '{}\n', '{"a":1}', ' ', '"'],
      [
        ['', ''],
        [`{"type":"attested","id":"a","nonce":"${HASH}"}\n`, ''],
        ['{"type":"status","attester":"', '"}'],
      ],
    ),
    'devices in a greeting': within('{"type":"hello","devices":[', repeat('{"arch":"a","model":"b"},'), '{}]}'),
    phases: within(
      '{"type":"attested","phases":{',
      each((i) => `"p${i}":1,`),
      '"a":1}}',
    ),
  },
};

export const httpFormats: readonly Format[] = [heads, chunked, asking, targets, keys, forms, frames];
