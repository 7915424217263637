// What an attestation has beside raw and nonce, as the sidecar sends it: in its own form looked at without being taken apart. Of each
// attestation it is the largest part, and the texts and objects of a parse would be half of what the gateway's memory is cleaned of.
import { isUtf8 } from 'node:buffer';
import { attestedMembersSchema } from '../../proto/frames.ts';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const BRACE = 0x7b;
const ESCAPED = new Set(Buffer.from('"\\/bfnrt'));

const TOKEN = Buffer.from('{"token":');
const EVIDENCE = Buffer.from(',"evidence":[');
const ARCH = Buffer.from('{"arch":');
const REPORT = Buffer.from(',"report":');
const CHAIN = Buffer.from(',"certificate_chain":');
const NEXT = Buffer.from('},');
const END = Buffer.from('}]}');
/** As many devices as the schema allows; more are for it to refuse. */
const MAX_DEVICES = 64;

/**
 * The bytes, if they are JSON of {@link attestedMembersSchema}; null otherwise. The form that a sidecar writes is seen at a glance.
 * Any other is parsed and written anew: it goes into an answer, and into the one line of an event.
 */
export function membersIn(bytes: Buffer): Buffer | null {
  if (isPlain(bytes)) return bytes;
  if (bytes[0] !== BRACE || !isUtf8(bytes)) return null;
  try {
    const value: unknown = JSON.parse(bytes.toString('utf8'));
    return attestedMembersSchema.safeParse(value).success ? Buffer.from(JSON.stringify(value)) : null;
  } catch {
    return null;
  }
}

/** Exactly the members of the schema in their order, without spaces, in ASCII. */
function isPlain(bytes: Buffer): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const text = (expected: Buffer): boolean => {
    for (let i = 0; i < expected.length; i++) if (bytes[at + i] !== expected[i]) return false;
    at += expected.length;
    return true;
  };
  const string = (min: number): boolean => {
    const end = endOfString(view, at, min);
    at = end;
    return end > 0;
  };
  if (!text(TOKEN) || !string(2) || !text(EVIDENCE)) return false;
  for (let devices = 1; devices <= MAX_DEVICES; devices++) {
    if (!text(ARCH) || !string(1) || !text(REPORT) || !string(4) || !text(CHAIN) || !string(4)) return false;
    if (text(END)) return at === bytes.length;
    if (!text(NEXT)) return false;
  }
  return false;
}

/** After the closing quote of the string at `at`, of at least `min` characters; 0 when there is none that is surely right. */
function endOfString(view: DataView, at: number, min: number): number {
  const { byteLength } = view;
  if (at >= byteLength || view.getUint8(at) !== QUOTE) return 0;
  let escapes = 0;
  for (let i = at + 1; i < byteLength; ) {
    if (i + 4 <= byteLength && isOrdinary(view.getInt32(i))) {
      i += 4;
      continue;
    }
    const byte = view.getUint8(i);
    if (byte === QUOTE) return i - at - 1 - escapes >= min ? i + 1 : 0;
    if (byte === BACKSLASH) {
      if (i + 1 >= byteLength || !ESCAPED.has(view.getUint8(i + 1))) return 0;
      escapes++;
      i += 2;
    } else if (byte < 0x20 || byte >= 0x80) return 0;
    else i++;
  }
  return 0;
}

/** Four bytes at once: none is a quote, a backslash, a control character or outside of ASCII. Each term sets a byte's high bit for one of them. */
function isOrdinary(four: number): boolean {
  const control = four - 0x20202020;
  const quote = (four ^ 0x22222222) - 0x01010101;
  const backslash = (four ^ 0x5c5c5c5c) - 0x01010101;
  return ((four | control | quote | backslash) & 0x80808080) === 0;
}
