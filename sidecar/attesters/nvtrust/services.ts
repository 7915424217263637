// A server on loopback between NVIDIA's Python SDK and NVIDIA's services, which the SDK asks about eleven times a signature. It answers
// from reference values and OCSP responses that it keeps. The SDK verifies signatures; that a status is about the certificate that was
// asked about, and is still valid, is checked here, because the SDK does not look at the time.
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { LRUCache } from 'lru-cache';
import {
  fetchRim,
  NVIDIA_OCSP_URL,
  NVIDIA_RIM_URL,
  OCSP_NONCE_BYTES,
  OCSP_SKEW_MS,
  ocspRequestOf,
  parseOcspRequest,
  parseOcspResponse,
  readLimited,
  validity,
} from '../../../verify/service.ts';
import type { KeptFiles } from '../../common/kept-files.ts';
import type { ProgramEnvironment } from '../../common/program.ts';

interface KeptServicesOptions {
  /** Names the services as the SDK does (NV_RIM_URL, NV_OCSP_URL); NVIDIA's by default. */
  readonly environment: ProgramEnvironment;
  /** Where documents are kept across restarts; null: only in memory. */
  readonly store: KeptFiles<'rim' | 'ocsp'> | null;
  readonly fetch: typeof globalThis.fetch;
  readonly clock?: () => Date;
}

interface KeptServices {
  /** The environment for workers, whose services are this server: they need no proxy and no network. */
  readonly environment: ProgramEnvironment;
  /** Drops what is kept: NVIDIA's verifier refused an appraisal, and a document may be the reason. */
  forget(): Promise<void>;
  close(): Promise<void>;
}

interface Kept {
  readonly kind: 'rim' | 'ocsp';
  readonly bytes: Uint8Array;
  readonly until_ms: number;
}

/** What goes to the SDK in place of a document: the service's own status, or one of ours. */
class Status extends Error {
  readonly code: number;
  constructor(code: number, options?: ErrorOptions) {
    super(`status ${code}`, options);
    this.code = code;
  }
}

/** A RIM is fetched again after this; NVIDIA may have signed a new one. */
const RIM_MS = 86_400_000;
/** A RIM from before a restart is fetched again sooner. */
const OLD_RIM_MS = 3_600_000;
const MAX_ENTRIES = 1024;
const MAX_BYTES = 2 * 1024 * 1024;
const MAX_REQUEST_BYTES = 16 * 1024;
/** Below the SDK's own 10 s for an OCSP response. */
const TIMEOUT_MS = 8_000;
const BAD_GATEWAY = 502;
/** The responder's answer does not hold: failures.py has a reason of its own for it. */
const UNPROCESSABLE = 422;
const PROXIES: ReadonlySet<string> = new Set([
  'http_proxy',
  'https_proxy',
  'no_proxy',
  'HTTP_PROXY',
  'HTTPS_PROXY',
  'NO_PROXY',
]);

export async function startKeptServices(options: KeptServicesOptions): Promise<KeptServices> {
  const { environment, store, fetch, clock = () => new Date() } = options;
  const rim_url = (environment.NV_RIM_URL ?? NVIDIA_RIM_URL).replace(/\/v1\/rim\/$/, '');
  const ocsp_url = environment.NV_OCSP_URL ?? NVIDIA_OCSP_URL;
  const kept = new LRUCache<string, Kept>({ max: MAX_ENTRIES });
  const underway = new Map<string, Promise<Uint8Array>>();

  /** From memory while it is valid, or by `load`; one load at a time for each id. */
  function document(id: string, load: () => Promise<Kept | Uint8Array>): Promise<Uint8Array> {
    const entry = kept.get(id);
    if (entry !== undefined && clock().getTime() < entry.until_ms) return Promise.resolve(entry.bytes);
    const running =
      underway.get(id) ??
      load()
        .then(async (loaded) => {
          if (loaded instanceof Uint8Array) return loaded;
          kept.set(id, loaded);
          await store?.write(loaded.kind, id, loaded.bytes);
          return loaded.bytes;
        })
        .finally(() => underway.delete(id));
    underway.set(id, running);
    return running;
  }

  function rim(id: string, authorization: string | undefined): Promise<Uint8Array> {
    return document(id, async () => {
      const now_ms = clock().getTime();
      const stored = kept.has(id) ? null : ((await store?.read('rim', id)) ?? null);
      if (stored !== null) return { kind: 'rim', bytes: stored, until_ms: now_ms + OLD_RIM_MS };
      const withKey: typeof fetch = (url, init) =>
        ask(fetch, url, { ...init, headers: { ...init?.headers, ...key(authorization) } });
      const bytes = await fetchRim(id, withKey, { rim_url, timeout_ms: TIMEOUT_MS }).catch((error: unknown) => {
        const old = kept.get(id);
        // It is signed and does not end: while the service is away it serves on.
        if (old === undefined || (error instanceof Status && error.code < 500)) throw error;
        return old.bytes;
      });
      if (bytes === null) throw new Status(404);
      return { kind: 'rim', bytes, until_ms: now_ms + RIM_MS };
    });
  }

  /** A request with a nonce wants a response that nobody was given before: it is passed on. */
  function ocsp(request: Uint8Array, authorization: string | undefined): Promise<Uint8Array> {
    const { id: der, nonce } = parseOcspRequest(request);
    const post = (body: Uint8Array) => {
      const headers = { 'content-type': 'application/ocsp-request', ...key(authorization) };
      return ask(fetch, ocsp_url, {
        method: 'POST',
        headers,
        body: Buffer.from(body),
        signal: AbortSignal.timeout(TIMEOUT_MS),
      });
    };
    if (nonce !== null) return post(request).then((response) => readLimited(response, MAX_BYTES));
    const id = Buffer.from(der).toString('hex');
    return document(id, async () => {
      const stored = kept.has(id) ? null : ((await store?.read('ocsp', id)) ?? null);
      if (stored !== null) {
        const until_ms = goodUntil(stored, request, null, clock());
        if (until_ms !== null) return { kind: 'ocsp', bytes: stored, until_ms };
      }
      const fresh = crypto.getRandomValues(new Uint8Array(OCSP_NONCE_BYTES));
      const bytes = await readLimited(await post(ocspRequestOf(der, fresh)), MAX_BYTES);
      const until_ms = goodUntil(bytes, request, fresh, clock());
      return until_ms === null ? bytes : { kind: 'ocsp', bytes, until_ms };
    });
  }

  const path = `/${randomUUID()}`;
  const server = createServer((request, response) => {
    void respond(request, response, path, { rim, ocsp });
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}${path}`;
  const rest = Object.fromEntries(Object.entries(environment).filter(([name]) => !PROXIES.has(name)));
  return {
    environment: { ...rest, NV_RIM_URL: `${base}/v1/rim/`, NV_OCSP_URL: `${base}/ocsp/` },
    async forget() {
      for (const [id, { kind }] of kept.entries()) await store?.remove(kind, id);
      kept.clear();
    },
    async close() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

type Sources = Readonly<Record<'ocsp', (request: Uint8Array, key: string | undefined) => Promise<Uint8Array>>> &
  Readonly<Record<'rim', (id: string, key: string | undefined) => Promise<Uint8Array>>>;

async function respond(request: IncomingMessage, response: ServerResponse, path: string, sources: Sources) {
  const { method, url = '', headers } = request;
  try {
    if (method === 'POST' && url === `${path}/ocsp/`) {
      const bytes = await sources.ocsp(await bodyOf(request), headers.authorization);
      response.writeHead(200, { 'content-type': 'application/ocsp-response' }).end(bytes);
      return;
    }
    const prefix = `${path}/v1/rim/`;
    if (method !== 'GET' || !url.startsWith(prefix)) throw new Status(404);
    const id = decodeURIComponent(url.slice(prefix.length));
    const rim = Buffer.from(await sources.rim(id, headers.authorization)).toString('base64');
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ id, rim }));
  } catch (error) {
    // The worker learns only the status, and names the service that it asked.
    response.writeHead(error instanceof Status ? error.code : BAD_GATEWAY).end();
  }
}

const key = (authorization: string | undefined) => (authorization === undefined ? {} : { authorization });

/** @throws {Status} the service's own, so that the SDK meets it as if it had asked. */
async function ask(fetch: typeof globalThis.fetch, url: Parameters<typeof fetch>[0], init: RequestInit) {
  const response = await fetch(url, { ...init, redirect: 'error' });
  if (response.status === 200) return response;
  await response.body?.cancel();
  throw new Status(response.status);
}

/**
 * Until when a response may be kept; null where it is not good, or not readable: the SDK then sees it, and says so.
 * @throws {Status} it is about another certificate, answers another request, or is not valid now.
 */
function goodUntil(response: Uint8Array, request: Uint8Array, nonce: Uint8Array | null, now: Date): number | null {
  let parsed: ReturnType<typeof parseOcspResponse>;
  try {
    parsed = parseOcspResponse(response);
  } catch {
    return null;
  }
  const { certId } = parseOcspRequest(request);
  const [single, ...others] = parsed.responses;
  const same = (a: Uint8Array, b: Uint8Array) => Buffer.compare(a, b) === 0;
  if (
    single === undefined ||
    others.length > 0 ||
    single.certId.serial !== certId.serial ||
    !same(single.certId.issuerNameHash, certId.issuerNameHash) ||
    !same(single.certId.issuerKeyHash, certId.issuerKeyHash) ||
    (nonce !== null && (parsed.nonce === null || !same(parsed.nonce, nonce)))
  )
    throw new Status(UNPROCESSABLE);
  const { thisUpdate, nextUpdate } = validity(single);
  if (now.getTime() < thisUpdate.getTime() - OCSP_SKEW_MS || now > nextUpdate) throw new Status(UNPROCESSABLE);
  return single.status === 'good' ? nextUpdate.getTime() : null;
}

async function bodyOf(request: IncomingMessage): Promise<Uint8Array> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > MAX_REQUEST_BYTES) throw new Status(413);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
