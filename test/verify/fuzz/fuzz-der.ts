// Mutations that know DER: a value changed inside, taken out, doubled or moved, every length above it made right again.
import { type DerValue, readAt } from '../../../verify/x509/der.ts';
import { type Bytes, mutateBytes } from './fuzz-bytes.ts';
import type { Random } from './fuzz-random.ts';

interface Node {
  tag: number;
  content: Uint8Array;
  /** For constructed values whose content is DER throughout. */
  children: Node[] | null;
}

function read(value: DerValue): Node {
  const node: Node = { tag: value.tag, content: value.content, children: null };
  if ((value.tag & 0x20) === 0) return node;
  const children: Node[] = [];
  try {
    for (let at = 0; at < value.content.length; ) {
      const child = readAt(value.content, at);
      children.push(read(child));
      at += child.whole.length;
    }
    node.children = children;
  } catch {
    // Not DER inside: kept as bytes.
  }
  return node;
}

function lengthOctets(length: number): number[] {
  if (length < 0x80) return [length];
  const octets: number[] = [];
  for (let left = length; left > 0; left = Math.floor(left / 256)) octets.unshift(left & 0xff);
  return [0x80 | octets.length, ...octets];
}

function write(node: Node): Bytes {
  const content = node.children === null ? [node.content] : node.children.map(write);
  const length = content.reduce((sum, part) => sum + part.length, 0);
  const head = [node.tag, ...lengthOctets(length)];
  const out = new Uint8Array(head.length + length);
  out.set(head);
  let at = head.length;
  for (const part of content) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

function parents(node: Node, found: Node[] = []): Node[] {
  if (node.children !== null && node.children.length > 0) {
    found.push(node);
    for (const child of node.children) parents(child, found);
  }
  return found;
}

const TAGS = [0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x0a, 0x0c, 0x17, 0x18, 0x30, 0x31, 0x80, 0xa0, 0xa1, 0xa2, 0xa3];

/** What the bytes become when one value of them is changed. Bytes that are no DER come back mutated as bytes. */
export function mutateDer(bytes: Uint8Array, random: Random): Bytes {
  let root: Node;
  try {
    root = read(readAt(bytes, 0));
  } catch {
    return mutateBytes(bytes, random);
  }
  const parent = random.pick([...parents(root), root]);
  const children = parent.children ?? [];
  if (children.length === 0) return mutateBytes(bytes, random);
  const at = random.below(children.length);
  const child = children[at] as Node;
  const ways = [
    () => children.splice(at, 1),
    () => children.splice(at, 0, child),
    () => children.splice(random.below(children.length), 0, ...children.splice(at, 1)),
    () => children.splice(at, 1, { ...child, tag: random.pick(TAGS) }),
    () => children.splice(at, 1, { tag: child.tag, content: mutateBytes(write(child), random), children: null }),
    () => children.splice(at, 1, { tag: child.tag, content: new Uint8Array(0), children: null }),
    () => children.splice(at, 1, structuredClone(random.pick(random.pick(parents(root)).children as Node[]))),
    () => children.push({ tag: random.pick(TAGS), content: random.bytes(random.below(16)), children: null }),
    () => children.splice(at, 1, nested(1 + random.below(200))),
  ];
  random.pick(ways)();
  return write(root);
}

/** SEQUENCEs within SEQUENCEs. */
function nested(depth: number): Node {
  let node: Node = { tag: 0x05, content: new Uint8Array(0), children: null };
  for (let i = 0; i < depth; i++) node = { tag: 0x30, content: new Uint8Array(0), children: [node] };
  return node;
}
