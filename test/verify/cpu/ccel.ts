// Makes the log of a measured boot as firmware and kernel write it (TCG "PC Client Platform Firmware Profile", §10).

/** A crypto-agile log of these events: register (1 to 4), type, digest. */
export function makeCcel(events: readonly (readonly [register: number, type: number, digest: Buffer])[]): Buffer {
  const u32 = (value: number) => {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(value);
    return bytes;
  };
  const u16 = (value: number) => Buffer.of(value & 0xff, value >> 8);
  const sized = (bytes: Buffer) => Buffer.concat([u32(bytes.length), bytes]);
  const algorithms = Buffer.concat([u32(1), u16(0x0c), u16(48), Buffer.of(0)]);
  const spec = Buffer.concat([Buffer.from('Spec ID Event03\0'), u32(0), Buffer.of(0, 2, 0, 2), algorithms]);
  const head = Buffer.concat([u32(1), u32(3), Buffer.alloc(20), sized(spec)]);
  const rest = events.map(([register, type, digest]) =>
    Buffer.concat([u32(register), u32(type), u32(1), u16(0x0c), digest, sized(Buffer.from('data'))]),
  );
  return Buffer.concat([head, ...rest]);
}
