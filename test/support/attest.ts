// What a test asks an attester with, and the error of one that fails.
import { randomBytes } from 'node:crypto';
import { expect } from 'vitest';
import type { Nonce } from '../../proto/attestation/raw.ts';
import { AttesterError } from '../../sidecar/common/attester.ts';

export const freshNonce = () => randomBytes(32).toString('hex') as Nonce;

/** Of a request that nobody abandons. */
export const never: AbortSignal = new AbortController().signal;

export async function failureOf(work: Promise<unknown>): Promise<AttesterError> {
  const error = await work.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(AttesterError);
  return error as AttesterError;
}
