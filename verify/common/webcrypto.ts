// Checks once that the system's WebCrypto has what a verification needs, with a clear error where it does not.
import { fromHex } from './bytes.ts';

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

/** The curve's base point as SubjectPublicKeyInfo, which is a key as good as any. */
const P384_KEY =
  '3076301006072a8648ce3d020106052b81040022036200' +
  '04aa87ca22be8b05378eb1c71ef320ad746e1d3b628ba79b9859f741e082542a385502f25dbf55296c3a545e3872760ab7' +
  '3617de4a96262c6f5d9e98bf9292dc29f8f41dbd289a147ce9da3113b5f0b8c00a60b1ce1d7e819d7a431d7c90ea0e5f';

/** Imports a key as verifying any device's certificates does. */
async function tryCurve(): Promise<void> {
  const subtle = globalThis.crypto?.subtle;
  if (subtle === undefined)
    throw new UnsupportedSystemError(
      'this system has no WebCrypto (crypto.subtle): browsers have it on https and localhost alone, Node from 20 on',
    );
  const algorithm = { name: 'ECDSA', namedCurve: 'P-384' };
  try {
    await subtle.importKey('spki', fromHex(P384_KEY), algorithm, false, ['verify']);
  } catch (cause) {
    throw new UnsupportedSystemError(
      "this system's WebCrypto has no ECDSA over the curve P-384, with which GPUs sign",
      { cause },
    );
  }
}
