// TLS handshakes as a fuzzer speaks them: ClientHellos of every content, cut anywhere, bent, or something else in their place.
import fc from 'fast-check';
import { alert, clientHello, type Ending, record, type Stranger } from '../support/handshakes.ts';
import { edits, fuzzRequest } from './requests.ts';

const number16 = fc.integer({ min: 0, max: 0xffff });
const bytes = (maxLength: number) => fc.array(fc.integer({ min: 0, max: 255 }), { maxLength });
const text = fc.string({
  unit: fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code)),
  maxLength: 40,
});

/** From SSL 3.0 to TLS 1.3, one of GREASE (RFC 8701), and any. */
const version = fc.oneof(fc.constantFrom(0x0300, 0x0301, 0x0302, 0x0303, 0x0304, 0x0a0a), number16);
/** Of TLS 1.3 and 1.2, weak ones, TLS_FALLBACK_SCSV and TLS_EMPTY_RENEGOTIATION_INFO_SCSV. */
const cipher = fc.oneof(fc.constantFrom(0x1301, 0x1302, 0xc02b, 0xc02c, 0x002f, 0x0005, 0x5600, 0x00ff), number16);
const protocol = fc.oneof(fc.constantFrom('http/1.1', 'h2', 'h3', ''), text);
/** Status request, signed timestamps, ticket, pre-shared key, early data, cookie, key exchange modes, renegotiation, and any. */
const type = fc.oneof(fc.constantFrom(5, 18, 35, 41, 42, 44, 45, 0xff01), number16);

const hello = fc
  .record(
    {
      versions: fc.array(version, { maxLength: 4 }),
      ciphers: fc.array(cipher, { maxLength: 6 }),
      alpn: fc.array(protocol, { maxLength: 3 }),
      server_name: fc.oneof(fc.constantFrom(null, 'localhost', '127.0.0.1', ''), text),
      session_id: bytes(32),
      more: fc.array(fc.tuple(type, bytes(60)), { maxLength: 3 }),
    },
    { requiredKeys: [] },
  )
  .map((given) => clientHello(given));

/** One that is accepted: what is behind it is reached. */
const accepted = fc
  .record(
    {
      session_id: bytes(32),
      server_name: fc.constantFrom(null, 'localhost'),
      alpn: fc.constantFrom([], ['h2', 'http/1.1']),
    },
    { requiredKeys: [] },
  )
  .chain((given) => fc.constantFrom([0x0304], [0x0303]).map((versions) => clientHello({ ...given, versions })));

const cut = fc.tuple(hello, fc.nat()).map(([whole, at]) => whole.subarray(0, at % whole.length));

/** A byte changed, put in, or taken out, a few times. */
const bent = fc.tuple(hello, edits).map(([whole, all]) => {
  const edited = [...whole];
  for (const [where, how, code] of all)
    edited.splice(where % edited.length, how === 'insert' ? 0 : 1, ...(how === 'remove' ? [] : [code]));
  return Buffer.from(edited);
});

const anyRecord = fc
  .tuple(fc.oneof(fc.constantFrom(20, 21, 22, 23, 24), fc.nat(255)), bytes(200), fc.option(number16))
  .map(([kind, content, length]) => record(kind, content, length ?? content.length));
const anyAlert = fc.tuple(fc.constantFrom(1, 2, 0), fc.nat(120)).map(([level, code]) => alert(level, code));
const garbage = bytes(300).map((given) => Buffer.from(given));
const http = fuzzRequest.map((request) => Buffer.from(request.bytes, 'latin1'));
const records = fc
  .array(fc.oneof(anyRecord, anyAlert), { minLength: 1, maxLength: 4 })
  .map((all) => Buffer.concat(all));

const sends = fc.oneof(
  { weight: 4, arbitrary: hello },
  { weight: 4, arbitrary: cut },
  { weight: 4, arbitrary: bent },
  { weight: 2, arbitrary: records },
  { weight: 1, arbitrary: garbage },
  { weight: 1, arbitrary: http },
);
const replies = fc.oneof(anyAlert, records, garbage, hello, fc.constant(Buffer.alloc(0)));

export const fuzzHandshake: fc.Arbitrary<Stranger> = fc
  .tuple(
    fc.oneof(
      { weight: 1, arbitrary: fc.tuple(accepted, replies) },
      { weight: 3, arbitrary: fc.tuple(sends, fc.oneof(replies, fc.constant(null))) },
    ),
    fc.constantFrom<Ending>('waits', 'ends', 'resets'),
  )
  .map(([[first, reply], ending]) => {
    const stranger: Stranger = { sends: first, ...(reply === null ? {} : { replies: reply }), ending };
    // What a report shows of it.
    const shown = () => `${first.toString('hex')} ${reply?.toString('hex') ?? ''} ${ending}`;
    return Object.assign({ [fc.toStringMethod]: shown }, stranger);
  });

/** A ClientHello that is accepted, cut after each of its bytes. */
export const everyCut: readonly Buffer[] = Array.from(clientHello(), (_, at) => clientHello().subarray(0, at));
