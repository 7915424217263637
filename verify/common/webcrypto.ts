// Checks once that the system's WebCrypto has what a verification needs, with a clear error where it does not.

import { deviceRoots } from '../gpu/nvidia.ts';
import { buffered } from './bytes.ts';

/** The system's WebCrypto lacks what every verification needs. No check was made, so this says nothing about the input. */
export class UnsupportedSystemError extends Error {
  override readonly name = 'UnsupportedSystemError';
  readonly code = 'webcrypto_unsupported';
}

let supported: Promise<void> | null = null;

/** @throws {UnsupportedSystemError} */
export function requireWebCrypto(): Promise<void> {
  supported ??= tryCurve().catch((error) => {
    supported = null;
    throw error;
  });
  return supported;
}

/** Imports the key of NVIDIA's root, as verifying any device's certificates does. */
async function tryCurve(): Promise<void> {
  const subtle = globalThis.crypto?.subtle;
  if (subtle === undefined)
    throw new UnsupportedSystemError(
      'this system has no WebCrypto (crypto.subtle): browsers have it on https and localhost alone, Node from 20 on',
    );
  const algorithm = { name: 'ECDSA', namedCurve: 'P-384' };
  try {
    for (const { spki } of deviceRoots()) await subtle.importKey('spki', buffered(spki), algorithm, false, ['verify']);
  } catch (cause) {
    throw new UnsupportedSystemError(
      "this system's WebCrypto has no ECDSA over the curve P-384, with which GPUs sign",
      { cause },
    );
  }
}
