import { describe, expect, it } from 'vitest';
import { chatAnswer } from '../../support/backend.ts';
import { expectRefusal, get, post, raw } from '../../support/raw.ts';
import { useService } from '../../support/service.ts';

const CHAT = '{"messages":[{"role":"user","content":"Hi"}]}';
const PATH = '/v1/chat/completions';
/** What a smuggler wants to be read as a request of its own. */
const HIDDEN = get('/v1/hidden');

const service = useService({ MAX_BODY_BYTES: '65536' });

const seen = () => service.backend.seen.map(({ method, url }) => `${method} ${url}`);

describe('where one request ends and the next begins', () => {
  it.each([
    ['GET', get('/health', [`content-length: ${HIDDEN.length}`]), 200],
    ['GET with no route', get('/nothing', [`content-length: ${HIDDEN.length}`]), 404],
    ['GET of an attestation', get(`${PATH}/x/attestation`, [`content-length: ${HIDDEN.length}`]), 404],
    ['OPTIONS', `OPTIONS ${PATH} HTTP/1.1\r\nhost: h\r\ncontent-length: ${HIDDEN.length}\r\n\r\n`, 204],
    [
      'a method that is not allowed',
      `PUT ${PATH} HTTP/1.1\r\nhost: h\r\ncontent-length: ${HIDDEN.length}\r\n\r\n`,
      405,
    ],
  ])('the body of a %s is never the next request', async (_name, head, status) => {
    const got = await raw(service.url, head + HIDDEN, { linger_ms: 300 });
    expect(got.answers.map((answer) => answer.status)).toEqual([status]);
    expect(seen()).toEqual([]);
  });

  it('what a GET has as its body is no request, and what comes in one read with it is not served', async () => {
    const first = get('/nothing', [`content-length: ${HIDDEN.length}`]);
    const got = await raw(service.url, first + HIDDEN + get('/health'), { answers: 2, linger_ms: 1_500 });
    expect(got.answers.map((answer) => answer.status)).toEqual([404]);
    expect(got.closed).toBe(true);
    expect(seen()).toEqual([]);
  });

  it.each([
    ['Content-Length and Transfer-Encoding', ['content-length: 5', 'transfer-encoding: chunked'], `0\r\n\r\n${HIDDEN}`],
    ['Transfer-Encoding and Content-Length', ['transfer-encoding: chunked', 'content-length: 5'], `0\r\n\r\n${HIDDEN}`],
    ['two lengths that differ', ['content-length: 0', `content-length: ${HIDDEN.length}`], HIDDEN],
    ['two lengths that agree', ['content-length: 2', 'content-length: 2'], `{}${HIDDEN}`],
    ['a list of lengths', ['content-length: 2, 2'], `{}${HIDDEN}`],
    ['a signed length', ['content-length: +2'], `{}${HIDDEN}`],
    ['a negative length', ['content-length: -1'], HIDDEN],
    ['a hexadecimal length', ['content-length: 0x2'], `{}${HIDDEN}`],
    ['a length past 64 bits', ['content-length: 18446744073709551618'], `{}${HIDDEN}`],
    ['a length with a space in its name', ['content-length : 2'], `{}${HIDDEN}`],
    ['an unknown coding', ['transfer-encoding: xchunked'], `0\r\n\r\n${HIDDEN}`],
    ['a coding hidden by a tab', ['transfer-encoding:\tchunked\t, identity'], `0\r\n\r\n${HIDDEN}`],
    ['chunked twice', ['transfer-encoding: chunked', 'transfer-encoding: chunked'], `0\r\n\r\n${HIDDEN}`],
    ['chunked, not last', ['transfer-encoding: chunked, identity'], `0\r\n\r\n${HIDDEN}`],
    ['a coding before chunked', ['transfer-encoding: gzip, chunked'], `0\r\n\r\n${HIDDEN}`],
    ['identity before chunked', ['transfer-encoding: identity, chunked'], `0\r\n\r\n${HIDDEN}`],
    ['an obs-fold', ['content-length: 2', 'x-a: b', ' transfer-encoding: chunked'], `{}${HIDDEN}`],
    ['a bare CR in a header', ['x-a: b\rtransfer-encoding: chunked', 'content-length: 2'], `{}${HIDDEN}`],
    ['a bare LF in a header', ['x-a: b\ntransfer-encoding: chunked', 'content-length: 2'], `{}${HIDDEN}`],
    ['a NUL in a header', ['x-a: b\0c', 'content-length: 2'], `{}${HIDDEN}`],
  ])('is refused where two readers could disagree: %s', async (_name, headers, body) => {
    const got = await raw(service.url, `POST ${PATH} HTTP/1.1\r\nhost: h\r\n${headers.join('\r\n')}\r\n\r\n${body}`, {
      linger_ms: 2_000,
    });
    expectRefusal(got.answers[0], 400, 'invalid_request');
    expect(got.answers).toHaveLength(1);
    expect(got.closed, 'and the connection ends').toBe(true);
    expect(seen()).toEqual([]);
  });

  it.each([
    ['no hexadecimal number', 'zz\r\n{}\r\n0\r\n\r\n'],
    ['0x', '0x2\r\n{}\r\n0\r\n\r\n'],
    ['negative', '-2\r\n{}\r\n0\r\n\r\n'],
    ['past 64 bits', 'fffffffffffffffff\r\n{}\r\n0\r\n\r\n'],
    ['empty', '\r\n{}\r\n0\r\n\r\n'],
    ['followed by a space', '2 \r\n{}\r\n0\r\n\r\n'],
    ['ended by a bare LF', '2\n{}\n0\n\n'],
    ['shorter than its chunk', '1\r\n{}\r\n0\r\n\r\n'],
  ])('is refused when a chunk size is %s', async (_name, chunks) => {
    const got = await raw(
      service.url,
      `POST ${PATH} HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n${chunks}${HIDDEN}`,
      { linger_ms: 2_000 },
    );
    expectRefusal(got.answers[0], 400, 'invalid_request');
    expect([got.answers.length, got.closed]).toEqual([1, true]);
    expect(seen()).toEqual([]);
  });

  it('chunk extensions mean nothing, and too many of them are refused', async () => {
    const chunked = (extension: string) =>
      `POST ${PATH} HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n${CHAT.length.toString(16)}${extension}\r\n${CHAT}\r\n0\r\n\r\n`;
    expect((await raw(service.url, chunked(';a=b;c="d"'))).answers[0]?.status).toBe(200);
    expectRefusal((await raw(service.url, chunked(`;${'a'.repeat(20_000)}`))).answers[0], 413, 'body_too_large');
    expect(seen()).toEqual(['POST /v1/chat/completions']);
  });

  it('trailers are no headers', async () => {
    const { length } = CHAT;
    const got = await raw(
      service.url,
      `POST ${PATH} HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\ntrailer: x-tee\r\n\r\n${length.toString(16)}\r\n${CHAT}\r\n0\r\nx-tee: 1\r\nauthorization: Bearer x\r\n\r\n`,
    );
    expect(got.answers[0]?.status).toBe(200);
    expect(got.answers[0]?.body).not.toContain('attestation');
    const [asked] = service.backend.seen;
    expect(asked?.headers).not.toHaveProperty('x-tee');
    expect(asked?.headers).not.toHaveProperty('trailer');
    expect(asked?.headers['content-length']).toBe(String(length));
  });

  it('chunked is HTTP/1.1 only', async () => {
    const got = await raw(
      service.url,
      `POST ${PATH} HTTP/1.0\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`,
      {
        linger_ms: 2_000,
      },
    );
    expectRefusal(got.answers[0], 400, 'invalid_request');
    expect(got.closed).toBe(true);
  });

  it("what follows a refused request on its connection is nobody's request, however it is cut into packets", async () => {
    const refused = `POST ${PATH} HTTP/1.1\r\nhost: h\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n`;
    for (const drip_ms of [undefined, 1]) {
      const got = await raw(service.url, refused + HIDDEN.repeat(3), {
        linger_ms: 1_500,
        ...(drip_ms ? { drip_ms } : {}),
      });
      expect([got.answers.length, got.closed]).toEqual([1, true]);
    }
    expect(seen()).toEqual([]);
  });

  it('an answer is never given to the wrong request: what comes before it is out is not read', async () => {
    service.backend.script = async (request, response) => {
      await new Promise((resolve) => setTimeout(resolve, 100));
      await chatAnswer('the first')(request, response);
    };
    for (const behind of ['GARBAGE\r\n\r\n', post(PATH, CHAT), post(PATH, CHAT, ['expect: 100-continue']), HIDDEN]) {
      const got = await raw(service.url, post(PATH, CHAT) + behind, { answers: 2, linger_ms: 2_000 });
      expect(got.answers.map((answer) => answer.status)).toEqual([200]);
      expect(got.answers[0]?.body).toContain('the first');
      expect(got.text.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200']);
      expect(got.closed).toBe(true);
    }
    expect(seen()).toEqual(Array(4).fill('POST /v1/chat/completions'));
  });

  it.each([
    ['POST /openapi.json', 405],
    ['POST /nothing', 404],
  ])(
    'answers %s before its body is known to be wrong, with the 100 Continue that it asked for',
    async (line, status) => {
      const head = `${line} HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n`;
      const got = await raw(service.url, `${head}3\r\nabc\r\n0\r\n\rx\n`, { linger_ms: 1_500 });
      expect(got.answers.map((answer) => answer.status)).toEqual([status]);
      expect(got.closed).toBe(true);
    },
  );
});
