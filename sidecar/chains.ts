// Certificate chains of devices that verified before: a device sends the same one with every report.
import { fromBase64 } from '../verify/bytes.ts';
import { type Certificate, parsePem } from '../verify/x509/certificate.ts';
import { verifyChain } from '../verify/x509/chain.ts';

const MAX_KNOWN = 64;
const known = new Map<string, readonly Certificate[]>();

/**
 * The verified path, leaf first. `chain` is base64 of PEM, `root` the PEM of the roots that count. What verified once is
 * not verified again until a certificate in it expires.
 * @throws {ChainError | DerError | EncodingError}
 */
export async function verifiedPath(chain: string, root: string, at: Date): Promise<readonly Certificate[]> {
  const key = `${root}\n${chain}`;
  const before = known.get(key);
  if (before?.every(({ notBefore, notAfter }) => at >= notBefore && at <= notAfter)) return before;
  const path = await verifyChain(parsePem(new TextDecoder().decode(fromBase64(chain))), parsePem(root), at);
  // The one that was there first goes: devices are few, and a restart of the twin makes a new chain.
  if (known.size >= MAX_KNOWN) known.delete(known.keys().next().value as string);
  known.set(key, path);
  return path;
}
