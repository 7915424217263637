// Whom a device's certificates lead up to: NVIDIA's root, a simulated one that the caller named, or nobody who counts.

import { CheckFailure } from './checks.ts';
import { type DeviceIdentity, identify } from './nvidia.ts';
import type { Context } from './run-checks.ts';
import { type Passed, passed } from './run-checks.ts';
import type { Certificate } from './x509/certificate.ts';
import { trustedPath } from './x509/trusted-path.ts';

export interface TrustedChain {
  readonly path: readonly Certificate[];
  readonly identity: DeviceIdentity;
  readonly simulated: boolean;
}

/**
 * @param arch as the evidence states it, unsigned.
 * @throws {CheckFailure} untrusted_root, simulated_root_refused, certificate_expired, chain_invalid
 */
export async function checkChain(
  chain: readonly Certificate[],
  arch: string,
  context: Context,
): Promise<Passed<TrustedChain>> {
  const { deviceRoots, simulatedRoots, clocks } = context;
  const anchors = { roots: deviceRoots, simulatedRoots, at: clocks.report };
  const { path, simulated } = await trustedPath(chain, anchors, 'a simulated device');
  const identity = deviceOf(path, arch);
  const root = path.at(-1)?.subjectCommonName ?? '';
  const detail = `${path.length} certificates up to ${simulated ? 'the simulated' : 'the pinned'} root '${root}'`;
  return passed(detail, { path, identity, simulated });
}

/**
 * @param path verified, leaf first. @param arch as the evidence states it.
 * @throws {CheckFailure} chain_invalid where the leaf's key is not that of such a device.
 */
export function deviceOf(path: readonly Certificate[], arch: string): DeviceIdentity {
  if (!isDeviceKey(path[0])) throw new CheckFailure('chain_invalid', 'the leaf certificate is not one of a device');
  const identity = identify(path);
  if (identity === null)
    throw new CheckFailure('chain_invalid', 'the certificates are of no GPU or switch that is known');
  if (identity.arch !== arch.toUpperCase())
    throw new CheckFailure('chain_invalid', `the evidence says ${arch}, the certificates are of a ${identity.chip}`);
  return identity;
}

/** id-DMTF-eku-responder-auth (DSP0274): the one purpose that a device's key may be limited to. */
const RESPONDER_AUTH = '1.3.6.1.4.1.412.274.3';

/** NVIDIA's authorities certify their own OCSP responders too: a name and a signature right up to the root make no device. */
function isDeviceKey(leaf: Certificate | undefined): boolean {
  return leaf !== undefined && !leaf.isCa && (leaf.extendedKeyUsage?.includes(RESPONDER_AUTH) ?? true);
}
