// GET /page/collateral/v1/rim/:id and POST /page/collateral/ocsp: reference values (RIMs) and revocation responses (OCSP) for verifiers in
// browsers, which can reach no other origin. They are signed, and the page checks each signature, so the gateway need not be trusted for
// them.
import { createCollateral, NVIDIA_OCSP_URL } from '../../verify/index.ts';
import { readLimited } from '../../verify/service.ts';
import type { GatewayConfig } from '../base/config.ts';
import { Problem } from '../base/problem.ts';
import type { Context } from '../http/context.ts';
import { readBody } from '../http/messages.ts';

/** NVIDIA's names for its RIMs: `NV_GPU_DRIVER_GH100_550.90.07`. */
const RIM_ID = /^NV_[A-Za-z0-9_.]{1,120}$/;
/** A request about one certificate takes about 120 bytes. */
const MAX_OCSP_REQUEST_BYTES = 1024;
const MAX_OCSP_RESPONSE_BYTES = 64 * 1024;
const MAX_RUNNING = 16;
const TIMEOUT_MS = 10_000;

export function createCollateralRoutes({ config }: { readonly config: GatewayConfig }) {
  // RIMs are cached, so that repeated visits to the page cause one request to NVIDIA.
  const collateral = createCollateral({
    fetch: globalThis.fetch,
    rim_url: config.rim_url ?? undefined,
    timeout_ms: TIMEOUT_MS,
  });
  let running = 0;

  async function bounded<T>(what: string, get: () => Promise<T>): Promise<T> {
    if (running >= MAX_RUNNING)
      throw new Problem('overloaded', 'Too much collateral is being fetched.', { retryAfterSeconds: 1 });
    running++;
    try {
      return await get();
    } catch (cause) {
      throw new Problem('collateral_unavailable', `${what} could not be had from its service.`, { cause });
    } finally {
      running--;
    }
  }

  return {
    /** The response of NVIDIA's `GET /v1/rim/{id}`: `{id, rim}`, the document in base64. */
    async rim(c: Context): Promise<Response> {
      const id = c.req.param('id') ?? '';
      if (!RIM_ID.test(id)) throw new Problem('invalid_request', 'This is no name of a RIM.', { param: 'id' });
      const document = await bounded('The RIM', () => collateral.rim({ id, version: '', chip: '' }));
      if (document === null) throw new Problem('not_found', 'The RIM service knows no such RIM.', { param: 'id' });
      return c.json({ id, rim: Buffer.from(document as Uint8Array).toString('base64') });
    },

    /** Takes a DER OCSP request and returns the responder's response. */
    async ocsp(c: Context): Promise<Response> {
      const body = new Uint8Array(await readBody(c.env.incoming, MAX_OCSP_REQUEST_BYTES, c.env.permit));
      if (body[0] !== 0x30) throw new Problem('invalid_request', 'The body is not an OCSP request in DER.');
      const response = await bounded('The revocation answer', () =>
        fetchOcsp(config.ocsp_url ?? NVIDIA_OCSP_URL, body),
      );
      return c.body(response, 200, { 'content-type': 'application/ocsp-response' });
    },
  };
}

async function fetchOcsp(url: string, body: Uint8Array<ArrayBuffer>) {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/ocsp-request', accept: 'application/ocsp-response' },
    body,
    redirect: 'error',
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  if (!response.ok || response.body === null) throw new Error(`answered ${response.status}`);
  return new Uint8Array(await readLimited(response, MAX_OCSP_RESPONSE_BYTES));
}
