// What sealed requests are made of: binary HTTP, documents of keys, and sealed messages. Each character is a byte.
import { encryptWith } from '../../gateway/sealing/sealed-response.ts';
import { varint } from '../../sealed/byte-source.ts';
import {
  chooseKey,
  KEYS_OF_A_SESSION,
  makeKeys,
  type OpeningKey,
  ResponseSealer,
  responseKeys,
  SECRET_BYTES,
  sealRequest,
} from '../../sealed/index.ts';
import type { ResponseSecret } from '../../sealed/response.ts';
import { these } from '../sealed/chunks.ts';
import { each, type Format, type Production, type Productions, repeat, within } from './grammar.ts';

const length = (value: number): string => Buffer.from(varint(value)).toString('latin1');
const text = (value: string): string => length(value.length) + value;
const field = (name: string, value: string): string => text(name) + text(value);
/** A length in the longest form. */
const wide = (value: number): string => `\xc0${'\0'.repeat(6)}${String.fromCharCode(value)}`;

const CONTROL = ['POST', 'https', 'a', '/v1/chat/completions'].map(text).join('');
const END = '\0';

const FIELDS: Productions = {
  'many names': each((i) => field(`x-${i}`, 'y')),
  'one name, again and again': repeat(field('x', 'y')),
  cookies: repeat(field('cookie', 'a=b')),
  'fields without values': repeat(field('a', '')),
  'lengths in the longest form': repeat(`${wide(1)}a${wide(1)}b`),
  'a long value': (n) => field('a', 'x'.repeat(n)),
  'a long value of spaces': (n) => field('a', `b${' '.repeat(n)}c`),
  'a long value beyond ASCII': (n) => field('a', '\xff'.repeat(n)),
  'a long name': (n) => field('a'.repeat(n), 'x'),
  'a long name in capitals': (n) => field('A'.repeat(n), 'x'),
  'a long date': (n) => field('date', '1'.repeat(n)),
  'a long list of a connection': (n) => field('connection', `${'a, '.repeat(n / 3)}a`),
};
const CONTENTS: Productions = {
  'small chunks': within('', repeat(`${length(1)}x`), END),
  'small chunks, lengths in the longest form': within('', repeat(`${wide(1)}x`), END),
  'one large chunk': (n) => `${text('x'.repeat(n))}${END}`,
  'chunks without an end': repeat(`${length(1)}x`),
  padding: within(END + END, repeat('\0'), ''),
};

/** Each of the fields as a message's header and as its trailer, and each of the contents, behind a message's head. */
function messages(known: string, indeterminate: string): Productions {
  const all: Record<string, Production> = {};
  for (const [name, make] of Object.entries(FIELDS)) {
    all[name] = (n) => indeterminate + make(n) + END + END;
    all[`${name}, without an end`] = (n) => indeterminate + make(n);
    all[`${name}, of a known length`] = (n) => known + text(make(n)) + END;
    all[`${name}, as trailers`] = (n) => indeterminate + END + END + make(n) + END;
  }
  for (const [name, make] of Object.entries(CONTENTS)) all[name] = (n) => indeterminate + END + make(n);
  all['content of a known length'] = (n) => known + END + text('x'.repeat(n));
  return all;
}

const control = (parts: (n: number) => readonly string[]): Production => {
  return (n) => `\x02${parts(n).map(text).join('')}${END}${END}`;
};

const requests: Format = {
  name: 'sealed requests, opened',
  most: 8_192,
  encoding: 'latin1',
  productions: {
    ...messages(`\x00${CONTROL}`, `\x02${CONTROL}`),
    'a long method': control((n) => ['P'.repeat(n), 'https', 'a', '/v1/models']),
    'a long scheme': control((n) => ['GET', 'h'.repeat(n), 'a', '/v1/models']),
    'a long authority': control((n) => ['GET', 'https', 'a'.repeat(n), '/v1/models']),
    'a long path': control((n) => ['GET', 'https', 'a', `/v1/${'x'.repeat(n)}`]),
    'a long path of escapes': control((n) => ['GET', 'https', 'a', `/v1/${'%61'.repeat(n / 3)}`]),
    'a long path of dots': control((n) => ['GET', 'https', 'a', `/v1${'/..'.repeat(n / 3)}`]),
  },
};

const OK = length(200);
const responses: Format = {
  name: 'sealed responses, opened',
  most: 8_192,
  encoding: 'latin1',
  productions: {
    ...messages(`\x01${OK}`, `\x03${OK}`),
    'interim responses that say much': (n) =>
      `\x03${`${length(103)}${field('a', 'x'.repeat(n / 16))}${END}`.repeat(16)}${OK}${END}${END}`,
  },
};

const u16 = (value: number): string => String.fromCharCode(value >> 8, value & 0xff);
const X25519 = `\x01\x00\x20${'\x09'.repeat(32)}`;
const configuration = (key: string, pairs: string): string => {
  const body = key + u16(pairs.length) + pairs;
  return u16(body.length) + body;
};
const KNOWN_PAIR = '\x00\x01\x00\x01';
const OTHER_PAIR = '\xff\xff\xff\xff';

const documents: Format = {
  name: 'documents of keys',
  // A reader takes 3,072 bytes.
  most: 2_900,
  encoding: 'latin1',
  productions: {
    'configurations of ours': repeat(configuration(X25519, KNOWN_PAIR)),
    'configurations with algorithms that are not ours': repeat(configuration(X25519, OTHER_PAIR)),
    'configurations of a KEM that is not ours': repeat(configuration('\x01\xff\xff', KNOWN_PAIR)),
    'short configurations': repeat(`${u16(3)}\x01\xff\xff`),
    'many algorithms': (n) => configuration(X25519, OTHER_PAIR.repeat(n / 4)),
    'many algorithms, the last of ours': (n) => configuration(X25519, OTHER_PAIR.repeat(n / 4) + KNOWN_PAIR),
    'a long key': (n) => configuration(`\x01\xff\xff${'x'.repeat(n)}`, KNOWN_PAIR),
    'one that breaks off': within('', repeat(configuration(X25519, KNOWN_PAIR)), `${u16(9)}x`),
  },
};

const { document, keys } = await makeKeys(
  0,
  Array.from({ length: KEYS_OF_A_SESSION }, () => new Uint8Array(SECRET_BYTES)),
);
const sealingKey = await chooseKey(document);
/** That of {@link sealingKey}, which sealed the messages below. */
export const OPENING_KEY = keys.find(({ key_id }) => key_id === sealingKey.key_id) as OpeningKey;
export const RESPONSE_SECRET: ResponseSecret = {
  secret: new Uint8Array(16),
  enc: new Uint8Array(32),
  key_bytes: 16,
  nonce_bytes: 12,
};

async function sealedRequest(...parts: readonly Uint8Array[]): Promise<string> {
  const { chunks } = await sealRequest(sealingKey, these(...parts));
  const sealed: Uint8Array[] = [];
  for await (const chunk of chunks) sealed.push(chunk);
  return Buffer.concat(sealed).toString('latin1');
}

async function sealedResponse(...parts: readonly Uint8Array[]): Promise<string> {
  const secrets = await responseKeys(RESPONSE_SECRET, new Uint8Array(16));
  const sealer = new ResponseSealer(secrets, encryptWith(secrets.key));
  const sealed = parts.flatMap((part, i) => sealer.seal(part, i === parts.length - 1));
  return Buffer.concat(sealed).toString('latin1');
}

/** A chunk of one byte takes 18 bytes when it is sealed. */
const single = (n: number): Uint8Array[] => Array.from({ length: Math.ceil(n / 18) }, () => new Uint8Array(1));
const sealedBy = (seal: (...parts: readonly Uint8Array[]) => Promise<string>) => ({
  'small chunks': (n: number) => seal(...single(n)),
  'small chunks, the last of them cut': async (n: number) => (await seal(...single(n))).slice(0, -1),
  'one chunk': (n: number) => seal(new Uint8Array(n)),
  'one chunk that was changed': async (n: number) => `${(await seal(new Uint8Array(n))).slice(0, -1)}x`,
});

export const sealedFormats: readonly Format[] = [
  requests,
  responses,
  documents,
  { name: 'sealed requests', most: 8_192, encoding: 'latin1', productions: sealedBy(sealedRequest) },
  { name: 'sealed responses', most: 8_192, encoding: 'latin1', productions: sealedBy(sealedResponse) },
];
