// The command line, read: what to check, with what, and how to print it.
import { parseArgs } from 'node:util';
import { isEndpoint } from '../../proto/raw.ts';
import { PRODUCTS, type Product, TCB_STATUSES, type TcbStatus } from '../cpu/index.ts';
import { LEVELS, type Level } from '../index.ts';

export const USAGE = `countersign verify FILE [options]            check an attestation, a saved response, or a saved SSE transcript
countersign verify evidence FILE [options]   check bare GPU evidence: a JSON array of {arch, certificate, evidence, nonce}
countersign verify cpu FILE [options]        check a processor's bare evidence: the JSON of an attestation's member cpu
countersign verify session FILE [options]    check a session by itself: what GET /v1/attestation/session returned
countersign fetch-collateral FILE --into DIR fetch what FILE's check needs, for use with --offline --collateral DIR
countersign export FILE --cmw | --cvm1       print an attestation's or a session's evidence in another form; nothing is verified

FILE may be - for standard input.

  --request FILE               the request you sent; must equal the one that was signed
  --endpoint PATH              the endpoint you asked, such as /v1/responses; must be the one that was signed
  --response FILE              the response you received, without its attestation
  --allow-simulated ROOT       accept a simulated GPU under this test root (a PEM file)
  --offline                    no network: what is not given counts as unavailable
  --collateral DIR             reference values and OCSP responses from a folder that fetch-collateral filled
  --rim-dir DIR                reference values (RIM files) from a folder
  --ocsp FILE                  an OCSP response, DER or base64; may be repeated
  --rim-url URL, --ocsp-url URL  other services than NVIDIA's
  --at TIME                    check as of this time (ISO 8601 or Unix seconds) instead of now
  --session FILE               the session of an attestation that names it and does not carry it (x-tee-session)
  --challenge HEX              64 digits that the session must hold
  --min-level LEVEL            refuse less than gpu, gpu+cpu or measured
  --max-age SECONDS            refuse an attestation older than this
  --max-batch N                refuse one whose signature is shared by more than N answers
  --without-reference-values   do not compare the GPU's measurements (shown as a skip)
  --without-revocation         do not ask whether certificates were revoked (shown as a skip)
  --report-data HEX            of a processor's evidence: what it must have been given to sign, at most 64 bytes
  --product NAME               of AMD's: accept Milan, Genoa or Turin; may be repeated; Genoa and Turin without it
  --reference FILE             guests and launch files that you know: a proof of one of them is of level measured
  --tcb STATUS                 of Intel's: accept this TCB status; may be repeated; UpToDate without it
  --json                       the report as JSON
  --ear                        the result as EAR, an unsigned claims set (draft-ietf-rats-ear-04)
  --cmw                        of export: a CMW collection (RFC 9999) of what devices and processor signed
  --cvm1                       of export: the processor's half as claims of the CVM profile (tag:confidential.ai,2026:cvm#1)

exit status: 0 valid or exported, 1 invalid, 2 usage`;

/** The command line cannot be followed. The message is one line. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

export interface Arguments {
  readonly command: 'attestation' | (typeof BARE)[number] | 'fetch-collateral' | 'export';
  readonly file: string;
  readonly request: string | null;
  readonly response: string | null;
  readonly endpoint: string | null;
  readonly allowSimulated: string | null;
  readonly offline: boolean;
  readonly collateral: string | null;
  readonly rimDir: string | null;
  readonly ocsp: readonly string[];
  readonly rimUrl: string | null;
  readonly ocspUrl: string | null;
  readonly at: Date | null;
  readonly maxAgeSeconds: number | null;
  readonly maxBatch: number | null;
  readonly withoutReferenceValues: boolean;
  readonly withoutRevocation: boolean;
  readonly session: string | null;
  /** In hex. */
  readonly challenge: string | null;
  readonly minLevel: Level | null;
  /** In hex. */
  readonly reportData: string | null;
  /** Empty: the verifier's own. */
  readonly products: readonly Product[];
  readonly tcb: readonly TcbStatus[];
  readonly reference: string | null;
  readonly json: boolean;
  readonly ear: boolean;
  /** Of `export`. */
  readonly form: (typeof FORMS)[number] | null;
  readonly into: string | null;
}

const text = { type: 'string' } as const;
const flag = { type: 'boolean', default: false } as const;

/** What `export` writes. */
const FORMS = ['cmw', 'cvm1'] as const;

/** What `verify` checks by itself, where it is named. */
const BARE = ['evidence', 'cpu', 'session'] as const;

/** null: `--help` was given. @throws {UsageError} */
export function readArguments(argv: readonly string[]): Arguments | null {
  const { values, positionals } = parse(argv);
  if (values.help) return null;
  const [command, ...rest] = positionals;
  if (command !== 'verify' && command !== 'fetch-collateral' && command !== 'export')
    throw new UsageError(`unknown command: ${command ?? '(none)'}`);
  const bare = command === 'verify' ? BARE.find((one) => one === rest[0]) : undefined;
  const kind = command === 'verify' ? (bare ?? 'attestation') : command;
  const files = bare === undefined ? rest : rest.slice(1);
  const file = files[0];
  if (file === undefined) throw new UsageError('a FILE is needed');
  if (files.length > 1) throw new UsageError(`one FILE at a time, not ${files.length}`);
  if (kind === 'fetch-collateral' && values.into === undefined)
    throw new UsageError('fetch-collateral needs --into DIR');
  const forms = FORMS.filter((form) => values[form]);
  if (kind === 'export' ? forms.length !== 1 : forms.length > 0)
    throw new UsageError('export needs one of --cmw and --cvm1, and nothing else has them');
  if (values.ear && (values.json || command !== 'verify'))
    throw new UsageError('--ear is another form of the result of verify than --json');
  return {
    command: kind,
    file,
    request: values.request ?? null,
    response: values.response ?? null,
    endpoint: values.endpoint === undefined ? null : endpoint(values.endpoint),
    allowSimulated: values['allow-simulated'] ?? null,
    offline: values.offline,
    collateral: values.collateral ?? null,
    rimDir: values['rim-dir'] ?? null,
    ocsp: values.ocsp ?? [],
    rimUrl: url('--rim-url', values['rim-url']),
    ocspUrl: url('--ocsp-url', values['ocsp-url']),
    at: values.at === undefined ? null : time(values.at),
    maxAgeSeconds: values['max-age'] === undefined ? null : seconds(values['max-age']),
    maxBatch: values['max-batch'] === undefined ? null : answers(values['max-batch']),
    withoutReferenceValues: values['without-reference-values'],
    withoutRevocation: values['without-revocation'],
    session: values.session ?? null,
    challenge: values.challenge === undefined ? null : challenge(values.challenge),
    minLevel: values['min-level'] === undefined ? null : oneOf('--min-level', values['min-level'], LEVELS),
    reportData: values['report-data'] === undefined ? null : hex(values['report-data']),
    products: (values.product ?? []).map((value) => oneOf('--product', value, PRODUCTS)),
    tcb: (values.tcb ?? []).map((value) => oneOf('--tcb', value, TCB_STATUSES)),
    reference: values.reference ?? null,
    json: values.json,
    ear: values.ear,
    form: forms[0] ?? null,
    into: values.into ?? null,
  };
}

function parse(argv: readonly string[]) {
  try {
    return parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        help: { ...flag, short: 'h' },
        request: text,
        response: text,
        endpoint: text,
        'allow-simulated': text,
        offline: flag,
        collateral: text,
        'rim-dir': text,
        ocsp: { type: 'string', multiple: true },
        'rim-url': text,
        'ocsp-url': text,
        at: text,
        'max-age': text,
        'max-batch': text,
        'without-reference-values': flag,
        'without-revocation': flag,
        session: text,
        challenge: text,
        'min-level': text,
        'report-data': text,
        product: { type: 'string', multiple: true },
        tcb: { type: 'string', multiple: true },
        reference: text,
        json: flag,
        ear: flag,
        cmw: flag,
        cvm1: flag,
        into: text,
      },
    });
  } catch (error) {
    throw new UsageError((error as Error).message.split('. ')[0] ?? 'bad arguments');
  }
}

function url(name: string, value: string | undefined): string | null {
  if (value !== undefined && !/^https?:\/\/./.test(value)) throw new UsageError(`${name} ${value}: not an http(s) URL`);
  return value ?? null;
}

/** What `Date` reads besides, it guesses: 'foo 7' is a day, and 06/01 is the sixth of January to half of its readers. */
const ISO_8601 = /^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?)?$/;
/** Fewer digits are a year or a day. */
const UNIX_SECONDS = /^\d{9,12}$/;

function time(value: string): Date {
  const ms = UNIX_SECONDS.test(value)
    ? Number(value) * 1000
    : ISO_8601.test(value)
      ? Date.parse(value.replace(' ', 'T'))
      : Number.NaN;
  if (Number.isNaN(ms)) throw new UsageError(`--at ${value}: not a time (ISO 8601 or Unix seconds)`);
  return new Date(ms);
}

function seconds(value: string): number {
  if (!/^\d{1,12}$/.test(value)) throw new UsageError(`--max-age ${value}: not a number of seconds`);
  return Number(value);
}

function answers(value: string): number {
  if (!/^[1-9]\d{0,11}$/.test(value)) throw new UsageError(`--max-batch ${value}: not a number of answers`);
  return Number(value);
}

const MAX_REPORT_DATA_DIGITS = 128;

function endpoint(value: string): string {
  if (!isEndpoint(value)) throw new UsageError(`--endpoint ${value}: not a path under /v1/, without its query`);
  return value;
}

function hex(value: string): string {
  if (!/^([0-9a-f]{2})+$/i.test(value) || value.length > MAX_REPORT_DATA_DIGITS)
    throw new UsageError(`--report-data ${value}: not 1 to 64 bytes in hexadecimal digits`);
  return value.toLowerCase();
}

function challenge(value: string): string {
  if (!/^[0-9a-f]{64}$/i.test(value)) throw new UsageError(`--challenge ${value}: not 64 hexadecimal digits`);
  return value.toLowerCase();
}

function oneOf<T extends string>(name: string, value: string, among: readonly T[]): T {
  const found = among.find((one) => one === value);
  if (found === undefined) throw new UsageError(`${name} ${value}: not one of ${among.join(', ')}`);
  return found;
}
