// Bundles, which compact attestations name: asked of this service once, or brought by the visitor. What is shown and saved is whole.

import { BUNDLE_MEMBERS, checkBundle } from '../../verify/binding/bundle.ts';
import { readInput } from '../../verify/binding/input.ts';
import { parseBounded, unquoted } from '../../verify/common/limited.ts';
import { LruMap } from '../../verify/common/lru.ts';
import { attestationIn, CheckFailure, createBundles, fetchBundle } from '../../verify/index.ts';
import { ask } from '../base/gateway.ts';
import { type Subject, textOf, withAttestation } from './subject.ts';

/** What the service gave for the newest proofs, so that the verifier does not ask for what was away a moment ago. */
const asked = new LruMap<string, Promise<string | null>>(8);

/** One for all proofs: it keeps what it fetched. */
export const bundles = createBundles({
  load(sha256) {
    const got = asked.get(sha256) ?? fetchBundle('/v1', sha256, { fetch: (url, init) => ask(String(url), init) });
    asked.set(sha256, got);
    return got;
  },
});

/** Keeps a bundle that the visitor brings. @returns false where it is none. */
export async function keepBundle(bytes: Uint8Array<ArrayBuffer>): Promise<boolean> {
  const text = textOf(bytes);
  try {
    const value = parseBounded(text);
    const names = Object.keys(Object(value));
    if (names.length === 0 || !names.every((name) => BUNDLE_MEMBERS.includes(name))) return false;
    await bundles.add(text);
    return true;
  } catch (error) {
    if (!(error instanceof CheckFailure)) throw error;
    return false;
  }
}

/** With a whole attestation. Where the bundle is away or another one, it stays as it is, and the verifier says so. */
export async function wholeOf(subject: Subject): Promise<Subject> {
  if (subject.kind !== 'attestation' || subject.text === '') return subject;
  const text = unquoted(subject.text);
  const compact = attestationIn(text) ?? text;
  try {
    const { attestation, bundle } = readInput(compact);
    if (bundle === null) return subject;
    asked.delete(bundle);
    const { value } = await checkBundle({ attestation, sha256: bundle }, bundles, undefined);
    const json = JSON.stringify(value);
    const stream = subject.transcript === null ? '' : textOf(subject.transcript).replace(compact, () => json);
    const transcript = stream === '' ? subject.transcript : new TextEncoder().encode(stream);
    return { ...withAttestation({ ...subject, text }, value), transcript, expanded: true };
  } catch (error) {
    if (!(error instanceof CheckFailure)) throw error;
    return subject;
  }
}
