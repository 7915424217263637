import { describe, expect, it } from 'vitest';
import { ChunkBuffer } from '../../../gateway/base/bytes.ts';

const MiB = 1024 * 1024;

describe('bytes that come in pieces', () => {
  it.each([0, MiB, 5 * MiB])('are whole at the end, whatever was announced: %i bytes of 1 MiB', (announced) => {
    const bytes = Buffer.from(Array.from({ length: MiB }, (_, i) => (i * 7) % 251));
    const buffer = new ChunkBuffer(announced);
    for (let at = 0; at < bytes.length; at += 10_007) buffer.add(bytes.subarray(at, at + 10_007));
    expect(buffer.bytes).toBe(MiB);
    expect(buffer.whole().equals(bytes)).toBe(true);
  });

  it('take no memory, not even addresses, for what is announced alone', () => {
    const before = process.memoryUsage().arrayBuffers;
    const many = Array.from({ length: 1_000 }, () => {
      const buffer = new ChunkBuffer(16 * MiB);
      buffer.add(Buffer.alloc(16));
      return buffer;
    });
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(64 * MiB);
    expect(many).toHaveLength(1_000);
  });
});
