// What Intel's Provisioning Certification Service has for the quotes of a platform that is made here.
import { FMSPC } from '../../../demo/twin/tdx.ts';
import type { TdxCollateral } from '../../../verify/cpu.ts';
import type { Answer } from './fake-service.ts';

export const TCB = `/tdx/certification/v4/tcb?fmspc=${FMSPC}&update=standard`;
export const QE = '/tdx/certification/v4/qe/identity?update=standard';
export const PCK_CRL = '/sgx/certification/v4/pckcrl?ca=platform&encoding=der';
export const ROOT_CRL = '/sgx/certification/v4/rootcacrl';
export const ALL = [PCK_CRL, ROOT_CRL, QE, TCB];

/** The service's responses, with white space of its own around what is signed. */
export function repliesOf(collateral: TdxCollateral): Record<string, Answer> {
  const chain = (name: string, text: string) => ({ [name]: encodeURIComponent(text) });
  return {
    [TCB]: {
      body: ` {"tcbInfo" :\n${collateral.tcb_info}\t, "signature": "${collateral.tcb_info_signature}"}\n`,
      headers: chain('TCB-Info-Issuer-Chain', collateral.tcb_info_issuer_chain),
    },
    [QE]: {
      body: `{"signature":"${collateral.qe_identity_signature}","enclaveIdentity":${collateral.qe_identity}}`,
      headers: chain('SGX-Enclave-Identity-Issuer-Chain', collateral.qe_identity_issuer_chain),
    },
    [PCK_CRL]: {
      body: Buffer.from(collateral.pck_crl, 'hex'),
      headers: chain('SGX-PCK-CRL-Issuer-Chain', collateral.pck_crl_issuer_chain),
    },
    [ROOT_CRL]: { body: Buffer.from(collateral.root_ca_crl, 'hex') },
  };
}
