// Opaque data as drivers of the 620 branch write it: a header, and fields that name the type of their value.

const HEADER = Buffer.concat([Buffer.from('NVDAOD'), Buffer.of(0, 0, 2, 0, 0, 0)]);
/** Types of values, as genuine data has them: 0x84 a list of numbers, 0x86 a version, 0x82 bytes. */
const VALUE_TYPES: Readonly<Record<number, number>> = { 3: 0x86, 6: 0x86, 12: 0x84 };
const BYTES = 0x82;

/** @param legacy type (2 bytes, little-endian), length (2), value; again and again. */
export function inNewFormat(legacy: Uint8Array): Buffer {
  const from = Buffer.from(legacy);
  const parts: Buffer[] = [HEADER];
  for (let at = 0; at < from.length; ) {
    const [type, length] = [from.readUInt16LE(at), from.readUInt16LE(at + 2)];
    const head = Buffer.alloc(6);
    head.writeUInt16LE(type, 0);
    head.writeUInt16LE(VALUE_TYPES[type] ?? BYTES, 2);
    head.writeUInt16LE(length, 4);
    parts.push(head, from.subarray(at + 4, at + 4 + length));
    at += 4 + length;
  }
  return Buffer.concat(parts);
}
