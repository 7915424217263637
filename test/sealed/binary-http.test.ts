// Binary HTTP: the examples of RFC 9292 §5, bhttp-js as the other side, and what is cut, too large or not of the format.
import { BHttpDecoder, BHttpEncoder } from 'bhttp-js';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { joined } from '../../sealed/byte-source.ts';
import {
  type Field,
  type RequestHead,
  readRequest,
  readResponse,
  writeContent,
  writeEnd,
  writeRequestHead,
  writeResponseHead,
} from '../../sealed/index.ts';
import { all, codeOf, hex, inChunks } from './chunks.ts';

type MessageLimits = Parameters<typeof readRequest>[1];

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('latin1');
const utf8 = (value: string) => new TextEncoder().encode(value);

async function wholeRequest(bytes: Uint8Array, size?: number, limits?: MessageLimits) {
  const { head, content } = await readRequest(inChunks(bytes, size), limits);
  return { ...head, content: text(await all(content)) };
}

async function wholeResponse(bytes: Uint8Array, size?: number, limits?: MessageLimits) {
  const { head, content } = await readResponse(inChunks(bytes, size), limits);
  return { ...head, content: text(await all(content)) };
}

// RFC 9292 §5.1: the same request of known and of indeterminate length, the latter with ten bytes of padding.
const CONTROL = '03474554056874747073000a2f68656c6c6f2e747874';
const FIELDS =
  '0a757365722d6167656e74346375726c2f372e31362e33206c69626375726c2f372e31362e33204f70656e53534c2f302e392e376c207a6c69622f312e322e3304686f73740f7777772e6578616d706c652e636f6d0f6163636570742d6c616e677561676506656e2c206d69';
const KNOWN_REQUEST = hex(`00${CONTROL}406c${FIELDS}0000`);
const REQUEST = hex(`02${CONTROL}${FIELDS}000000${'00'.repeat(10)}`);
const READ_REQUEST: RequestHead & { readonly content: string } = {
  method: 'GET',
  scheme: 'https',
  authority: '',
  path: '/hello.txt',
  fields: [
    ['user-agent', 'curl/7.16.3 libcurl/7.16.3 OpenSSL/0.9.7l zlib/1.2.3'],
    ['host', 'www.example.com'],
    ['accept-language', 'en, mi'],
  ],
  content: '',
};
// §5.2: a response with 102 and 103 before it, and a chunked one with a trailer.
const RESPONSE = hex(
  '0340660772756e6e696e670a22736c65657020313522004067046c696e6b233c2f7374796c652e6373733e3b2072656c3d7072656c6f61643b2061733d7374796c65046c696e6b243c2f7363726970742e6a733e3b2072656c3d7072656c6f61643b2061733d7363726970740040c804646174651d4d6f6e2c203237204a756c20323030392031323a32383a353320474d540673657276657206417061636865' +
    '0d6c6173742d6d6f6469666965641d5765642c203232204a756c20323030392031393a31353a353620474d540465746167142233346161333837' +
    '2d642d31353638656230302' +
    '20d6163636570742d72616e6765730562797465730e636f6e74656e742d6c656e67746802353104766172790f4163636570742d456e636f64696e670c636f6e74656e742d747970650a746578742f706c61696e003348656c6c6f20576f726c6421204d7920636f6e74656e7420696e636c75646573206120747261696c696e672043524c462e0d0a0000',
);
const CHUNKED_KNOWN = hex(
  '0140c8001d5468697320636f6e74656e7420636f6e7461696e732043524c462e0d0a0d07747261696c65720474657874',
);

const message = (head: Uint8Array, contents: readonly string[], padding = 0) =>
  joined([head, ...contents.map((one) => writeContent(utf8(one))), writeEnd(padding)]);

const FIELD: Field = ['content-type', 'text/plain'];
const SMALL_REQUEST = message(
  writeRequestHead({ method: 'POST', scheme: 'https', authority: 'a.example', path: '/v1/x?y=1', fields: [FIELD] }),
  ['hello ', 'world'],
);
const SMALL_RESPONSE = message(writeResponseHead({ status: 404, fields: [FIELD] }), ['not ', 'here']);

describe('binary HTTP', () => {
  it.each([1, 2, 7, 1000])('reads the examples of RFC 9292 in chunks of %i bytes', async (size) => {
    expect(await wholeRequest(KNOWN_REQUEST, size)).toEqual(READ_REQUEST);
    expect(await wholeRequest(REQUEST, size)).toEqual(READ_REQUEST);
    const response = await wholeResponse(RESPONSE, size);
    expect(response.status).toBe(200);
    expect(response.fields).toHaveLength(8);
    expect(response.fields[4]).toEqual(['accept-ranges', 'bytes']);
    expect(response.content).toBe('Hello World! My content includes a trailing CRLF.\r\n');
    expect(await wholeResponse(CHUNKED_KNOWN, size)).toEqual({
      status: 200,
      fields: [],
      content: 'This content contains CRLF.\r\n',
    });
  });

  it('writes what the RFC shows', () => {
    const head = writeRequestHead(READ_REQUEST);
    expect(joined([head, writeEnd(10)])).toEqual(REQUEST);
  });

  it('takes messages that end before parts that are empty, and no others (§3.8)', async () => {
    for (const cut of [0, 1, 2]) {
      expect(await wholeRequest(KNOWN_REQUEST.subarray(0, KNOWN_REQUEST.length - cut))).toEqual(READ_REQUEST);
      const withoutPadding = REQUEST.subarray(0, REQUEST.length - 10 - cut);
      expect(await wholeRequest(withoutPadding)).toEqual(READ_REQUEST);
    }
    expect((await wholeRequest(hex('00034745540568747470730b6578616d706c652e636f6d012f'))).path).toBe('/');
    expect(await wholeResponse(hex('0140c8'))).toEqual({ status: 200, fields: [], content: '' });
  });

  it.each([
    ['request', SMALL_REQUEST, (bytes: Uint8Array) => wholeRequest(bytes)],
    ['response', SMALL_RESPONSE, (bytes: Uint8Array) => wholeResponse(bytes)],
  ] as const)(
    'refuses a %s that is cut anywhere but before a part that may be left out',
    async (_kind, whole, read) => {
      const controlEnd = whole.indexOf(FIELD[0].length, 1);
      const headEnd = controlEnd + 2 + FIELD[0].length + FIELD[1].length + 1;
      const mayEnd = [controlEnd, headEnd, whole.length - 1];
      for (let length = 0; length < whole.length; length++) {
        const code = await codeOf(read(whole.subarray(0, length)));
        expect({ length, code }).toEqual({ length, code: mayEnd.includes(length) ? null : 'sealed_truncated' });
      }
      expect(await codeOf(read(whole))).toBeNull();
    },
  );

  it('gives the same message to bhttp-js, and reads what it writes', async () => {
    const theirs = new BHttpDecoder().decodeRequest(SMALL_REQUEST);
    expect(theirs.url).toBe('https://a.example/v1/x?y=1');
    expect(theirs.headers.get('content-type')).toBe('text/plain');
    expect(await theirs.text()).toBe('hello world');
    const response = new BHttpDecoder().decodeResponse(SMALL_RESPONSE);
    expect([response.status, await response.text()]).toEqual([404, 'not here']);

    const request = new Request('https://a.example/v1/x', { method: 'POST', body: 'größe', headers: { 'x-a': 'b' } });
    const read = await wholeRequest(await new BHttpEncoder().encodeRequest(request), 5);
    expect(read).toMatchObject({ method: 'POST', scheme: 'https', path: '/v1/x' });
    expect(read.fields).toContainEqual(['x-a', 'b']);
    expect(Buffer.from(read.content, 'latin1').toString()).toBe('größe');
    const encoded = await new BHttpEncoder().encodeResponse(new Response('body', { status: 503 }));
    expect(await wholeResponse(encoded)).toMatchObject({ status: 503, content: 'body' });
  });

  it('reads back whatever it writes, in chunks of any size', async () => {
    const name = fc.stringMatching(/^[a-z][a-z0-9-]{0,20}$/);
    const value = fc.stringMatching(/^([!-~]([ -~]{0,60}[!-~])?)?$/);
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(name, value), { maxLength: 12 }),
        fc.array(fc.string({ maxLength: 200 }), { maxLength: 6 }),
        fc.integer({ min: 200, max: 599 }),
        fc.integer({ min: 0, max: 99 }),
        fc.integer({ min: 1, max: 64 }),
        async (fields, contents, status, padding, size) => {
          const whole = message(writeResponseHead({ status, fields }), contents, padding);
          const { head, content } = await readResponse(inChunks(whole, size));
          expect(head).toEqual({ status, fields });
          expect(await all(content)).toEqual(utf8(contents.join('')));
        },
      ),
    );
  });

  const field = (name: string, value: string) =>
    hex(
      `03${'40c8'}${Buffer.of(name.length).toString('hex')}${Buffer.from(name, 'latin1').toString('hex')}${Buffer.of(value.length).toString('hex')}${Buffer.from(value, 'latin1').toString('hex')}000000`,
    );

  it.each([
    ['a name with a space', field('a b', 'c')],
    ['a pseudo-field', field(':path', '/')],
    ['a value with a line feed', field('a', 'b\nc')],
    ['a value with NUL', field('a', 'b\0c')],
    ['a value that begins with white space', field('a', ' b')],
    ['a request for a response', SMALL_REQUEST],
    ['an unknown framing indicator', hex('04')],
    ['a status of 600', hex('03425800')],
    ['a status of 99', hex('034063')],
    ['padding that is not zero', joined([SMALL_RESPONSE, hex('0001')])],
    ['a length above 2^53', hex('0140c8ffffffffffffffff')],
  ])('refuses %s', async (_what, bytes) => {
    expect(await codeOf(wholeResponse(bytes))).toBe('sealed_malformed');
  });

  it('refuses a field that is longer than its section', async () => {
    expect(await codeOf(wholeResponse(hex('0140c803016102 6263 00 00')))).toBe('sealed_truncated');
  });

  it('keeps every limit', async () => {
    const limits = { max_head_bytes: 40, max_fields: 2, max_padding_bytes: 5 };
    const of = (fields: readonly Field[], padding = 0) =>
      codeOf(wholeResponse(message(writeResponseHead({ status: 200, fields }), ['content'], padding), 3, limits));
    expect(
      await of(
        [
          ['a', 'b'],
          ['c', 'd'],
        ],
        3,
      ),
    ).toBeNull();
    expect(
      await of([
        ['a', 'b'],
        ['c', 'd'],
        ['e', 'f'],
      ]),
    ).toBe('sealed_too_large');
    expect(await of([['a', 'x'.repeat(40)]])).toBe('sealed_too_large');
    expect(await of([], 6)).toBe('sealed_too_large');
    const known = hex(`0140c829${'00'.repeat(41)}`);
    expect(await codeOf(wholeResponse(known, 3, limits))).toBe('sealed_too_large');
    const informational = joined([hex('03'), hex('406400'.repeat(17)), hex('40c8')]);
    expect(await codeOf(wholeResponse(informational))).toBe('sealed_too_large');
    const control = joined([hex('02'), hex('03474554'), hex('bfffffff')]);
    expect(await codeOf(wholeRequest(control, 3))).toBe('sealed_too_large');
  });

  it('writes no header that could not be read', () => {
    const write = (name: string, value: string) => () => writeResponseHead({ status: 200, fields: [[name, value]] });
    expect(write('a:b', 'c')).toThrow('a name that HTTP does not allow');
    expect(write('a', 'b\r\nc: d')).toThrow('a value that HTTP does not allow');
    expect(write('a', '\u20ac')).toThrow('a character that is no byte');
    expect(() => writeResponseHead({ status: 103, fields: [] })).toThrow('not one of a final response');
  });

  it('hands on content before the message has ended', async () => {
    const head = writeResponseHead({ status: 200, fields: [] });
    const { promise, resolve } = Promise.withResolvers<void>();
    async function* slow() {
      yield head;
      yield writeContent(utf8('first'));
      await promise;
      yield writeEnd();
    }
    const { content } = await readResponse(slow());
    expect(text((await content.next()).value as Uint8Array)).toBe('first');
    resolve();
    expect((await content.next()).done).toBe(true);
  });
});
