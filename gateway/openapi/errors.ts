// The error answers of a route, by status, each with the codes that come under it.
import { type ProblemCode, STATUS } from '../problem.ts';
import { schemaRef } from './schemas.ts';

/** Codes that only some routes have; every other one may come from any route under /v1. */
const PARTICULAR: ReadonlySet<ProblemCode> = new Set(['attestation_pending']);

export const EVERY_V1_CODE = (Object.keys(STATUS) as ProblemCode[]).filter((code) => !PARTICULAR.has(code));

/** For `responses`: one entry a status. */
export function errorResponses(codes: readonly ProblemCode[]): Record<string, object> {
  const byStatus = Map.groupBy(codes, (code) => STATUS[code]);
  return Object.fromEntries(
    [...byStatus].map(([status, codes]) => [
      String(status),
      {
        description: codes.map((code) => `\`${code}\``).join(', '),
        ...(status === 429 || status === 425 || status === 503 ? { headers: { 'retry-after': RETRY_AFTER } } : {}),
        content: { 'application/json': { schema: schemaRef('Error') } },
      },
    ]),
  );
}

const RETRY_AFTER = { description: 'Whole seconds', schema: { type: 'integer', minimum: 1 } };
