// Requests as a fuzzer sends them: what clients send, bent; what no client sends; and bytes.
import fc from 'fast-check';

export interface FuzzRequest {
  /** Latin-1: each character is one byte. */
  readonly bytes: string;
  /** Answers to HEAD have no body. */
  readonly head: boolean;
}

const PATHS = [
  '/v1/chat/completions',
  '/v1/completions',
  '/v1/embeddings',
  '/v1/models',
  '/v1/models/a%2Fb',
  '/v1/chat/completions/chatcmpl-1/attestation',
  '/v1/completions/x/attestation',
  '/~sev_gpu@1.0/verify',
  '/%7Esev_gpu%401.0/verify?report=1',
  '/~sev_gpu@1.0/verify?report=0',
  '/health',
  '/openapi.json',
  '/',
  '/v1',
  '*',
  'http://h/v1/models',
];
const METHODS = [
  'GET',
  'POST',
  'PUT',
  'DELETE',
  'PATCH',
  'HEAD',
  'OPTIONS',
  'TRACE',
  'CONNECT',
  'QUERY',
  'PROPFIND',
  'post',
  'FOO',
];
const NAMES = [
  'content-type',
  'content-encoding',
  'x-tee',
  'authorization',
  'origin',
  'access-control-request-headers',
  'connection',
  'upgrade',
  'expect',
  'te',
  'trailer',
  'transfer-encoding',
  'content-length',
  'host',
  'accept',
  'cookie',
  'range',
  'if-none-match',
  '__proto__',
  'constructor',
  'x-request-id',
];
const VALUES = [
  'application/json',
  'application/json; charset=utf-16',
  'gzip',
  'identity',
  '1',
  '0',
  'true',
  'maybe',
  'Bearer x',
  'chunked',
  'identity, chunked',
  'close',
  'keep-alive',
  'close, x-tee',
  'upgrade',
  'websocket',
  '100-continue',
  'trailers',
  'http://localhost:3000',
  'null',
  '',
  '-1',
  '99999999999999999999',
];

const latin1 = fc.string({
  unit: fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code)),
  maxLength: 40,
});
const path = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom(...PATHS) },
  {
    weight: 2,
    arbitrary: fc.tuple(fc.constantFrom(...PATHS), fc.webQueryParameters()).map(([at, query]) => `${at}?${query}`),
  },
  { weight: 2, arbitrary: fc.webPath().map((at) => `/v1${at}`) },
  { weight: 1, arbitrary: fc.webUrl() },
  { weight: 1, arbitrary: latin1.map((text) => `/${text.replaceAll(/[\r\n ]/g, '')}`) },
);
const method = fc.oneof({ weight: 6, arbitrary: fc.constantFrom('POST', 'GET') }, fc.constantFrom(...METHODS));

const hostileJson = fc.oneof(
  fc.jsonValue({ maxDepth: 4 }),
  fc.constantFrom<unknown>(
    null,
    true,
    1e308,
    -0,
    '',
    [],
    {},
    [[[[]]]],
    { __proto__: null },
    { constructor: { prototype: {} } },
    '\ud800',
    '\0',
  ),
);
const message = fc.oneof(
  fc.record({
    role: fc.constantFrom('user', 'system', 'assistant', 'tool', ''),
    content: fc.oneof(fc.string(), hostileJson),
  }),
  hostileJson,
);
const maybe = <T>(arbitrary: fc.Arbitrary<T>) => fc.oneof({ weight: 3, arbitrary }, hostileJson);
const body = fc
  .record(
    {
      model: maybe(fc.string({ maxLength: 20 })),
      messages: maybe(fc.array(message, { maxLength: 4 })),
      prompt: maybe(fc.oneof(fc.string(), fc.array(fc.string(), { maxLength: 3 }))),
      input: maybe(fc.string()),
      stream: maybe(fc.boolean()),
      tee: maybe(fc.boolean()),
      n: maybe(fc.integer({ min: -1, max: 200 })),
      raw: hostileJson,
      nonce: hostileJson,
      token: hostileJson,
      evidence: hostileJson,
      attestation: hostileJson,
      __proto__: hostileJson,
    },
    { requiredKeys: [], noNullPrototype: false },
  )
  .map((value) => JSON.stringify(value));
const bytesOf = (text: string) => Buffer.from(text, 'utf8').toString('latin1');
/** Mostly what a client sends: the deeper code is behind it. */
const content = fc
  .oneof(
    {
      weight: 4,
      arbitrary: fc
        .record({ stream: fc.boolean(), tee: fc.boolean(), content: fc.string() })
        .map(({ content, ...rest }) =>
          JSON.stringify({ ...rest, model: 'm', prompt: content, messages: [{ role: 'user', content }] }),
        ),
    },
    { weight: 6, arbitrary: body },
    { weight: 2, arbitrary: fc.json({ maxDepth: 6 }) },
    { weight: 1, arbitrary: fc.integer({ min: 1, max: 20_000 }).map((depth) => '[{"a":'.repeat(depth)) },
    { weight: 1, arbitrary: fc.integer({ min: 60_000, max: 70_000 }).map((length) => `"${'x'.repeat(length)}"`) },
    { weight: 1, arbitrary: latin1 },
  )
  .map(bytesOf);

const header = fc.oneof(
  { weight: 4, arbitrary: fc.tuple(fc.constantFrom(...NAMES), fc.constantFrom(...VALUES)) },
  { weight: 1, arbitrary: fc.tuple(fc.constantFrom(...NAMES), latin1) },
  { weight: 1, arbitrary: fc.tuple(latin1, latin1) },
  {
    weight: 1,
    arbitrary: fc.integer({ min: 1, max: 40_000 }).map((length) => ['x-long', 'a'.repeat(length)] as [string, string]),
  },
);
const headers = fc.oneof(
  { weight: 3, arbitrary: fc.constant([]) },
  { weight: 2, arbitrary: fc.array(header, { maxLength: 4 }) },
);

const framed = fc
  .tuple(
    method,
    path,
    headers,
    content,
    fc.constantFrom('length', 'length', 'length', 'length', 'chunked', 'chunked', 'none'),
  )
  .map(([verb, target, extra, entity, framing]): FuzzRequest => {
    const without = framing === 'none' || (framing === 'length' && verb === 'GET' && entity.length % 2 === 0);
    const lines = [
      `${verb} ${target} HTTP/1.1`,
      'host: 127.0.0.1',
      ...extra.map(([name, value]) => `${name}: ${value}`),
    ];
    if (framing === 'chunked') lines.push('transfer-encoding: chunked');
    else if (!without) lines.push(`content-length: ${entity.length}`);
    const sent =
      framing === 'chunked' ? `${entity.length.toString(16)}\r\n${entity}\r\n0\r\n\r\n` : without ? '' : entity;
    return { bytes: `${lines.join('\r\n')}\r\n\r\n${sent}`, head: verb === 'HEAD' };
  });

/** Of each: where, what and the byte. */
export const edits = fc.array(fc.tuple(fc.nat(), fc.constantFrom('change', 'insert', 'remove'), fc.nat(255)), {
  minLength: 1,
  maxLength: 4,
});

/** A byte changed, put in, or taken out, a few times. */
const bent = fc.tuple(framed, edits).map(([{ bytes }, all]): FuzzRequest => {
  const edited = all.reduce((text, [where, how, code]) => {
    // The beginning is where the parser decides.
    const at = where % Math.max(1, Math.min(text.length, 400));
    const put = how === 'remove' ? '' : String.fromCharCode(code);
    return text.slice(0, at) + put + text.slice(how === 'insert' ? at : at + 1);
  }, bytes);
  return { bytes: edited, head: edited.startsWith('HEAD ') };
});

/** What a report shows of it. */
const shown = (request: FuzzRequest): FuzzRequest =>
  Object.assign({ [fc.toStringMethod]: () => JSON.stringify(request.bytes.slice(0, 300)) }, request);

export const fuzzRequest: fc.Arbitrary<FuzzRequest> = fc
  .oneof(
    { weight: 16, arbitrary: framed },
    { weight: 3, arbitrary: bent },
    {
      weight: 1,
      arbitrary: fc
        .uint8Array({ minLength: 1, maxLength: 200 })
        .map((bytes) => ({ bytes: Buffer.from(bytes).toString('latin1'), head: false })),
    },
  )
  .map(shown);
