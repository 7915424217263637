// GET or POST /~sev_gpu@1.0/verify: verifies an attestation. Returns `true`, or an error that names the check that failed; or a report.
import { isUtf8 } from 'node:buffer';
import { zValidator } from '@hono/zod-validator';
import type { MiddlewareHandler } from 'hono';
import * as z from 'zod';
import { MAX_LEAVES } from '../../proto/attestation/batch.ts';
import { isEndpoint } from '../../proto/attestation/raw.ts';
import { createCollateral, type FailureCode, type Jwks, LEVELS, NVIDIA_OCSP_URL } from '../../verify/index.ts';
import { readLimited } from '../../verify/service.ts';
import type { Sidecar } from '../attestation/interfaces.ts';
import type { GatewayConfig } from '../base/config.ts';
import { errorBody, Problem } from '../base/problem.ts';
import { readBody } from '../http/body.ts';
import type { Context, Middleware } from '../http/context.ts';
import type { Telemetry } from '../telemetry/telemetry.ts';
import type { Verdict, Verifier } from '../verifier/verifier.ts';

const REPORTS = ['0', '1'] as const;

const query = z.object({
  report: z.enum(REPORTS).optional(),
  min_level: z.enum(LEVELS).optional(),
  max_batch: z.coerce.number().int().min(1).max(MAX_LEAVES).optional(),
  endpoint: z.string().refine(isEndpoint).optional(),
  event: z.literal('1').optional(),
});
const ALLOWED = {
  report: `one of ${REPORTS.join(', ')}`,
  min_level: `one of ${LEVELS.join(', ')}`,
  max_batch: `a whole number from 1 to ${MAX_LEAVES}`,
  endpoint: 'a path that begins with /v1/',
  event: '1, or left out',
};

/** A longer blank body is rejected on the verifier's thread. */
const BLANK_BYTES = 1024;

const NOT_AN_ATTESTATION: ReadonlySet<FailureCode> = new Set(['not_json', 'not_an_attestation']);

/** Validates the query before the body is read. */
export const verifyQuery: Middleware = async (c) => void (await validQuery(c, async () => {}));

const validQuery: MiddlewareHandler = zValidator('query', query, (result) => {
  if (result.success) return;
  const param = result.error.issues[0]?.path[0] as keyof typeof ALLOWED;
  throw new Problem('invalid_request', `${param}: must be ${ALLOWED[param]}.`, { param });
}) as MiddlewareHandler;

interface VerifyDeps {
  readonly config: GatewayConfig;
  readonly sidecar: Sidecar;
  readonly verifier: Verifier;
  readonly telemetry: Telemetry;
}

export function verify({ sidecar, config, verifier, telemetry }: VerifyDeps) {
  return async (c: Context): Promise<Response> => {
    const {
      report: form,
      min_level: minLevel = 'none',
      max_batch: maxBatch,
      endpoint,
      event,
    } = query.parse(c.req.query());
    const { incoming, outgoing, address } = c.env;
    const caller = verifier.admit(address, outgoing);
    let verdict: Verdict;
    try {
      verdict = await caller.appraise({
        body: checkedBody(await readBody(incoming, config.max_verify_bytes, caller)),
        countersignKeys: sidecar.hello?.token_keys as Jwks | undefined,
        policy: { minLevel, maxBatch },
        endpoint,
        event: event === '1',
        simulatedRoot: config.allow_simulated ? (sidecar.hello?.simulated?.root ?? null) : null,
      });
    } finally {
      caller.release();
    }
    telemetry.verified(verdict.valid ? 'valid' : (verdict.failed.code ?? 'not_an_attestation'));
    if (form === '1') return c.body(verdict.json, 200, { 'content-type': 'application/json' });
    return verdict.valid ? c.json(true) : refusal(c, verdict);
  };
}

/** @throws {Problem} invalid_json, invalid_request */
function checkedBody(body: Buffer): Buffer {
  if (!isUtf8(body)) throw new Problem('invalid_json', 'The request body is not valid UTF-8.');
  if (body.length < BLANK_BYTES && body.toString('utf8').trim() === '')
    throw new Problem('invalid_request', 'Send an attestation, or a response that carries one, as the body.');
  return body;
}

function refusal(c: Context, { failed }: Verdict): Response {
  const code = failed.code ?? 'not_an_attestation';
  const message = `${failed.name}: ${failed.detail}`;
  if (code === 'not_json') throw new Problem('invalid_json', 'The body is not valid JSON.');
  if (code === 'too_large') throw new Problem('body_too_large', message);
  if (NOT_AN_ATTESTATION.has(code)) return c.json(errorBody(400, message, null, code), 400);
  return c.json(errorBody(422, message, null, code, 'attestation_invalid'), 422);
}

// GET /page/collateral/v1/rim/:id and POST /page/collateral/ocsp: reference values (RIMs) and revocation responses (OCSP) for verifiers in
// browsers, which can reach no other origin. They are signed, and the page checks each signature, so the gateway need not be trusted for
// them.

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
