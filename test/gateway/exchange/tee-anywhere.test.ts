// `tee` in a body is attested or refused, whatever the body's content-type says, and never reaches the backend.
import { describe, expect, it } from 'vitest';
import { splitRaw } from '../../../proto/attestation/raw.ts';
import { appraiseAttestation } from '../../../verify/index.ts';
import { answer } from '../../support/backend.ts';
import { ask } from '../../support/client.ts';
import { messageBody, responseBody } from '../../support/named-streams.ts';
import { useService } from '../../support/service.ts';
import { expectError } from '../expect-error.ts';

const service = useService();
const options = () => ({ simulatedRoot: service.sidecar.attester.simulated?.root });

const EMBEDDINGS = { object: 'list', data: [], model: 'm' };
const PATHS = [
  ['/v1/responses', responseBody('Hello.')],
  ['/v1/messages', messageBody([])],
  ['/v1/embeddings', EMBEDDINGS],
  ['/v1/rerank', { results: [] }],
] as const;
const FORM = { 'content-type': 'application/x-www-form-urlencoded' };
const TYPES = [
  FORM,
  { 'content-type': 'text/plain;charset=UTF-8' },
  { 'content-type': 'application/vnd.api+json' },
  { 'content-type': 'multipart/form-data; boundary=b' },
  { 'content-type': 'application/octet-stream' },
];
const TEE = '{"model":"m","input":"a","tee":true}';

/** Asks for something that is served and attested. */
async function expectServed(path = '/v1/embeddings'): Promise<void> {
  const got = await ask(service.url + path, { body: TEE, headers: FORM });
  expect([got.status, (await appraiseAttestation(got.text, options())).valid]).toEqual([200, true]);
}

describe.each(PATHS)('a body of %s that is an object of any content-type', (path, response) => {
  it('is attested where it asks for it, and goes to the backend as JSON without tee', async () => {
    service.backend.script = answer(JSON.stringify(response));
    for (const headers of TYPES)
      for (const body of [
        TEE,
        ` \r\n\t${TEE}`,
        TEE.replace('"tee"', '"\\u0074e\\u0065"'),
        TEE.replace(':true', ' :\ttrue'),
      ]) {
        service.backend.seen.length = 0;
        const got = await ask(service.url + path, { body, headers });
        expect(splitRaw(got.json().attestation.raw)).toMatchObject({ endpoint: path, request: body.trim() });
        expect((await appraiseAttestation(got.text, options())).valid).toBe(true);
        const [seen] = service.backend.seen;
        expect([seen?.body.trim(), seen?.headers['content-type']]).toEqual([
          '{"model":"m","input":"a"}',
          'application/json',
        ]);
      }
  });

  it('is attested where a header asks for it', async () => {
    service.backend.script = answer(JSON.stringify(response));
    const got = await ask(service.url + path, { body: '{"input":"a"}', headers: { ...FORM, 'x-tee': '1' } });
    expect((await appraiseAttestation(got.text, options())).valid).toBe(true);
    expect(got.headers['x-tee']).toBeUndefined();
  });
});

describe('a body that names tee and cannot be read', () => {
  const utf16 = (text: string, mark = '') => Buffer.from(mark + text, 'utf16le');
  const bigEndian = (bytes: Buffer) => Buffer.from(bytes).swap16();
  const utf32 = (text: string) => Buffer.from([...text].map((char) => `${char}\0\0\0`).join(''), 'latin1');
  const wide = TEE.replace('"tee"', '"\\u0074ee"');

  it.each<[string, string | Buffer]>([
    ['cut off', '{"input":"a","tee":true'],
    ['cut off behind its name', '{"tee"'],
    ['with a comma too many', '{"tee":true,}'],
    ['in single quotes', "{'input':'a','tee':true}"],
    ['without quotes', '{input: "a", tee : true}'],
    ['escaped and cut off', '{"\\u0074\\u0065\\u0065":true'],
    ['of several lines', `${TEE}\n${TEE}`],
    ['behind a byte order mark', `\ufeff${TEE}`],
    ['in UTF-16', utf16(TEE)],
    ['in UTF-16 with escapes', utf16(wide)],
    ['in UTF-16 with a mark', utf16(TEE, '\ufeff')],
    ['in UTF-16, the high byte first', bigEndian(utf16(TEE))],
    ['in UTF-16, the high byte first, with a mark', bigEndian(utf16(TEE, '\ufeff'))],
    ['in UTF-32', utf32(TEE)],
    [
      'with bytes that are not UTF-8',
      Buffer.concat([Buffer.from('{"tee":true,"a":"'), Buffer.from([0xff]), Buffer.from('"}')]),
    ],
  ])('is refused and not forwarded: %s', async (_name, body) => {
    service.backend.script = answer(JSON.stringify(EMBEDDINGS));
    const large = Buffer.concat([Buffer.alloc(300_000, ' '), Buffer.from(body)]);
    for (const headers of [FORM, {}])
      for (const one of [body, large]) {
        const got = await ask(`${service.url}/v1/embeddings`, { body: one, headers });
        expectError(got, 400, 'invalid_json');
      }
    expect(service.backend.seen).toHaveLength(0);
    await expectServed();
  });

  it('is refused where tee is given twice or has another form', async () => {
    for (const body of ['{"tee":true,"tee":true}', '{"tee":true,"\\u0074ee":false}', '{"tee":1}', '{"tee":"true"}']) {
      const got = await ask(`${service.url}/v1/embeddings`, { body, headers: FORM });
      expectError(got, 400, 'invalid_request', 'tee');
    }
    expect(service.backend.seen).toHaveLength(0);
    await expectServed();
  });

  it('is refused where it is compressed', async () => {
    const got = await ask(`${service.url}/v1/embeddings`, {
      body: TEE,
      headers: { ...FORM, 'content-encoding': 'gzip' },
    });
    expectError(got, 415, 'unsupported_encoding');
    expect(service.backend.seen).toHaveLength(0);
    await expectServed();
  });
});

describe('a body without tee', () => {
  it.each<[string, string | Buffer]>([
    ['an object', '{"input":"a"}'],
    ['an object whose text is about tee', '{"input":"a \\"tee\\": true, the committee", "\\u00e4":"teenager"}'],
    ['an object with tee deeper inside', '{"metadata":{"tee":true}}'],
    ['a list', '[{"tee":true}]'],
    ['a body that begins as an object', '{"input":"a"'],
    ['rich text', '{\\rtf1\\ansi \\u0228? the committee}'],
    ['UTF-16', Buffer.from('{"input":"a"}', 'utf16le')],
    ['a form', 'tee=true&input=a'],
    ['a multipart body', '--b\r\ncontent-disposition: form-data; name="a"\r\n\r\n{"tee":true}\r\n--b--'],
    ['bytes', Buffer.concat([Buffer.from([0xff, 0xd8, 0xff]), Buffer.from(TEE)])],
  ])('goes to the backend as it came: %s', async (_name, body) => {
    service.backend.script = answer(JSON.stringify(EMBEDDINGS));
    const got = await ask(`${service.url}/v1/embeddings`, { body, headers: FORM });
    expect([got.status, got.text]).toEqual([200, JSON.stringify(EMBEDDINGS)]);
    expect(service.backend.seen[0]).toMatchObject({ body: body.toString(), headers: FORM });
  });

  it('has tee taken out where it is false, and keeps its content-type', async () => {
    service.backend.script = answer(JSON.stringify(EMBEDDINGS));
    const got = await ask(`${service.url}/v1/embeddings`, { body: '{"input":"a","tee":false}', headers: FORM });
    expect(got.text).toBe(JSON.stringify(EMBEDDINGS));
    expect(service.backend.seen[0]).toMatchObject({ body: '{"input":"a"}', headers: FORM });
  });

  it('is refused where a header asks for a proof of a body that begins as an object and is none', async () => {
    const headers = { ...FORM, 'x-tee': '1' };
    expectError(await ask(`${service.url}/v1/embeddings`, { body: '{"input":', headers }), 400, 'invalid_json');
    expect(service.backend.seen).toHaveLength(0);
    await expectServed();
  });
});

describe('a method that is not POST', () => {
  it('cannot ask with the body of a GET, which no backend gets', async () => {
    for (const path of ['/v1/models', '/v1/files/f-1'])
      for (const headers of [FORM, {}]) {
        const got = await ask(service.url + path, { method: 'GET', body: TEE, headers });
        expectError(got, 400, 'invalid_request', 'tee');
      }
    expect(service.backend.seen).toHaveLength(0);
    await expectServed();
  });

  it('is attested with the body of a DELETE', async () => {
    service.backend.script = answer('{"id":"f-1","deleted":true}');
    const got = await ask(`${service.url}/v1/files/f-1?why=a`, { method: 'DELETE', body: TEE, headers: FORM });
    expect((await appraiseAttestation(got.text, options())).valid).toBe(true);
    expect(service.backend.seen[0]).toMatchObject({ url: '/v1/files/f-1?why=a', body: '{"model":"m","input":"a"}' });
  });
});
