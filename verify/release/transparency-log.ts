// The transparency log: that the entry is about these bytes, that it is in the log's tree, and that the log signed the tree.
import { concat, digest, EncodingError, equal, fromBase64, fromUtf8, toBase64, toHex, utf8 } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';
import { type Certificate, parsePem } from '../x509/certificate.ts';
import { DerError } from '../x509/der.ts';
import { base64, list, members, parsed, text, withCode } from './form.ts';
import { DSSE_ENTRY, type LogEntry, type ReleaseBundle, type SignedMaterial } from './sigstore-bundle.ts';
import { keyOf, type LogKey, verifiesUnder, within } from './trusted-root.ts';

/** @returns the log's key. @throws {CheckFailure} release_untrusted */
export function logOf({ logId }: LogEntry, logs: readonly LogKey[]): LogKey {
  const log = keyOf(logs, logId);
  if (log === undefined) throw new CheckFailure('release_untrusted', 'the trusted root does not know this log');
  return log;
}

/** Nothing else ties a time authority's word to the log's period. @throws {CheckFailure} release_log_ended */
export function checkPeriod({ period }: LogKey, at: Date): void {
  if (!within(at, period))
    throw new CheckFailure('release_log_ended', `at ${at.toISOString()} the log had ended or had not begun`);
}

// The entry's body.

/** @param payload of a DSSE envelope. @throws {CheckFailure} release_malformed, release_entry_mismatch */
export async function checkBody(material: SignedMaterial & Partial<ReleaseBundle>, leaf: Certificate): Promise<void> {
  const { entry, signature, signed, payload } = material;
  const [kind, version] = entry.kind.split('/');
  const said = withCode('release_malformed', 'the log entry', () => {
    const body = members(parsed(utf8Text(entry.body)), 'it', ['apiVersion', 'kind', 'spec']);
    if (body.kind !== kind || body.apiVersion !== version) throw mismatch('of another kind than the bundle says');
    return entry.kind === DSSE_ENTRY ? readDsse(body.spec) : readHashed(body.spec);
  });
  const hashed = await digest('SHA-256', entry.kind === DSSE_ENTRY && payload !== undefined ? payload : signed);
  if (!equal(said.digest, hashed)) throw mismatch('about another statement');
  if (!equal(said.signature, signature)) throw mismatch('about another signature');
  if (!equal(said.certificate, leaf.der)) throw mismatch('about another certificate');
}

interface Said {
  readonly digest: Uint8Array;
  readonly signature: Uint8Array;
  readonly certificate: Uint8Array;
}

/** The envelope's own hash is over JSON as it was sent, which nobody has any more. */
function readDsse(value: unknown): Said {
  const spec = members(value, 'spec', ['envelopeHash', 'payloadHash', 'signatures']);
  const { algorithm, value: hash } = members(spec.payloadHash, 'payloadHash', ['algorithm', 'value']);
  text(algorithm, 'algorithm', /^sha256$/);
  const [first, ...more] = list(spec.signatures, 'signatures', 1);
  if (more.length > 0) throw mismatch('of several signatures');
  const { signature, verifier } = members(first, 'signatures[0]', ['signature', 'verifier']);
  return {
    digest: hexBytes(text(hash, 'payloadHash', /^[0-9a-f]{64}$/)),
    signature: base64(signature, 'signature'),
    certificate: ofPem(utf8Text(base64(verifier, 'verifier'))),
  };
}

function readHashed(value: unknown): Said {
  const { hashedRekordV002 } = members(value, 'spec', ['hashedRekordV002']);
  const { data, signature } = members(hashedRekordV002, 'hashedRekordV002', ['data', 'signature']);
  const { algorithm, digest: hash } = members(data, 'data', ['algorithm', 'digest']);
  text(algorithm, 'algorithm', /^SHA2_256$/);
  const { content, verifier } = members(signature, 'signature', ['content', 'verifier']);
  const { x509Certificate } = members(verifier, 'verifier', ['x509Certificate'], ['keyDetails']);
  const { rawBytes } = members(x509Certificate, 'x509Certificate', ['rawBytes']);
  return {
    digest: base64(hash, 'digest'),
    signature: base64(content, 'content'),
    certificate: base64(rawBytes, 'rawBytes'),
  };
}

const hexBytes = (hex: string): Uint8Array =>
  Uint8Array.from({ length: hex.length / 2 }, (_, i) => Number.parseInt(hex.slice(2 * i, 2 * i + 2), 16));

function utf8Text(bytes: Uint8Array): string {
  try {
    return fromUtf8(bytes);
  } catch (cause) {
    if (cause instanceof EncodingError) throw mismatch('not UTF-8');
    throw cause;
  }
}

function ofPem(pem: string): Uint8Array {
  try {
    const [certificate, ...more] = parsePem(pem);
    if (certificate !== undefined && more.length === 0) return certificate.der;
  } catch (cause) {
    if (!(cause instanceof DerError)) throw cause;
  }
  throw mismatch('about another certificate');
}

const mismatch = (what: string) => new CheckFailure('release_entry_mismatch', `the log entry is ${what}`);

// The tree (RFC 9162 §2.1.3.2) and the log's signed note about it.

const sha256 = (...parts: readonly Uint8Array[]) => digest('SHA-256', concat(parts));
const LEAF = Uint8Array.of(0);
const NODE = Uint8Array.of(1);

/** @throws {CheckFailure} release_proof_invalid, release_checkpoint_invalid */
export async function checkInclusion({ proof, body }: LogEntry, log: LogKey): Promise<void> {
  if (proof.index >= proof.treeSize) throw invalidProof('is about an entry outside of its tree');
  const hashes = [...proof.hashes];
  let hash = await sha256(LEAF, body);
  for (let [index, last] = [proof.index, proof.treeSize - 1n]; last > 0n; index >>= 1n, last >>= 1n) {
    const isRight = index % 2n === 1n;
    if (!isRight && index >= last) continue;
    const sibling = hashes.shift();
    if (sibling === undefined) throw invalidProof('breaks off');
    hash = await (isRight ? sha256(NODE, sibling, hash) : sha256(NODE, hash, sibling));
  }
  if (hashes.length > 0) throw invalidProof('is longer than its tree is high');
  if (!equal(hash, proof.rootHash)) throw invalidProof('leads to another tree');
  await checkCheckpoint(proof, log);
}

const invalidProof = (what: string) => new CheckFailure('release_proof_invalid', `the inclusion proof ${what}`);
const invalid = (what: string) => new CheckFailure('release_checkpoint_invalid', `the log's checkpoint ${what}`);

const MAX_SIGNATURES = 16;
const HINT_BYTES = 4;

/** A signed note: origin, size, root hash and more lines; an empty line; signatures, of which one must be the log's. */
async function checkCheckpoint({ checkpoint, treeSize, rootHash }: LogEntry['proof'], log: LogKey): Promise<void> {
  const end = checkpoint.indexOf('\n\n');
  if (end < 0) throw invalid('is no signed note');
  const note = checkpoint.slice(0, end + 1);
  const [origin, size, hash] = note.split('\n');
  if (!origin || size !== String(treeSize) || hash !== toBase64(rootHash))
    throw invalid('is about another tree: of another size or another root');
  const lines = checkpoint.slice(end + 2).split('\n');
  if (lines.pop() !== '' || lines.length > MAX_SIGNATURES) throw invalid('does not end in signatures');
  for (const line of lines) {
    const [, name, base64 = ''] = /^\u2014 (\S+) ([A-Za-z0-9+/]+={0,2})$/.exec(line) ?? [];
    const bytes = base64.length % 4 === 0 ? fromBase64(base64) : new Uint8Array();
    // The name is outside of what is signed; the origin is in it.
    if (name !== origin.split(' ', 1)[0]) continue;
    if (!equal(bytes.subarray(0, HINT_BYTES), log.id.subarray(0, HINT_BYTES))) continue;
    if (await verifiesUnder(log, bytes.subarray(HINT_BYTES), utf8(note))) return;
  }
  throw invalid('does not have the signature of the log');
}

/**
 * The signed entry timestamp, of logs of version 1. @returns null: the log gave none.
 * @throws {CheckFailure} release_time_invalid
 */
export async function promisedTime(entry: LogEntry, log: LogKey): Promise<Date | null> {
  if (entry.promise === null) return null;
  if (entry.integratedTime === null || entry.integratedTime === 0n)
    throw new CheckFailure('release_time_invalid', 'the log promised an entry without a time');
  // Canonical JSON: these names in this order.
  const promised = `{"body":"${toBase64(entry.body)}","integratedTime":${entry.integratedTime},"logID":"${toHex(entry.logId)}","logIndex":${entry.logIndex}}`;
  if (!(await verifiesUnder(log, entry.promise, utf8(promised))))
    throw new CheckFailure('release_time_invalid', "the log's signed time does not verify");
  const time = new Date(Number(entry.integratedTime) * 1000);
  if (Number.isNaN(time.getTime())) throw new CheckFailure('release_time_invalid', "the log's time is no time");
  return time;
}
