// `countersign proxy`: a server on this machine for clients that take a URL and nothing else. It seals their requests to the attested
// machine, and returns only proven responses.
import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { type UnprovenAnswerError, verifyingFetch } from '../clients/fetch.ts';
import { MEANING, type SealedFetchError, type SealedSession, sealedFetch } from '../clients/sealed.ts';
import { VerificationError, type VerifyOptions } from '../index.ts';
import type { Arguments } from './args.ts';
import { readText, UsageError, unusable } from './input.ts';
import { type Loopback, startLoopback } from './loopback.ts';
import { plain } from './report.ts';

/** The options of `countersign proxy` alone. */
type ProxyArguments = Pick<
  Arguments,
  | 'gateway'
  | 'port'
  | 'minLevel'
  | 'apiKeyFile'
  | 'edgeKeyFile'
  | 'tokenFile'
  | 'allowOrigins'
  | 'unprovenPaths'
  | 'plain'
  | 'padding'
  | 'withoutChallenge'
>;

type Fetch = typeof globalThis.fetch;

/** Serves until SIGINT or SIGTERM. @param options those of every verification. @returns the exit status. @throws {UsageError} */
export async function proxy(args: ProxyArguments, options: VerifyOptions): Promise<number> {
  const gateway = (args.gateway ?? '').replace(/\/+$/, '').replace(/\/v1$/, '');
  const apiKey = keyOf(args.apiKeyFile);
  const edgeKey = keyOf(args.edgeKeyFile);
  const { token, isPrinted } = tokenOf(args.tokenFile);
  const minLevel = args.minLevel ?? (args.plain ? options.policy?.minLevel : 'measured');
  const shared = { ...options, policy: { ...options.policy, minLevel } };
  /** While it is false, a refusal ends the program. */
  let isServing = false;
  let refused: SealedFetchError | null = null;
  const carrier: Fetch = args.plain
    ? fetch
    : sealedFetch({
        ...shared,
        url: gateway,
        padding: args.padding,
        challenge: !args.withoutChallenge,
        ...(edgeKey === null ? {} : { edgeHeaders: { authorization: `Bearer ${edgeKey}` } }),
        onSession: (session) => printSession(session, isServing, gateway),
        onRefused: (error) => {
          refused = error;
          if (isServing) printRefusal(error);
        },
      });
  const send = verifyingFetch({
    ...shared,
    fetch: carrier,
    unprovenPaths: args.unprovenPaths,
    onUnproven: printRefusal,
  });
  const asGateway: Fetch = (path, init) => {
    const headers = new Headers(init?.headers);
    if (apiKey !== null) headers.set('authorization', `Bearer ${apiKey}`);
    return send(gateway + String(path), { ...init, headers });
  };

  // A request for the list of models tests the whole way before any client needs it.
  const models = await asGateway('/v1/models').catch(() => {
    throw new UsageError(`--gateway ${gateway}: cannot be reached`);
  });
  await models.body?.cancel();
  const status = refusedAtStart(refused);
  if (status !== null) return status;
  if (!models.ok) console.error(`countersign: the gateway answers ${models.status} to GET /v1/models`);
  if (args.plain)
    console.log(
      `not sealed: whatever stands before ${plain(gateway)} reads prompts and answers. Every answer is verified.`,
    );
  isServing = true;
  const loopback = await listening({ port: args.port, token, origins: args.allowOrigins, serve: asGateway });
  console.log(`\nbase URL  ${loopback.url}/v1`);
  console.log(`API key   ${isPrinted ? token : `that of ${plain(args.tokenFile ?? '')}`}`);
  await ended();
  await loopback.close();
  return 0;
}

/** @throws {UsageError} */
function keyOf(file: string | null): string | null {
  if (file === null) return null;
  const key = readText(file).trim();
  if (!/^[!-~]+$/.test(key)) throw new UsageError(`${file}: not one key in printable ASCII`);
  return key;
}

const TOKEN_BYTES = 32;
const MIN_TOKEN_LENGTH = 16;

/** The proxy's own key. A file that does not exist is created, readable by its owner alone. @throws {UsageError} */
function tokenOf(file: string | null): { readonly token: string; readonly isPrinted: boolean } {
  const fresh = `cs-${randomBytes(TOKEN_BYTES).toString('base64url')}`;
  if (file === null) return { token: fresh, isPrinted: true };
  try {
    writeFileSync(file, `${fresh}\n`, { mode: 0o600, flag: 'wx' });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw unusable(file, error);
  }
  const token = readFileSync(file, 'utf8').trim();
  if (!/^[!-~]+$/.test(token) || token.length < MIN_TOKEN_LENGTH)
    throw new UsageError(
      `--token-file ${file}: not a key of at least ${MIN_TOKEN_LENGTH} characters in printable ASCII`,
    );
  return { token, isPrinted: false };
}

async function listening(options: Parameters<typeof startLoopback>[0]): Promise<Loopback> {
  try {
    return await startLoopback(options);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new UsageError(`--port ${options.port}: ${code === 'EADDRINUSE' ? 'in use' : `cannot be used (${code})`}`);
  }
}

/** The exit status where nothing can be served; null where everything is right. */
function refusedAtStart(error: SealedFetchError | null): number | null {
  if (error === null) return null;
  const { cause } = error;
  const detail = cause instanceof VerificationError ? ` ${cause.message}` : '';
  console.error(`countersign: ${error.code}: ${plain(error.message + detail)}`);
  const step = NEXT[error.code];
  if (step !== undefined) console.error(step);
  return cause instanceof VerificationError && cause.incomplete ? 3 : 1;
}

/** What the user can do about a refusal, by its code. */
const NEXT: Readonly<Record<string, string>> = {
  level_too_low:
    'Software that you know is named by --reference FILE. --min-level accepts less: read above what it means. --plain seals nothing, and verifies each answer.',
  session_missing:
    'Without a processor that signs there is nothing to seal to: --plain verifies each answer, and seals nothing.',
  session_without_key: '--plain verifies each answer, and seals nothing.',
  simulated_root_refused:
    'A simulated GPU made this. Where that is expected (npm start), name its root: --allow-simulated run/simulated-root/root.pem --min-level none',
  session_unavailable:
    'A key that the gateway or an edge asks for outside of the seal is named by --edge-key-file FILE.',
};

function printSession({ level, report }: SealedSession, isServing: boolean, gateway: string): void {
  if (isServing) return console.error(`countersign: a new session is verified (level: ${level})`);
  const lines = [
    `sealing to ${gateway}`,
    `level     ${level}`,
    `          ${MEANING[level]}`,
    ...report.proven.map((one) => `proven    ${one}`),
    ...report.not_proven.map((one) => `open      ${one}`),
  ];
  console.log(lines.map(plain).join('\n'));
}

/** Prints a code and fixed words, and nothing that a server sent. */
function printRefusal({ code, message }: SealedFetchError | UnprovenAnswerError): void {
  console.error(`countersign: refused: ${code}: ${plain(message)}`);
}

const ended = (): Promise<void> =>
  new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve());
  });
