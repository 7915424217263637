// Where the attestation goes into a response: the one place that adds bytes to what the backend sent.

const ATTESTATION = '"attestation":';
const OPEN = 0x7b;
const CLOSE = 0x7d;
const WHITE_SPACE = new Set([0x20, 0x09, 0x0d, 0x0a]);

/**
 * Returns the parts of a JSON object's text with the attestation as the last member of the object that ends at `end`: the bytes of the text
 * without that member are the backend's.
 * @param json the attestation, in UTF-8. @param end the offset of a `}`; by default the last one.
 */
export function spliced(text: Uint8Array, json: Uint8Array, end = text.lastIndexOf(CLOSE)): Uint8Array[] {
  let last = end - 1;
  while (WHITE_SPACE.has(text[last] as number)) last--;
  const name = Buffer.from(text[last] === OPEN ? ATTESTATION : `,${ATTESTATION}`);
  return [text.subarray(0, end), name, json, text.subarray(end)];
}
