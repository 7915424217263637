// Changes one byte of an attestation, so that people can watch which check sees it.
import { fromBase64, toBase64, toHex, utf8 } from '../../verify/common/bytes.ts';
import type { Attestation } from '../../verify/index.ts';

type PartName = 'raw' | 'nonce' | 'token' | 'report' | 'certificate';

export interface Part {
  readonly name: PartName;
  readonly label: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Where a change is telling. */
  readonly suggested: number;
  /** The report is shown in hex, the others are text. */
  readonly binary: boolean;
}

/** SPDM 1.1: a request of 37 bytes comes first, its nonce at 4; the signature is the last 96 bytes. */
const REPORT_NONCE = 4;

/** What of it can be changed. */
export function partsToDamage({ raw, nonce, token, evidence }: Attestation): Part[] {
  const text = (name: PartName, label: string, value: string, at: number): Part => {
    const bytes = utf8(value);
    return { name, label, bytes, suggested: Math.min(Math.max(at, 0), bytes.length - 1), binary: false };
  };
  const parts = [
    text('raw', 'the signed text', raw, letterOfAnswer(raw)),
    text('nonce', 'the nonce', nonce, 0),
    // In a signature: elsewhere a JWT may not even be read any more.
    text('token', 'the token', token, letterFrom(token, token.lastIndexOf('.') + 5)),
  ];
  const device = evidence?.[0];
  const report = decoded(device?.report);
  const chain = decoded(device?.certificate_chain);
  if (report !== null)
    parts.push({ name: 'report', label: "the GPU's report", bytes: report, suggested: REPORT_NONCE, binary: true });
  if (chain !== null)
    parts.push({ name: 'certificate', label: 'its certificate', bytes: chain, suggested: 200, binary: false });
  return parts;
}

/** The first letter or digit from there on: in place of `-` or `_` no other character is of base64url. */
function letterFrom(token: string, from: number): number {
  const found = token.slice(from).search(/[A-Za-z0-9]/);
  return found < 0 ? from : from + found;
}

/** In bytes: the first letter of what was answered. */
function letterOfAnswer(raw: string): number {
  const start = raw.indexOf('"response":');
  const content = /"content":"\W*/g;
  content.lastIndex = Math.max(start, 0);
  const found = content.exec(raw);
  const at = found === null ? Math.floor(raw.length / 2) : found.index + found[0].length;
  return utf8(raw.slice(0, at)).length;
}

function decoded(base64: string | undefined): Uint8Array<ArrayBuffer> | null {
  try {
    return base64 === undefined ? null : fromBase64(base64);
  } catch {
    return null;
  }
}

/** The byte that takes this one's place: another letter for a letter, another digit for a digit, one bit otherwise. */
export function otherByte(byte: number, { name, binary }: Pick<Part, 'name' | 'binary'>): number {
  if (binary) return byte ^ 1;
  const character = String.fromCharCode(byte);
  if (name === 'nonce') return character === '0' ? 0x31 : 0x30;
  if (/[a-zA-Z]/.test(character)) return /[zZ]/.test(character) ? byte - 1 : byte + 1;
  if (/[0-9]/.test(character)) return character === '9' ? 0x30 : byte + 1;
  return byte ^ 1;
}

/** The attestation with `bytes` in the place of `part`. Bytes that are no UTF-8 stand as U+FFFD. */
export function withPart(attestation: Attestation, part: Part, bytes: Uint8Array): Attestation {
  const { name } = part;
  if (name === 'raw' || name === 'nonce' || name === 'token')
    return { ...attestation, [name]: new TextDecoder().decode(bytes) };
  const member = name === 'report' ? 'report' : 'certificate_chain';
  const evidence = attestation.evidence?.map((one, i) => (i === 0 ? { ...one, [member]: toBase64(bytes) } : one));
  return evidence === undefined ? attestation : { ...attestation, evidence };
}

/** One byte as people read it: hex, or the character. */
export function shown(bytes: Uint8Array, { binary }: Pick<Part, 'binary'>): string {
  if (binary) return toHex(bytes).replace(/(..)(?=.)/g, '$1 ');
  return new TextDecoder().decode(bytes).replace(/[\n\r]/g, '⏎');
}
