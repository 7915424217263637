// Tee: reads the headers that request it, and prepares an attested response: limits, the sidecar, a store entry, a delivery.
import { hash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { BatchGroup } from '../../proto/attestation/frames.ts';
import { isEndpoint } from '../../proto/attestation/raw.ts';
import { streamFormOf } from '../../proto/stream/forms.ts';
import type { Attestor, Sidecar, Store } from '../attestation/interfaces.ts';
import type { Canary, ResponseHead } from '../backend/backend.ts';
import { canaryProblem } from '../backend/canary.ts';
import { ChunkBuffer, EMPTY } from '../base/bytes.ts';
import type { GatewayConfig } from '../base/config.ts';
import { TEE_COPIES } from '../base/memory-bounds.ts';
import { asProblem, Problem } from '../base/problem.ts';
import type { Outgoing } from '../http/body.ts';
import type { Owner } from '../keys/keys.ts';
import type { ConcurrencyPermit } from '../limits/concurrency.ts';
import type { Outcome, Watch } from '../telemetry/watch.ts';
import type { Tee } from '../threads/jobs.ts';
import { answerTooLarge } from '../threads/jobs.ts';
import { type Delivery, headersOf, mediaType, type Port, spliced, type TeeExchange } from './relay.ts';
import { streamDelivery } from './stream.ts';

export interface TeeDeps {
  readonly config: GatewayConfig;
  readonly sidecar: Sidecar;
  readonly store: Store;
  readonly canary: Pick<Canary, 'usable'>;
  readonly attestor: Attestor;
}

/** The members of an exchange that tee uses. */
interface TeeContext {
  readonly id: string;
  readonly owner: Owner;
  readonly outgoing: Outgoing;
  readonly permit: ConcurrencyPermit;
  readonly watch: Watch;
}

interface TeeHeader {
  readonly tee: Tee | null;
  /** The attestation is inserted into the response. */
  readonly spliced: boolean;
}

const NO_TEE: TeeHeader = { tee: null, spliced: true };
const WORDS = new Set(['1', 'true', 'batch', 'compact', 'header']);

/**
 * Reads the header `x-tee`, for clients that can set only headers: `1`, `batch`, `compact`, `header` (the attestation is available by its id
 * only) or a list of them; `0` is the same as no header. @throws {Problem} invalid_request
 */
export function teeHeader(headers: IncomingHttpHeaders): TeeHeader {
  const value = headers['x-tee'];
  if (value === undefined || value === '0' || value === 'false') return NO_TEE;
  const words = String(value)
    .split(',')
    .map((word) => word.trim());
  if (!words.every((word) => WORDS.has(word)))
    throw new Problem('invalid_request', 'The header x-tee must be 1, batch, compact, header, or 0.', {
      param: 'x-tee',
    });
  const tee = { batch: words.includes('batch'), compact: words.includes('compact') };
  return { tee, spliced: !words.includes('header') };
}

/** The kind of attestation, and the request that it covers. */
interface TeeRequest {
  readonly tee: Tee;
  readonly spliced: boolean;
  /** The request's path, without its query. */
  readonly endpoint: string;
  /** The client's body, exactly as received, as text or bytes. */
  readonly request: string | Buffer;
  readonly choices: number;
}

/**
 * Acquires permits, waits for the sidecar, and marks the attestation as pending in the store.
 * @throws {Problem} attestation_unavailable, overloaded, invalid_request
 */
export async function openTee(
  { outgoing, permit, watch, id, owner }: TeeContext,
  { config, sidecar, store, canary }: TeeDeps,
  { tee, ...rest }: TeeRequest,
): Promise<TeeExchange> {
  if (!isEndpoint(rest.endpoint))
    throw new Problem('invalid_request', 'tee: the path has characters that no proof can name.', { param: 'tee' });
  if (config.canary_stops !== 'none' && !canary.usable) throw canaryProblem();
  permit.tee();
  permit.hold((TEE_COPIES - 1) * rest.request.length);
  // The wait for a sidecar is never longer than an attestation may take.
  await sidecar.ready(Math.min(config.sidecar_wait_ms, config.attest_timeout_ms));
  store.begin(owner, id);
  return {
    id,
    owner,
    ...rest,
    streamForm: streamFormOf(rest.endpoint),
    compact: tee.compact,
    batch: tee.batch ? groupOf(owner, config) : null,
    outgoing,
    watch,
    hold: (chunk) => permit.hold(TEE_COPIES * chunk.length),
  };
}

/** The group of responses that may share a nonce with one of `owner`; null: none may. */
function groupOf(owner: Owner, { batch }: GatewayConfig): BatchGroup | null {
  if (batch === 'off') return null;
  return batch === 'per-key' ? (hash('sha256', `batch ${owner}`) as BatchGroup) : 'all';
}

/** Waits for the end of the exchange, and drops its store entry unless the response was attested. */
export async function settleTee(
  { id, owner }: Pick<TeeContext, 'id' | 'owner'>,
  { store }: Pick<TeeDeps, 'store'>,
  relayed: Promise<Outcome>,
): Promise<Outcome> {
  try {
    const outcome = await relayed;
    if (outcome.tee !== 'attested') store.drop(owner, id);
    return outcome;
  } catch (error) {
    store.drop(owner, id);
    throw error;
  }
}

/** Whether a response with this head can be attested, by its status and media type. */
export function isProvable(head: ResponseHead, { streamForm }: Pick<TeeExchange, 'streamForm'>): boolean {
  if (head.status === 204 || head.status === 205) return false;
  const type = mediaType(head.headers);
  return type === 'application/json' || (type === 'text/event-stream' && streamForm !== null);
}

/** @throws {Problem} backend_bad_response */
export function teeDelivery(
  head: ResponseHead,
  port: Port,
  exchange: TeeExchange,
  { attestor, config }: TeeDeps,
): Delivery {
  const encoded = head.headers['content-encoding'];
  if (encoded !== undefined && encoded !== 'identity')
    throw new Problem(
      'backend_bad_response',
      'The backend compressed an answer that is to be attested: turn its compression off.',
    );
  exchange.outgoing.setHeader('x-attestation-id', exchange.id);
  const make = mediaType(head.headers) === 'text/event-stream' ? streamDelivery : wholeDelivery;
  return make(head, port, exchange, attestor, config.max_answer_bytes);
}

// Delivers a whole response with its attestation: one member is inserted into the text of the backend's body.

export function wholeDelivery(
  head: ResponseHead,
  port: Port,
  exchange: TeeExchange,
  attestor: Attestor,
  max_answer_bytes: number,
): Delivery {
  const chunks = new ChunkBuffer();
  async function send(): Promise<void> {
    const body = chunks.whole();
    const attested = await attestor.attest(exchange, { body }, port.onDisconnect);
    const parts = exchange.spliced ? spliced(body, attested.json) : [body];
    attested.json = EMPTY;
    const { outgoing } = exchange;
    if (attested.tree_size !== null) outgoing.setHeader('x-tee-batch', String(attested.tree_size));
    outgoing.setHeader('content-length', String(parts.reduce((length, part) => length + part.length, 0)));
    outgoing.writeHead(head.status, { ...headersOf(head, false), 'content-type': 'application/json' });
    // Node sends them in one write without joining them: that would copy bytes that are already in memory.
    for (const part of parts) outgoing.write(part);
    outgoing.end();
    port.done({ status: head.status, tee: 'attested' });
  }
  return {
    data(chunk) {
      exchange.hold(chunk);
      if (chunks.bytes + chunk.length <= max_answer_bytes) chunks.add(chunk);
      else port.refuse(answerTooLarge(max_answer_bytes));
    },
    end: () => void send().catch((error) => port.refuse(asProblem(error))),
    fail: (problem) => port.refuse(problem),
  };
}
