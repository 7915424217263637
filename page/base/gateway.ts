// Talks to the gateway that served this page, and to nothing else.
import type { Jwks } from '../../verify/index.ts';

/** As GET /page/service answers. */
export interface Service {
  readonly version: string;
  readonly key_required: boolean;
  readonly backend: {
    readonly status: 'ok' | 'down';
    readonly code?: string;
    readonly canary: { readonly state: string };
  };
  readonly sidecar: {
    readonly status: string;
    readonly attester: string | null;
    readonly devices: readonly { readonly arch: string; readonly model: string }[];
    readonly trouble: { readonly code: string; readonly message: string } | null;
  };
  /** Whether requests can be encrypted to a key of the attested machine, and whether others are taken. */
  readonly sealing: { readonly mode: 'off' | 'allowed' | 'required'; readonly available: boolean };
  /** PEM of the test root, where the GPU is simulated. */
  readonly simulated_root: string | null;
  readonly token_keys: Jwks | null;
}

export interface Model {
  readonly id: string;
  readonly description?: string;
}

export interface Message {
  readonly role: 'user' | 'assistant';
  readonly content: string;
}

/** The gateway refused, or is not there. `status` is 0 where nothing answered. */
export class GatewayError extends Error {
  override readonly name = 'GatewayError';
  readonly status: number;
  readonly code: string;
  readonly retryAfterSeconds: number | null;
  constructor(status: number, code: string, message: string, retryAfterSeconds: number | null = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** What carries requests under /v1: in the clear, or sealed. */
let carry: typeof fetch = (input, init) => fetch(input, init);
/** Carries every request under /v1 from now on; null: in the clear. */
export function carryWith(sealed: typeof fetch | null): void {
  carry = sealed ?? ((input, init) => fetch(input, init));
}

/** Only in memory. */
let key = '';
/** Sent with every request from now on; empty: none is. */
export function useKey(value: string): void {
  key = value.trim();
}

export const hasKey = (): boolean => key !== '';

/** With the visitor's key. @throws {GatewayError} @throws {DOMException} when `signal` was aborted. */
export async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (key !== '') headers.set('authorization', `Bearer ${key}`);
  let response: Response;
  try {
    const send = path.startsWith('/v1/') ? carry : fetch;
    response = await send(path, { ...init, headers });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new GatewayError(0, 'gateway_unreachable', 'The gateway does not answer. Is it still running?');
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response: Response): Promise<GatewayError> {
  const after = Number(response.headers.get('retry-after'));
  try {
    const { error } = (await response.json()) as { error: { message: string; code: string | null } };
    return new GatewayError(response.status, error.code ?? 'error', error.message, after > 0 ? after : null);
  } catch {
    return new GatewayError(response.status, 'error', `The gateway answered ${response.status}.`);
  }
}

/** @throws {GatewayError} @throws {DOMException} when `init` has a signal that was aborted. */
export async function getService(init: RequestInit = {}): Promise<Service> {
  return (await ask('/page/service', init)).json() as Promise<Service>;
}

/** @throws {GatewayError} @throws {DOMException} likewise. */
export async function getModels(init: RequestInit = {}): Promise<readonly Model[]> {
  const { data } = (await (await ask('/v1/models', init)).json()) as { data?: unknown };
  return Array.isArray(data) ? data.filter((one) => typeof one?.id === 'string') : [];
}

/** The exact text that goes out: it is what the GPU's signature must be about. */
export function chatRequest(model: string, messages: readonly Message[]): string {
  return JSON.stringify({ model, messages, stream: true, tee: { compact: true } });
}

/** `body`: from `chatRequest`. The answer is a stream. @throws {GatewayError} @throws {DOMException} when `signal` was aborted. */
export function chat(body: string, signal: AbortSignal): Promise<Response> {
  return ask('/v1/chat/completions', { method: 'POST', headers: { 'content-type': 'application/json' }, body, signal });
}
