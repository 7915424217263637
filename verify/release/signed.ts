// From a bundle to a verified statement: who signed it, by which identity, and since when the log has it.
import { CheckFailure } from '../common/checks.ts';
import { iso } from '../x509/certificate.ts';
import { ecdsaVerify } from '../x509/public-key.ts';
import { checkChain, checkIdentity, checkReceipts, type Identity, readLeaf } from './signer-certificate.ts';
import type { ReleaseBundle, SignedMaterial } from './sigstore-bundle.ts';
import { stampedTime } from './timestamp.ts';
import { checkBody, checkInclusion, checkPeriod, logOf, promisedTime } from './transparency-log.ts';
import type { TrustedRoot } from './trusted-root.ts';

/** The tolerance between the log's clock and ours. */
const SKEW_MS = 5 * 60 * 1000;

interface Signed {
  readonly leaf: ReturnType<typeof readLeaf>;
  /** When it was logged: the earliest time that was shown. */
  readonly logged: Date;
}

/**
 * Verifies certificate, log entry, times and signature: everything but whose they are.
 * @param at the time of the check, before which it must have been logged; null: any.
 * @throws {CheckFailure}
 */
export async function verifySigned(
  material: SignedMaterial & Partial<ReleaseBundle>,
  root: TrustedRoot,
  at: Date | null,
): Promise<Signed> {
  const { entry, signature, timestamps, signed } = material;
  const leaf = readLeaf(material.certificate);
  const log = logOf(entry, root.logs);
  const promised = await promisedTime(entry, log);
  const times = promised === null ? [] : [promised];
  for (const stamp of timestamps) times.push(await stampedTime(stamp, signature, root.timeAuthorities));
  const [first] = times.toSorted((a, b) => a.getTime() - b.getTime());
  if (first === undefined)
    throw new CheckFailure('release_time_invalid', 'neither the log nor a time authority says when it was logged');
  const ahead = times.find((time) => at !== null && time.getTime() > at.getTime() + SKEW_MS);
  if (ahead !== undefined)
    throw new CheckFailure(
      'release_time_ahead',
      `it was logged at ${iso(ahead)}, which is ahead of the time of the check`,
    );
  for (const time of times) checkPeriod(log, time);
  const issuer = await checkChain(leaf, root.authorities, times);
  await checkReceipts(leaf, issuer, root.certificateLogs);
  await checkBody(material, leaf);
  await checkInclusion(entry, log);
  if (leaf.curve !== 'P-256')
    throw new CheckFailure('release_unsupported', 'the certificate is of a key that is not P-256');
  if (!(await ecdsaVerify(leaf, 'SHA-256', signature, signed)))
    throw new CheckFailure('release_signature_invalid', 'the signature over the statement does not verify');
  return { leaf, logged: first };
}

/** @throws {CheckFailure} */
export async function verifyBundle(bundle: ReleaseBundle, root: TrustedRoot, identity: Identity, at: Date | null) {
  const { leaf, logged } = await verifySigned(bundle, root, at);
  return { ...checkIdentity(leaf, identity), logged };
}
