// A client of an origin that seals, with whatever a test puts in between.
import { pem } from '../../../demo/twin/authority.ts';
import {
  type SealedFetchError,
  type SealedFetchOptions,
  type SealedSession,
  sealedFetch,
} from '../../../verify/clients/sealed.ts';
import { now_ms, type Origin } from '../../support/sealed-origin.ts';
import { simulatedRoot } from '../maker.ts';
import { amd, processorRoots } from '../session-maker.ts';

type Fetch = typeof globalThis.fetch;
export type Between = (
  response: Response,
  request: { readonly url: string; readonly body: Uint8Array },
) => Promise<Response>;

export const SIMULATED: Partial<SealedFetchOptions> = {
  simulatedRoot: simulatedRoot + processorRoots,
  policy: { minLevel: 'none' },
  now_ms,
};
/** The same roots as the caller's own, so that the level is the one of hardware. */
export const OWN_ROOTS: Partial<SealedFetchOptions> = {
  roots: { device: simulatedRoot },
  cpu: { roots: { amd: pem(amd.ark) } },
  without: { referenceValues: true, revocation: true },
  now_ms,
};
export const CHAT = {
  method: 'POST',
  headers: { authorization: 'Bearer inner-key' },
  body: '{"secret":"canary-prompt"}',
};

/** A client of the origin, with something in between. */
export function client(
  origin: Origin,
  options: Partial<SealedFetchOptions> = SIMULATED,
  between: Between = async (one) => one,
) {
  const refused: SealedFetchError[] = [];
  const sessions: SealedSession[] = [];
  const send: Fetch = async (input, init) => {
    const request = new Request(input, init);
    const body = new Uint8Array(await request.clone().arrayBuffer());
    return between(await origin.fetch(request), { url: request.url, body });
  };
  const fetch = sealedFetch({
    url: origin.url,
    fetch: send,
    onRefused: (error) => void refused.push(error),
    onSession: (session) => void sessions.push(session),
    ...options,
  });
  const chat = (init: RequestInit = CHAT) => fetch(`${origin.url}/v1/chat/completions`, init);
  return { fetch, chat, refused, sessions };
}

/** Changes what is not a session. */
export const answering =
  (change: (response: Response, body: Uint8Array) => Promise<Response>): Between =>
  async (response, { url, body }) =>
    url.endsWith('/ohttp') ? change(response, body) : response;

export async function refusal(response: Response) {
  const { error } = (await response.json()) as { error: { type: string; code: string; message: string } };
  return { status: response.status, retry: response.headers.get('x-should-retry'), type: error.type, code: error.code };
}
export const own = (code: string) => ({ status: 400, retry: 'false', type: 'sealing_refused', code });
export const ohttp = (origin: Origin) => origin.sent.filter(({ url }) => url.endsWith('/ohttp'));
export const asked = (origin: Origin) => origin.sent.filter(({ url }) => url.includes('/v1/attestation/session'));
