// Whom certificates lead up to: a pinned root, a simulated one that the caller named, or nobody who counts.
import { CheckFailure } from '../checks.ts';
import type { Certificate } from './certificate.ts';
import { ChainError, verifyChain } from './chain.ts';

export interface Anchors {
  readonly roots: readonly Certificate[];
  /** Roots of test keys, which prove nothing about hardware; empty unless the caller named some. */
  readonly simulatedRoots: readonly Certificate[];
  readonly at: Date;
}

export interface TrustedPath {
  /** Leaf first, the root last. */
  readonly path: readonly Certificate[];
  readonly simulated: boolean;
}

/**
 * @param what a simulated one of these is refused: `a simulated device`.
 * @throws {CheckFailure} untrusted_root, simulated_root_refused, certificate_expired, chain_invalid
 */
export async function trustedPath(
  chain: readonly Certificate[],
  { roots, simulatedRoots, at }: Anchors,
  what: string,
): Promise<TrustedPath> {
  try {
    return { path: await verifyChain(chain, roots, at), simulated: false };
  } catch (error) {
    if (!(error instanceof ChainError)) throw error;
    if (error.reason !== 'untrusted_root') throw chainFailure(error);
    try {
      return { path: await verifyChain(chain, simulatedRoots, at), simulated: true };
    } catch (cause) {
      if (!(cause instanceof ChainError)) throw cause;
      if (cause.reason === 'untrusted_root' && simulatedRoots.length === 0 && chain.some(saysSimulated))
        throw new CheckFailure('simulated_root_refused', `${what}, and the caller named no simulated root`, { cause });
      throw chainFailure(cause);
    }
  }
}

/** By the verifier's own codes. */
export function chainFailure(cause: ChainError): CheckFailure {
  const codes = { untrusted_root: 'untrusted_root', expired: 'certificate_expired', invalid: 'chain_invalid' } as const;
  return new CheckFailure(codes[cause.reason], cause.message, { cause });
}

const saysSimulated = ({ subject }: Certificate) => new TextDecoder('latin1').decode(subject).includes('SIMULATED');
