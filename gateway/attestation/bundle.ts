// Compact proofs: what attestations have in common stands once in a bundle, under its own SHA-256 (docs/attestation.md §9). A bundle has the
// token and evidence of a batch, the processor's session, or both. Each attestation is kept in parts, from which both forms are written.
import { hash } from 'node:crypto';
import { EMPTY } from '../base/bytes.ts';
import type { AttestationParts, Bundle, Session, TokenAndEvidence } from './interfaces.ts';

const bundles = new WeakMap<TokenAndEvidence | Session, Map<Session | null, Bundle>>();

/**
 * The bundle of all attestations with these members and this session: made once.
 * @param members token and evidence of a batch; null: they are not shared.
 */
export function bundleOf(members: TokenAndEvidence | null, session: Session | null): Bundle | null {
  const key = members ?? session;
  if (key === null) return null;
  const known = bundles.get(key) ?? new Map<Session | null, Bundle>();
  bundles.set(key, known);
  const made = known.get(session) ?? makeBundle(members, session);
  known.set(session, made);
  return made;
}

function makeBundle(members: TokenAndEvidence | null, session: Session | null): Bundle {
  const own = members === null ? EMPTY : Buffer.concat([Buffer.from('{'), members.json]);
  const cpu = session === null ? '}' : `${members === null ? '{' : ','}"cpu":${session.cpu}}`;
  const json = Buffer.concat([own, Buffer.from(cpu)]);
  return { sha256: hash('sha256', json), json, cpu_at: own.length };
}

/** The short form, for clients that ask for it. An attestation that shares nothing is whole. */
export function compactJson(proof: AttestationParts): Buffer<ArrayBuffer> {
  const { start, own, signed, bundle } = proof;
  if (bundle === null) return wholeJson(proof);
  const cpu =
    signed === null ? '' : `,"cpu":{"statement_sha256":"${signed.session}","signature":"${signed.signature}"}`;
  return Buffer.concat([start, Buffer.from(`${own}${cpu},"bundle":"${bundle.sha256}"}`)]);
}

/** The form that stands for itself: the bundle's members are written into it. */
export function wholeJson({ start, own, signed, bundle }: AttestationParts): Buffer<ArrayBuffer> {
  if (bundle === null) return Buffer.concat([start, Buffer.from(`${own}}`)]);
  const { json, cpu_at } = bundle;
  // A bundle's first member follows the brace, in the attestation a comma.
  const members = cpu_at === 0 ? [] : [Buffer.from(','), json.subarray(1, cpu_at)];
  if (signed === null) return Buffer.concat([start, ...members, Buffer.from(`${own}}`)]);
  const session = json.subarray(cpu_at + 1, json.length - 2);
  return Buffer.concat([
    start,
    ...members,
    Buffer.from(`${own},`),
    session,
    Buffer.from(`,"signature":"${signed.signature}"}}`),
  ]);
}
