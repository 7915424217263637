// GET or POST /~sev_gpu@1.0/verify: is this attestation right? `true`, or an error that names the check that failed.
import { zValidator } from '@hono/zod-validator';
import type { MiddlewareHandler } from 'hono';
import * as z from 'zod';
import {
  appraiseAttestation,
  createCollateral,
  type FailureCode,
  type Jwks,
  type VerificationReport,
} from '../../verify/index.ts';
import { bodyText, readBody } from '../body.ts';
import type { Context, Deps, Env } from '../context.ts';
import { errorBody, Problem } from '../problem.ts';

/** A limit of its own: verifying is open to everybody. */
export const MAX_VERIFY_BYTES = 16 * 1024 * 1024;

const query = z.object({ report: z.enum(['0', '1']).optional() });

const NOT_AN_ATTESTATION: ReadonlySet<FailureCode> = new Set(['not_json', 'not_an_attestation']);

/** The query is checked before the body is read. */
export const verifyQuery: MiddlewareHandler<Env> = zValidator('query', query, (result) => {
  if (!result.success) throw new Problem('invalid_request', 'report: must be 1 or 0.', { param: 'report' });
}) as MiddlewareHandler<Env>;

export function verify({ sidecar, config, telemetry }: Deps) {
  // One for all requests: it keeps what it fetched until that expires.
  const collateral = createCollateral({ fetch: globalThis.fetch, rim_url: config.rim_url, ocsp_url: config.ocsp_url });
  return async (c: Context): Promise<Response> => {
    const text = bodyText(await readBody(c.env.incoming, MAX_VERIFY_BYTES));
    if (text.trim() === '')
      throw new Problem('invalid_request', 'Send an attestation, or a response that carries one, as the body.');
    const simulatedRoot = config.allow_simulated ? (sidecar.hello?.simulated?.root ?? null) : null;
    const report = await appraiseAttestation(text, {
      collateral,
      countersignKeys: sidecar.hello?.token_keys as Jwks | undefined,
      ...(simulatedRoot === null ? {} : { simulatedRoot }),
    });
    telemetry.verified(report.valid ? 'valid' : (failedCheck(report)?.code ?? 'not_an_attestation'));
    if (c.req.query('report') === '1') return c.json(report);
    return report.valid ? c.json(true) : refusal(c, report);
  };
}

function failedCheck(report: VerificationReport) {
  return report.checks.find((check) => check.status === 'fail');
}

function refusal(c: Context, report: VerificationReport): Response {
  const failed = failedCheck(report);
  const code = failed?.code ?? 'not_an_attestation';
  const message = failed === undefined ? 'The attestation could not be checked.' : `${failed.name}: ${failed.detail}`;
  if (code === 'not_json') throw new Problem('invalid_json', 'The body is not valid JSON.');
  if (code === 'too_large') throw new Problem('body_too_large', message);
  if (NOT_AN_ATTESTATION.has(code)) return c.json(errorBody(400, message, null, code), 400);
  return c.json(errorBody(422, message, null, code, 'attestation_invalid'), 422);
}
