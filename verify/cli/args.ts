// Reads the command line: what to check, with what, and how to print it.
import { existsSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { isEndpoint } from '../../proto/attestation/raw.ts';
import { distance, nearest } from '../common/known-options.ts';
import type { ReleaseOptions } from '../common/release-options.ts';
import { PRODUCTS, type Product, TCB_STATUSES, type TcbStatus } from '../cpu.ts';
import { LEVELS, type Level } from '../index.ts';
import { SHELLS, type Shell } from './help.ts';
import { UsageError } from './input.ts';
import { COMMANDS, type Command, DEMANDS, OF_SERVICE } from './table.ts';

export interface Arguments {
  /** Its name. */
  readonly command: string;
  /** Of a command that runs itself: its options by their names, its operands, and what it does. */
  readonly values: Parsed['values'];
  readonly operands: readonly string[];
  readonly run: OwnCommand['run'] | null;
  /** The names of the options on the command line. */
  readonly given: readonly string[];
  /** Empty for `proxy`, which has none. */
  readonly file: string;
  readonly request: string | null;
  readonly response: string | null;
  readonly endpoint: string | null;
  readonly event: boolean;
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
  /** Files and folders of bundles. */
  readonly bundles: readonly string[];
  /** In hex. */
  readonly challenge: string | null;
  /** Of `evidence`, in hex. */
  readonly nonce: string | null;
  readonly requireLevel: Level | null;
  /** In hex. */
  readonly reportData: string | null;
  /** Empty: any. In hex. */
  readonly devices: readonly string[];
  readonly chips: readonly string[];
  readonly demands: readonly (typeof DEMANDS)[number][];
  /** Empty: the verifier's defaults. */
  readonly products: readonly Product[];
  readonly tcb: readonly TcbStatus[];
  readonly reference: string | null;
  /** A file, or 64 hex digits. */
  readonly weights: string | null;
  /** The release that is named; its repository is null where it is the project's own. */
  readonly release: { readonly repository: string | null; readonly tag: string | null } | null;
  /** Its texts, once they were found. */
  readonly released: ReleaseOptions | null;
  readonly trustedRoot: string | null;
  readonly json: boolean;
  readonly quiet: boolean;
  readonly verbose: boolean;
  /** Of `collateral`. */
  readonly into: string | null;
  /** Of `expand`. */
  readonly url: string | null;
  readonly apiKeyFile: string | null;
  /** Of `proxy`, and where --release is asked for. */
  readonly gateway: string | null;
  readonly port: number;
  readonly minLevel: Level | null;
  readonly edgeKeyFile: string | null;
  readonly tokenFile: string | null;
  /** As browsers send them. */
  readonly allowOrigins: readonly string[];
  readonly unprovenPaths: readonly string[];
  readonly plain: boolean;
  readonly padding: boolean;
  readonly withoutChallenge: boolean;
}

/** A command that another room adds: it takes any number of operands, and runs itself. */
export interface OwnCommand extends Command {
  /** Returns the exit status. @throws {UsageError} */
  readonly run: (args: Arguments, env: Readonly<Record<string, string | undefined>>) => Promise<number>;
}

/** A request to print help, the version or a script for a shell. */
export type Request =
  | { readonly print: 'help' | 'version'; readonly command: Command | null }
  | { readonly shell: Shell };

const PROXY_PORT = 8787;

/** @throws {UsageError} */
export function readArguments(argv: readonly string[], more: readonly OwnCommand[] = []): Arguments | Request {
  const [first, ...rest] = argv;
  const all: readonly Command[] = [...COMMANDS, ...more];
  const named = all.find(({ name }) => name === first);
  if (named === undefined && ['-h', '--help', 'help'].includes(first ?? ''))
    return { print: 'help', command: all.find(({ name }) => name === rest[0]) ?? null };
  if (named === undefined && (first === '--version' || first === '-v')) return { print: 'version', command: null };
  if (first === undefined) throw new UsageError('a FILE or a command is needed');
  if (OF_SERVICE.some(({ name }) => name === first))
    throw new UsageError(`${first} belongs to the service: run it in its folder or in its image`);
  if (named === undefined) refuseNoCommand(first, rest, all);
  // `countersign FILE` is `countersign verify FILE`.
  const command = named ?? (COMMANDS[0] as Command);
  const { values, positionals } = parse(named === undefined ? argv : rest, command, all);
  const flag = (name: string): boolean => values[name] === true;
  if (flag('help')) return { print: 'help', command };
  if (flag('version')) return { print: 'version', command: null };
  if (command.name === 'completion') return { shell: oneOf('completion', positionals[0] ?? '', SHELLS) };
  const run = more.find(({ name }) => name === command.name)?.run ?? null;
  const file = run === null ? fileIn(positionals, command) : (positionals[0] ?? '');

  const text = (name: string): string | null => (values[name] as string | undefined) ?? null;
  const texts = (name: string): readonly string[] => (values[name] as string[] | undefined) ?? [];
  const read = <T>(name: string, reader: (value: string) => T): T | null => {
    const value = text(name);
    return value === null ? null : reader(value);
  };
  if (command.name === 'export' && !flag('cmw')) throw new UsageError('export needs --cmw');
  if (command.name === 'collateral' && text('into') === null) throw new UsageError('collateral needs --into DIR');
  if (command.name === 'proxy' && text('gateway') === null) throw new UsageError('proxy needs --gateway URL');
  const ofRelease = command.name === 'proxy' ? ['trusted-root'] : ['trusted-root', 'gateway'];
  for (const name of ofRelease)
    if (values[name] !== undefined && values.release === undefined)
      throw new UsageError(`--${name} is for the release that --release names`);
  if (values.release !== undefined && values.reference !== undefined)
    throw new UsageError('--release and --reference: one list at a time');
  for (const name of ['edge-key-file', 'padding', 'without-challenge'])
    if (flag('plain') && values[name] !== undefined)
      throw new UsageError(`--${name} is for what is sealed, and --plain seals nothing`);
  return {
    command: command.name,
    values,
    operands: positionals,
    run,
    given: Object.keys(values),
    file,
    request: text('request'),
    response: text('response'),
    endpoint: read('endpoint', endpoint),
    event: flag('event'),
    allowSimulated: text('allow-simulated'),
    offline: flag('offline'),
    collateral: text('collateral'),
    rimDir: text('rim-dir'),
    ocsp: texts('ocsp'),
    rimUrl: read('rim-url', (value) => url('--rim-url', value)),
    ocspUrl: read('ocsp-url', (value) => url('--ocsp-url', value)),
    at: read('at', time),
    maxAgeSeconds: read('max-age', seconds),
    maxBatch: read('max-batch', answers),
    withoutReferenceValues: flag('without-reference-values'),
    withoutRevocation: flag('without-revocation'),
    session: text('session'),
    bundles: texts('bundle'),
    challenge: read('challenge', (value) => digest('--challenge', value)),
    nonce: read('nonce', (value) => digest('--nonce', value)),
    requireLevel: read('require-level', (value) => oneOf('--require-level', value, LEVELS)),
    reportData: read('report-data', hex),
    products: texts('product').map((value) => oneOf('--product', value, PRODUCTS)),
    tcb: texts('tcb').map((value) => oneOf('--tcb', value, TCB_STATUSES)),
    devices: texts('device').map((value) => digest('--device', value)),
    chips: texts('chip').map(chip),
    demands: texts('demand').map((value) => oneOf('--demand', value, DEMANDS)),
    reference: text('reference'),
    weights: text('weights'),
    release: read('release', releaseNamed),
    released: null,
    trustedRoot: text('trusted-root'),
    json: flag('json'),
    quiet: flag('quiet'),
    verbose: flag('verbose'),
    into: text('into'),
    url: read('url', (value) => url('--url', value)),
    apiKeyFile: text('api-key-file'),
    gateway: read('gateway', (value) => url('--gateway', value)),
    port: read('port', port) ?? PROXY_PORT,
    minLevel: read('min-level', (value) => oneOf('--min-level', value, LEVELS)),
    edgeKeyFile: text('edge-key-file'),
    tokenFile: text('token-file'),
    allowOrigins: texts('allow-origin').map(origin),
    unprovenPaths: texts('unproven-path').map(unprovenPath),
    plain: flag('plain'),
    padding: flag('padding'),
    withoutChallenge: flag('without-challenge'),
  };
}

/** How many characters of a command's name may be wrong before it counts as a FILE's name. */
const MAX_WRONG = 2;

/** @throws {UsageError} for a misspelt command, which is no FILE either. */
function refuseNoCommand(first: string, [second = '-']: readonly string[], all: readonly Command[]): void {
  if (!/^[a-z]+$/.test(first) || existsSync(first)) return;
  const near = nearest(
    first,
    [...all, ...OF_SERVICE].map(({ name }) => name),
  );
  if (!second.startsWith('-') || distance(first, near) <= MAX_WRONG)
    throw new UsageError(`there is no command ${first}: the nearest is ${near}`);
}

/** The one operand; an empty text for a command without operands. @throws {UsageError} */
export function fileIn([file, ...more]: readonly string[], { name, operands }: Command): string {
  if (operands === '') {
    if (file !== undefined) throw new UsageError(`${name} takes no FILE`);
    return '';
  }
  if (file === undefined) throw new UsageError(`${name}: a FILE is needed`);
  if (more.length > 0) throw new UsageError('one FILE at a time');
  return file;
}

interface Parsed {
  readonly values: Readonly<Record<string, unknown>>;
  readonly positionals: readonly string[];
}

/** What remains in place of options of earlier versions. */
const REMOVED: ReadonlyMap<string, string> = new Map([
  ['ear', '--json prints the report'],
  ['cvm1', '--cmw exports the evidence'],
]);

function parse(args: readonly string[], command: Command, all: readonly Command[]): Parsed {
  const own = Object.fromEntries(
    command.options.map(({ name, short, value, multiple = false }) => [
      name,
      {
        type: value === undefined ? ('boolean' as const) : ('string' as const),
        multiple,
        ...(short === undefined ? {} : { short }),
      },
    ]),
  );
  const options = { ...own, help: { type: 'boolean', short: 'h' }, version: { type: 'boolean', short: 'v' } } as const;
  // The one option whose value may be left out: at the end, or before another option.
  const given = args.map((arg, i) =>
    arg === '--release' && (args[i + 1] ?? '-').startsWith('-') ? '--release=' : arg,
  );
  try {
    return parseArgs({ args: given, allowPositionals: true, options });
  } catch {
    const { tokens } = parseArgs({ args: given, strict: false, tokens: true, options });
    const named = tokens.filter((token) => token.kind === 'option');
    const other = named.find(({ name }) => !Object.hasOwn(options, name));
    const owners = all.filter((one) => one.options.some(({ name }) => name === other?.name));
    const names = owners.map(({ name }) => name).join(', ');
    if (names !== '') throw new UsageError(`${command.name} has no --${other?.name}, which is of ${names}`);
    const instead = REMOVED.get(other?.name ?? '');
    if (instead !== undefined) throw new UsageError(`there is no ${other?.rawName} any more: ${instead}`);
    if (other !== undefined) throw new UsageError(`Unknown option '${other.rawName}'`);
    // Every option is known, so the value of one is wrong.
    const isFlag = (name: string) => (options as Record<string, { type: string }>)[name]?.type === 'boolean';
    const flag = named.find(({ name, value }) => isFlag(name) && value !== undefined);
    if (flag !== undefined) throw new UsageError(`Option '${flag.rawName}' does not take an argument`);
    const bare = named.find((one) => !isFlag(one.name) && !one.inlineValue && /^-./.test(one.value ?? '--'));
    throw new UsageError(`Option '${bare?.rawName}' needs an argument; write =VALUE for one that begins with a dash`);
  }
}

/** @throws {UsageError} */
export function url(name: string, value: string): string {
  if (!/^https?:\/\/./.test(value) || !URL.canParse(value))
    throw new UsageError(`${name} ${value}: not an http(s) URL`);
  return value;
}

/** `Date` guesses at other forms: 'foo 7' is a day, and 06/01 is the sixth of January to half of its readers. */
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

function port(value: string): number {
  if (!/^\d{1,5}$/.test(value) || Number(value) > 65_535) throw new UsageError(`--port ${value}: not a port`);
  return Number(value);
}

function origin(value: string): string {
  const parsed = URL.canParse(value) ? new URL(value) : null;
  if (parsed === null || parsed.origin === 'null' || parsed.origin !== value.toLowerCase().replace(/\/$/, ''))
    throw new UsageError(`--allow-origin ${value}: not an origin such as http://localhost:3000`);
  return parsed.origin;
}

function unprovenPath(value: string): string {
  if (!/^\/v1\/[!-~]+$/.test(value)) throw new UsageError(`--unproven-path ${value}: not a path under /v1/`);
  return value;
}

/** As GitHub allows them: each part may be left out. */
const RELEASE = /^([A-Za-z0-9][A-Za-z0-9-]{0,38}\/[A-Za-z0-9._-]{1,100})?(?:@([A-Za-z0-9][A-Za-z0-9._+-]{0,99}))?$/;

function releaseNamed(value: string): Arguments['release'] {
  const [whole, repository = null, tag = null] = RELEASE.exec(value) ?? [];
  if (whole === undefined) throw new UsageError(`--release ${value}: not OWNER/REPO, OWNER/REPO@TAG or @TAG`);
  return { repository, tag };
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

function digest(name: string, value: string): string {
  if (!/^[0-9a-f]{64}$/i.test(value)) throw new UsageError(`${name} ${value}: not 64 hexadecimal digits`);
  return value.toLowerCase();
}

/** SEV-SNP's chip id has 64 bytes, Intel's PPID 16. */
function chip(value: string): string {
  if (!/^([0-9a-f]{128}|[0-9a-f]{32})$/i.test(value))
    throw new UsageError(`--chip ${value}: not 128 or 32 hexadecimal digits`);
  return value.toLowerCase();
}

function oneOf<T extends string>(name: string, value: string, among: readonly T[]): T {
  const found = among.find((one) => one === value);
  if (found === undefined) throw new UsageError(`${name} ${value}: not one of ${among.join(', ')}`);
  return found;
}
