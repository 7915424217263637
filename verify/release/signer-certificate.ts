// Fulcio's certificate: its chain, the certificate log's receipt in it (RFC 6962), and the identity that it names.
import { concat, digest, EncodingError, equal, fromUtf8 } from '../common/bytes.ts';
import { CheckFailure, type FailureCode } from '../common/checks.ts';
import { type Certificate, iso, parseCertificate } from '../x509/certificate.ts';
import { ChainError, verifyChain } from '../x509/chain.ts';
import { children, DerError, readAt, readOne, sequence, TAG } from '../x509/der.ts';
import type { Authority, LogKey } from './trusted-root.ts';
import { keyOf, verifiesUnder, within } from './trusted-root.ts';

const CODE_SIGNING = '1.3.6.1.5.5.7.3.3';
const RECEIPTS = '1.3.6.1.4.1.11129.2.4.2';
const SUBJECT_ALT_NAME = '2.5.29.17';

const bad = (message: string, cause?: unknown) => new CheckFailure('release_certificate_invalid', message, { cause });

/** @throws {CheckFailure} release_certificate_invalid */
export function readLeaf(der: Uint8Array): Certificate {
  try {
    return parseCertificate(der);
  } catch (cause) {
    if (cause instanceof DerError) throw bad(`the certificate cannot be read: ${cause.message}`, cause);
    throw cause;
  }
}

/**
 * @param at the log's time, and any other that was shown. @returns the issuer.
 * @throws {CheckFailure} release_untrusted, release_root_expired, release_certificate_expired, release_certificate_invalid
 */
export async function checkChain(
  leaf: Certificate,
  authorities: readonly Authority[],
  at: readonly Date[],
): Promise<Certificate> {
  const outside = at.find((time) => !(time >= leaf.notBefore && time <= leaf.notAfter));
  if (outside !== undefined)
    throw new CheckFailure(
      'release_certificate_expired',
      `the certificate is of ${iso(leaf.notBefore)} to ${iso(leaf.notAfter)}, and the statement was logged at ${iso(outside)}`,
    );
  if (leaf.isCa || leaf.keyUsage?.has('digitalSignature') !== true) throw bad('the certificate may not sign');
  if (leaf.extendedKeyUsage?.includes(CODE_SIGNING) !== true) throw bad('the certificate is not for signing code');
  const named = authorities.filter(({ chain: [issuer] }) => issuer !== undefined && equal(issuer.subject, leaf.issuer));
  if (named.length === 0)
    throw new CheckFailure('release_untrusted', 'the trusted root does not know who issued the certificate');
  const known = named.filter(({ period }) => at.every((time) => within(time, period)));
  if (known.length === 0)
    throw new CheckFailure('release_root_expired', 'the trusted root ends this certificate authority before that time');
  let failure: unknown;
  for (const { chain } of known)
    try {
      for (const time of at) await verifyChain([leaf, ...chain.slice(0, -1)], chain.slice(-1), time);
      return chain[0] as Certificate;
    } catch (cause) {
      if (!(cause instanceof ChainError)) throw cause;
      const code = cause.reason === 'expired' ? 'release_root_expired' : 'release_certificate_invalid';
      failure = new CheckFailure(code, cause.message, { cause });
    }
  throw failure;
}

// The receipt (signed certificate timestamp).

interface Receipt {
  readonly logId: Uint8Array;
  readonly time: Uint8Array;
  readonly extensions: Uint8Array;
  readonly signature: Uint8Array;
}

/** Every receipt must verify, and no log may give two. @throws {CheckFailure} release_sct_invalid, release_untrusted */
export async function checkReceipts(leaf: Certificate, issuer: Certificate, logs: readonly LogKey[]): Promise<void> {
  const receipts = attempt(() => readReceipts(leaf));
  const issuerHash = await digest('SHA-256', issuer.spki);
  const tbs = attempt(() => withoutReceipts(leaf));
  for (const [i, { logId, time, extensions, signature }] of receipts.entries()) {
    if (receipts.slice(0, i).some((other) => equal(other.logId, logId))) throw badReceipt('a log gave two receipts');
    const log = keyOf(logs, logId);
    if (log?.algorithm !== 'P-256')
      throw new CheckFailure('release_untrusted', 'the trusted root does not know the log of certificates');
    if (!within(new Date(Number(new DataView(time.buffer, time.byteOffset).getBigUint64(0))), log.period))
      throw badReceipt('the log of certificates had ended');
    const signed = concat([
      Uint8Array.of(0, 0),
      time,
      Uint8Array.of(0, 1),
      issuerHash,
      lengthOf(tbs, 3),
      tbs,
      lengthOf(extensions, 2),
      extensions,
    ]);
    if (!(await verifiesUnder(log, signature, signed))) throw badReceipt('its signature does not verify');
  }
}

const badReceipt = (what: string) =>
  new CheckFailure('release_sct_invalid', `the receipt of the certificate's log (SCT): ${what}`);

function attempt<T>(read: () => T): T {
  try {
    return read();
  } catch (cause) {
    if (cause instanceof DerError || cause instanceof RangeError) throw badReceipt(cause.message);
    throw cause;
  }
}

/** RFC 6962 §3.3: a list with its length, each with its own. */
function readReceipts({ extensions }: Certificate): Receipt[] {
  const extension = extensions.get(RECEIPTS);
  if (extension === undefined) throw new DerError('there is none');
  const cursor = new Cursor(readOne(extension.value, TAG.octetString).content);
  const list = new Cursor(cursor.vector(2));
  cursor.end();
  const receipts: Receipt[] = [];
  while (!list.done) {
    const one = new Cursor(list.vector(2));
    if (one.bytes(1)[0] !== 0) throw new DerError('it is of another version');
    const [logId, time, more] = [one.bytes(32), one.bytes(8), one.vector(2)];
    const [hash, algorithm] = one.bytes(2);
    // SHA-256 and ECDSA (RFC 5246 §7.4.1.4.1).
    if (hash !== 4 || algorithm !== 3) throw new DerError('a signature that is not supported');
    receipts.push({ logId, time, extensions: more, signature: one.vector(2) });
    one.end();
  }
  if (receipts.length === 0) throw new DerError('there is none');
  return receipts;
}

class Cursor {
  readonly #bytes: Uint8Array;
  #at = 0;
  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }
  get done(): boolean {
    return this.#at === this.#bytes.length;
  }
  bytes(length: number): Uint8Array {
    if (this.#at + length > this.#bytes.length) throw new DerError('it breaks off');
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }
  /** What follows its own length, of `size` bytes. */
  vector(size: number): Uint8Array {
    return this.bytes(this.bytes(size).reduce((length, byte) => length * 256 + byte, 0));
  }
  end(): void {
    if (!this.done) throw new DerError('bytes follow it');
  }
}

/** The certificate as it was shown to the log: its signed part without the receipts. */
function withoutReceipts({ tbs }: Certificate): Uint8Array {
  const parts = sequence(readOne(tbs));
  const last = parts.pop();
  if (last?.tag !== 0xa3) throw new DerError('the certificate has no extensions');
  const kept = sequence(readOne(last.content)).filter(({ content }) => !isReceipts(content));
  const extensions = der(0xa3, [
    der(
      TAG.sequence,
      kept.map(({ whole }) => whole),
    ),
  ]);
  return der(TAG.sequence, [...parts.map(({ whole }) => whole), extensions]);
}

const RECEIPTS_ID = Uint8Array.of(0x06, 0x0a, 0x2b, 0x06, 0x01, 0x04, 0x01, 0xd6, 0x79, 0x02, 0x04, 0x02);
const isReceipts = (content: Uint8Array) => equal(readAt(content, 0).whole, RECEIPTS_ID);

function der(tag: number, contents: readonly Uint8Array[]): Uint8Array {
  const content = concat(contents);
  const { length } = content;
  const size = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return concat([Uint8Array.of(tag, ...size), content]);
}

const lengthOf = (bytes: Uint8Array, size: number): Uint8Array =>
  Uint8Array.from({ length: size }, (_, i) => (bytes.length >> (8 * (size - 1 - i))) & 0xff);

// The identity. Fulcio's extensions: github.com/sigstore/fulcio, docs/oid-info.md.

const FULCIO = '1.3.6.1.4.1.57264.1';
const GITHUB = 'https://github.com';
const GITHUB_ISSUER = 'https://token.actions.githubusercontent.com';

/** What a workflow must be for its word to count. Texts are compared whole. */
export interface Identity {
  /** OWNER/REPO. */
  readonly repository: string;
  /** The workflow's file name. */
  readonly workflow: string;
  /** `refs/tags/v1.2.3`; null: any tag. */
  readonly ref: string | null;
  readonly events: readonly string[];
  /** GitHub's numbers of the repository and its owner; null: only the names are compared. */
  readonly ids: { readonly repository: string; readonly owner: string } | null;
}

/** @returns ref and commit that the certificate names. @throws {CheckFailure} */
export function checkIdentity(leaf: Certificate, expected: Identity): { ref: string; commit: string } {
  const said = (n: number) => extensionText(leaf, n);
  const mustBe = (n: number, value: string, code: FailureCode, what: string) => {
    if (said(n) !== value) throw new CheckFailure(code, `the certificate is of another ${what}: ${shown(said(n))}`);
  };
  const { repository, workflow, events, ids } = expected;
  mustBe(8, GITHUB_ISSUER, 'release_issuer_mismatch', 'issuer of identities');
  mustBe(12, `${GITHUB}/${repository}`, 'release_repository_mismatch', 'repository');
  if (ids !== null) {
    mustBe(15, ids.repository, 'release_id_mismatch', 'repository with that name');
    mustBe(17, ids.owner, 'release_id_mismatch', 'owner with that name');
  }
  const ref = said(14);
  const kind = (expected.ref ?? 'refs/tags/').split('/', 2).join('/');
  if (!ref.startsWith(`${kind}/`))
    throw new CheckFailure('release_ref_mismatch', `the certificate is of ${shown(ref)}, which is not under ${kind}`);
  if (ref !== (expected.ref ?? ref))
    throw new CheckFailure(
      kind === 'refs/tags' ? 'release_tag_mismatch' : 'release_ref_mismatch',
      `the certificate is of ${shown(ref)}, not of ${expected.ref}`,
    );
  if (!events.includes(said(20)))
    throw new CheckFailure('release_event_mismatch', `the workflow was started by ${shown(said(20))}`);
  mustBe(11, 'github-hosted', 'release_runner_mismatch', 'kind of runner');
  const file = `${GITHUB}/${repository}/.github/workflows/${workflow}@${ref}`;
  mustBe(18, file, 'release_workflow_mismatch', 'workflow');
  mustBe(9, file, 'release_workflow_mismatch', 'workflow');
  if (alternativeName(leaf) !== file)
    throw new CheckFailure('release_identity_mismatch', `the certificate names ${shown(alternativeName(leaf))}`);
  const commit = said(13);
  if (!/^[0-9a-f]{40}$/.test(commit))
    throw new CheckFailure('release_commit_mismatch', 'the certificate names no commit');
  return { ref, commit };
}

const shown = (text: string): string => text.replace(/[^ -~]/g, '?').slice(0, 200);

function extensionText({ extensions }: Certificate, n: number): string {
  const extension = extensions.get(`${FULCIO}.${n}`);
  if (extension === undefined) return '';
  return asText(() => readOne(extension.value, TAG.utf8String).content);
}

/** The one URI; empty where there is another name, or a second. */
function alternativeName({ extensions }: Certificate): string {
  const extension = extensions.get(SUBJECT_ALT_NAME);
  if (extension === undefined) return '';
  return asText(() => {
    const [name, ...more] = children(readOne(extension.value, TAG.sequence).content);
    if (name?.tag !== 0x86 || more.length > 0) throw new DerError('not one URI');
    return name.content;
  });
}

function asText(read: () => Uint8Array): string {
  try {
    return fromUtf8(read());
  } catch (cause) {
    if (cause instanceof DerError || cause instanceof EncodingError) return '';
    throw cause;
  }
}
