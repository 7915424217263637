// GGUF version 3, the file that llama.cpp loads: metadata, then the list of tensors, then their numbers, each part little-endian.

/** Value types of GGUF's metadata that a llama needs. */
export type Meta =
  | { readonly u32: number }
  | { readonly f32: number }
  | { readonly flag: boolean }
  | { readonly text: string }
  | { readonly texts: readonly string[] }
  | { readonly f32s: readonly number[] }
  | { readonly i32s: readonly number[] };

export interface Tensor {
  readonly name: string;
  /** The fastest-running dimension first: a matrix is [columns, rows]. */
  readonly dims: readonly number[];
  readonly data: Float32Array;
}

const VERSION = 3;
const ALIGNMENT = 32;
const TYPE = { u32: 4, i32: 5, f32: 6, bool: 7, text: 8, array: 9 } as const;
const TENSOR_F32 = 0;

export function writeGguf(meta: Readonly<Record<string, Meta>>, tensors: readonly Tensor[]): Buffer {
  const entries = Object.entries(meta);
  const head = [Buffer.from('GGUF'), u32(VERSION), u64(tensors.length), u64(entries.length)];
  for (const [key, value] of entries) head.push(text(key), ...encoded(value));
  let offset = 0;
  const data: Buffer[] = [];
  for (const tensor of tensors) {
    head.push(text(tensor.name), u32(tensor.dims.length), ...tensor.dims.map(u64), u32(TENSOR_F32), u64(offset));
    const bytes = padded(floats(tensor.data));
    data.push(bytes);
    offset += bytes.length;
  }
  return Buffer.concat([padded(Buffer.concat(head)), ...data]);
}

function encoded(value: Meta): Buffer[] {
  if ('u32' in value) return [u32(TYPE.u32), u32(value.u32)];
  if ('f32' in value) return [u32(TYPE.f32), floats([value.f32])];
  if ('flag' in value) return [u32(TYPE.bool), Buffer.from([value.flag ? 1 : 0])];
  if ('text' in value) return [u32(TYPE.text), text(value.text)];
  if ('texts' in value) return [...array(TYPE.text, value.texts.length), ...value.texts.map(text)];
  if ('f32s' in value) return [...array(TYPE.f32, value.f32s.length), floats(value.f32s)];
  return [...array(TYPE.i32, value.i32s.length), ...value.i32s.map(i32)];
}

function array(type: number, length: number): Buffer[] {
  return [u32(TYPE.array), u32(type), u64(length)];
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function i32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32LE(value);
  return bytes;
}

function u64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

function floats(values: Iterable<number> & { readonly length: number }): Buffer {
  const bytes = Buffer.alloc(values.length * 4);
  let at = 0;
  for (const value of values) at = bytes.writeFloatLE(value, at);
  return bytes;
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value, 'utf8');
  return Buffer.concat([u64(bytes.length), bytes]);
}

function padded(bytes: Buffer): Buffer {
  return Buffer.concat([bytes, Buffer.alloc((ALIGNMENT - (bytes.length % ALIGNMENT)) % ALIGNMENT)]);
}
