// Verifies a RIM's enveloped XML signature (XML Signature 1.1 §3.2) and hands back the very text that was signed.
import { digest, equal, utf8 } from '../bytes.ts';
import { CheckFailure } from '../checks.ts';
import type { Certificate } from '../x509/certificate.ts';
import { ecdsaVerifyRaw } from '../x509/ecdsa.ts';
import { canonicalDocument, canonicalSubset } from './c14n.ts';
import type { Element } from './tree.ts';
import { readSignature } from './xmldsig.ts';

export interface SignedDocument {
  /** The canonical text whose digest was signed: the document without its signature. Read values from nothing else. */
  readonly text: string;
  /** The signer's chain as it came, leaf first. The signature is the leaf's; who the leaf is, the chain has yet to show. */
  readonly chain: readonly Certificate[];
}

/** @throws {CheckFailure} rim_signature_invalid, or rim_malformed for a form that is not accepted. */
export async function verifySignature(root: Element): Promise<SignedDocument> {
  const signature = readSignature(root);
  const text = canonicalDocument(root, signature.element);
  if (!equal(await digest('SHA-384', utf8(text)), signature.digest))
    throw invalid('the digest of the document is another');
  const [leaf] = signature.certificates;
  if (leaf?.curve !== 'P-384') throw invalid('the signer has no P-384 key');
  if (leaf.isCa || leaf.keyUsage?.has('digitalSignature') === false) throw invalid('the signer may not sign documents');
  const signedInfo = utf8(canonicalSubset(signature.signedInfo, [root, signature.element]));
  if (!(await ecdsaVerifyRaw(leaf, 'SHA-384', signature.value, signedInfo)))
    throw invalid('the signature does not verify under the signer');
  return { text, chain: signature.certificates };
}

function invalid(message: string): CheckFailure {
  return new CheckFailure('rim_signature_invalid', message);
}
