// Bytes that are joined to a message, and digests as text: for every file that makes or reads what is hashed.

export type Bytes = Uint8Array<ArrayBuffer>;

export function concat(parts: readonly Uint8Array[]): Bytes {
  let length = 0;
  for (const part of parts) length += part.length;
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

/** Whether a value is a SHA-256 in hex: 64 lowercase digits. */
export const isDigest = (value: unknown): value is string => typeof value === 'string' && /^[0-9a-f]{64}$/.test(value);
