// Access to NVIDIA's services: reference values, revocation, and the keys of its remote attestation service.
export {
  type CollateralOptions,
  createCollateral,
  fetchNrasKeys,
  NVIDIA_OCSP_URL,
  NVIDIA_RIM_URL,
} from './gpu/collateral.ts';
export { NRAS_KEYS_URL } from './token/signature.ts';
