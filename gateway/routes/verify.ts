// GET or POST /~sev_gpu@1.0/verify: verifies an attestation. Returns `true`, or an error that names the check that failed; or a report.
import { isUtf8 } from 'node:buffer';
import { zValidator } from '@hono/zod-validator';
import type { MiddlewareHandler } from 'hono';
import * as z from 'zod';
import { MAX_LEAVES } from '../../proto/attestation/batch.ts';
import { isEndpoint } from '../../proto/attestation/raw.ts';
import { type FailureCode, type Jwks, LEVELS } from '../../verify/index.ts';
import type { Sidecar } from '../attestation/interfaces.ts';
import type { GatewayConfig } from '../base/config.ts';
import { errorBody, Problem } from '../base/problem.ts';
import type { Context, Middleware } from '../http/context.ts';
import { readBody } from '../http/messages.ts';
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
