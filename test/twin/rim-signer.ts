// The four-certificate chain under which NVIDIA signs reference values, under a simulated root of its own.
import * as ext from '../../demo/twin/certificate.ts';
import { type Certificate, type Holder, issue, name, newKey } from '../../demo/twin/certificate.ts';
import { TWIN } from '../../demo/twin/identity.ts';
import { NOT_AFTER, NOT_BEFORE, randomSerial } from '../../demo/twin/pki.ts';

/** NVIDIA has one root for its devices and another for its reference values; so has the twin. */
export const RIM_ROOT = 'Countersign SIMULATED CoRIM signing Root CA';

export interface RimSigner {
  readonly root: Holder;
  readonly ca: Holder;
  readonly intermediate: Holder;
  readonly signer: Holder;
  /** Signer, intermediate, CA, root. */
  readonly chain: readonly [Certificate, Certificate, Certificate, Certificate];
}

/** The signer's own validity: a genuine one lives two years. */
export interface SignerOptions {
  readonly notBefore?: Date;
  readonly notAfter?: Date;
}

/** `root`: `makeRoot(RIM_ROOT)`, or one that `loadOrMakeRoot` keeps. */
export function makeRimSigner(root: Holder, options: SignerOptions = {}): RimSigner {
  const ca = issued(root, 'SIMULATED Reference Value GH100 CA', [
    ext.basicConstraints(true),
    ext.keyUsage('keyCertSignAndCrlSign'),
    ext.crlDistributionPoint(`${TWIN.crl_url}/crl-corim/l1-corim`),
    ext.ocspAccess(TWIN.ocsp_url),
  ]);
  const intermediate = issued(ca, 'SIMULATED Reference Value L3 GH100 001', [
    ext.basicConstraints(true, 0),
    ext.keyUsage('keyCertSignAndCrlSign'),
    ext.ocspAccess(TWIN.ocsp_url),
  ]);
  const leaf = [ext.basicConstraints(false), ext.keyUsage('digitalSignature'), ext.ocspAccess(TWIN.ocsp_url)];
  const signer = issued(intermediate, 'SIMULATED RIM L4 Signer', leaf, options);
  const chain = [signer.certificate, intermediate.certificate, ca.certificate, root.certificate] as const;
  return { root, ca, intermediate, signer, chain };
}

function issued(
  issuer: Holder,
  commonName: string,
  extensions: readonly Buffer[],
  options: SignerOptions = {},
): Holder {
  const { key, publicKey } = newKey();
  const subject = name(['CN', commonName], ['O', TWIN.organization], ['C', TWIN.country]);
  const { notBefore = NOT_BEFORE, notAfter = NOT_AFTER } = options;
  const spec = { subject, serial: randomSerial(), notBefore, notAfter, extensions };
  return { key, certificate: issue(spec, publicKey, issuer) };
}
