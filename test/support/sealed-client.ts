// A client of sealed requests that tests can bend: the steps of a request one by one, and what came back as it came.
import { type Agent, request as httpRequest, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import { joined } from '../../sealed/byte-source.ts';
import {
  chooseKey,
  type Field,
  REQUEST_MEDIA_TYPE,
  readResponse,
  type SealedRequest,
  type SealingKey,
  sealRequest,
  writeContent,
  writeEnd,
  writeRequestHead,
} from '../../sealed/index.ts';
import { eventually } from './harness.ts';

/** The document of keys that the current session names, and its statement. */
export async function currentKeys(
  url: string,
  headers: Record<string, string> = {},
): Promise<{ readonly document: Uint8Array; readonly statement: string }> {
  let found: { document: Uint8Array; statement: string } | null = null;
  await eventually(async () => {
    const response = await fetch(`${url}/v1/attestation/session`, { headers });
    const { statement = null } = (await response.json()) as { statement?: string };
    const hpke = statement === null ? null : (JSON.parse(statement).hpke as string | null);
    if (statement !== null && hpke !== null) found = { document: Buffer.from(hpke, 'base64'), statement };
    return found !== null;
  });
  return found as unknown as { document: Uint8Array; statement: string };
}

export const currentKey = async (url: string, headers: Record<string, string> = {}): Promise<SealingKey> =>
  chooseKey((await currentKeys(url, headers)).document);

export interface Inner {
  readonly method?: string;
  readonly path?: string;
  readonly authority?: string;
  readonly headers?: Readonly<Record<string, string>> | readonly Field[];
  readonly body?: string | Uint8Array;
  readonly date?: Date | null;
  readonly padding?: number;
}

/** A binary HTTP request. */
export function messageOf(inner: Inner): Uint8Array<ArrayBuffer> {
  const { method = 'POST', path = '/v1/chat/completions', authority = 'localhost', body = '', padding = 0 } = inner;
  const { date = new Date(), headers = {} } = inner;
  const own: Field[] = [['content-type', 'application/json']];
  if (date !== null) own.push(['date', date.toUTCString()]);
  const given = Array.isArray(headers) ? (headers as Field[]) : Object.entries(headers as Record<string, string>);
  const names = new Set(given.map(([name]) => name));
  const fields = [...own.filter(([name]) => !names.has(name)), ...given];
  const head = writeRequestHead({ method, scheme: 'http', authority, path, fields });
  return joined([head, writeContent(typeof body === 'string' ? Buffer.from(body) : body), writeEnd(padding)]);
}

export async function sealMessage(
  key: SealingKey,
  message: Uint8Array,
): Promise<{ request: SealedRequest; chunks: Uint8Array[] }> {
  const request = await sealRequest(
    key,
    (async function* () {
      yield message;
    })(),
  );
  const chunks: Uint8Array[] = [];
  for await (const chunk of request.chunks) chunks.push(chunk);
  return { request, chunks };
}

export interface Outer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** As it arrives. */
  readonly body: IncomingMessage;
}

/** CLIENT_ADDRESS_HEADER where each request of {@link post} counts as another client's. */
export const FROM_ANYWHERE = { CLIENT_ADDRESS_HEADER: 'x-forwarded-for' };
let sent = 0;

/** Sends bytes to /ohttp, or to another `path`. `whole` false: the request stays open behind them. */
export function post(
  url: string,
  chunks: readonly Uint8Array[],
  headers: Record<string, string> = {},
  { agent, whole = true, path = '/ohttp' }: { agent?: Agent; whole?: boolean; path?: string } = {},
): Promise<Outer> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      `${url}${path}`,
      {
        method: 'POST',
        headers: {
          'content-type': REQUEST_MEDIA_TYPE,
          'x-forwarded-for': `10.0.${++sent >> 8}.${sent & 255}`,
          ...headers,
        },
        ...(agent === undefined ? {} : { agent }),
      },
      (response) => resolve({ status: response.statusCode ?? 0, headers: response.headers, body: response }),
    );
    request.on('error', reject);
    for (const chunk of chunks) request.write(chunk);
    if (whole) request.end();
    else request.flushHeaders();
  });
}

export async function textOf(outer: Outer): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of outer.body) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}

export interface Opened {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly text: string;
  /** The content, as it was opened piece by piece. */
  readonly pieces: readonly string[];
  json(): ReturnType<typeof JSON.parse>;
}

/** Opens a whole response. @throws {SealedError} */
export async function open(request: SealedRequest, body: AsyncIterable<Uint8Array>): Promise<Opened> {
  const { head, content } = await readResponse(request.openResponse(body));
  const pieces: string[] = [];
  for await (const piece of content) pieces.push(Buffer.from(piece).toString('utf8'));
  const text = pieces.join('');
  return { status: head.status, headers: Object.fromEntries(head.fields), text, pieces, json: () => JSON.parse(text) };
}

/** Seals, sends and opens. */
export async function sealedAsk(
  url: string,
  inner: Inner,
  key?: SealingKey,
): Promise<Opened & { readonly outer: Outer }> {
  const { request, chunks } = await sealMessage(key ?? (await currentKey(url)), messageOf(inner));
  const outer = await post(url, chunks);
  if (outer.status !== 200) throw new Error(`outer status ${outer.status}: ${await textOf(outer)}`);
  return { ...(await open(request, outer.body)), outer };
}

/** Asks as clients do: on an unknown key they take the current session's, once. Counts how often. */
export function retryingClient(url: string, body: string) {
  let key: SealingKey | null = null;
  const stats = { retries: 0, served: 0, failed: [] as string[] };
  async function once(): Promise<boolean> {
    key ??= await currentKey(url);
    const { request, chunks } = await sealMessage(key, messageOf({ body }));
    const outer = await post(url, chunks);
    if (outer.status === 422 && JSON.parse(await textOf(outer)).error.code === 'sealed_key_unknown') {
      key = null;
      return false;
    }
    if (outer.status !== 200) {
      stats.failed.push(`${outer.status} ${await textOf(outer)}`);
      return true;
    }
    const { status } = await open(request, outer.body);
    if (status === 200) stats.served++;
    else stats.failed.push(`inside ${status}`);
    return true;
  }
  return {
    stats,
    async ask(): Promise<void> {
      if (await once()) return;
      stats.retries++;
      if (!(await once())) stats.failed.push('the key is unknown twice');
    },
  };
}
