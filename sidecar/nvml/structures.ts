// NVML's structures as bytes: the sizes and offsets that nvml.h gives them, in the machine's order, without padding.

/** nvmlSystemGetDriverVersion, nvmlDeviceGetName (v2), nvmlDeviceGetUUID (v2). */
export const TEXT_BYTES = 96;
export const DRIVER_VERSION_BYTES = 80;
export const HANDLE_BYTES = 8;
export const NUMBER_BYTES = 4;

/** nvmlConfComputeSystemState_t: environment, ccFeature, devToolsMode. */
export const STATE_BYTES = 12;
/** nvmlSystemConfComputeSettings_v1_t: version, environment, ccFeature, devToolsMode, multiGpuMode. */
const SETTINGS_BYTES = 20;
/** NVML_STRUCT_VERSION: the size, and the version in the highest byte. */
const SETTINGS_V1 = 0x0100_0014;

export interface ConfidentialMode {
  readonly environment: 'unavailable' | 'simulation' | 'production';
  readonly confidential: boolean;
  readonly devtools: boolean;
  /** null: this driver does not say. */
  readonly multi_gpu: 'none' | 'protected_pcie' | 'nvle' | null;
}

const ENVIRONMENTS = ['unavailable', 'simulation', 'production'] as const;
const MULTI_GPU = ['none', 'protected_pcie', 'nvle'] as const;

export function emptySettings(): Buffer {
  const bytes = Buffer.alloc(SETTINGS_BYTES);
  bytes.writeUInt32LE(SETTINGS_V1, 0);
  return bytes;
}

export const readSettings = (bytes: Buffer): ConfidentialMode => ({
  ...readState(bytes.subarray(4)),
  multi_gpu: MULTI_GPU[bytes.readUInt32LE(16)] ?? null,
});

export const readState = (bytes: Buffer): ConfidentialMode => ({
  environment: ENVIRONMENTS[bytes.readUInt32LE(0)] ?? 'unavailable',
  confidential: bytes.readUInt32LE(4) === 1,
  // Anything but "off" is on.
  devtools: bytes.readUInt32LE(8) !== 0,
  multi_gpu: null,
});

/** nvmlConfComputeGpuCertificate_t: two sizes, the identity chain, the attestation chain. */
const CERTIFICATE_CHAIN_BYTES = 0x1000;
const ATTESTATION_CHAIN_BYTES = 0x1400;
export const CERTIFICATE_BYTES = 8 + CERTIFICATE_CHAIN_BYTES + ATTESTATION_CHAIN_BYTES;

/** The attestation chain, PEM, leaf first; null where the driver states a size that cannot be. */
export function readAttestationChain(bytes: Buffer): string | null {
  const size = bytes.readUInt32LE(4);
  const start = 8 + CERTIFICATE_CHAIN_BYTES;
  return size === 0 || size > ATTESTATION_CHAIN_BYTES ? null : readText(bytes.subarray(start, start + size));
}

/** nvmlConfComputeGpuAttestationReport_t: isCecAttestationReportPresent, two sizes, nonce, report, CEC report. */
const NONCE_AT = 12;
export const NONCE_BYTES = 0x20;
const REPORT_AT = NONCE_AT + NONCE_BYTES;
const MAX_REPORT_BYTES = 0x2000;
const MAX_CEC_REPORT_BYTES = 0x1000;
const REPORT_BYTES = REPORT_AT + MAX_REPORT_BYTES + MAX_CEC_REPORT_BYTES;

export function reportRequest(nonce: Uint8Array): Buffer {
  if (nonce.length !== NONCE_BYTES) throw new RangeError(`a nonce has ${NONCE_BYTES} bytes`);
  const bytes = Buffer.alloc(REPORT_BYTES);
  bytes.set(nonce, NONCE_AT);
  return bytes;
}

/**
 * The SPDM request and its signed response; null where the driver states a size that cannot be. The report of the board's
 * external root of trust (CEC), which may stand beside it, is not read: nothing here rests on it.
 */
export function readReport(bytes: Buffer): Buffer | null {
  const [size, cec_size] = [bytes.readUInt32LE(4), bytes.readUInt32LE(8)];
  if (size === 0 || size > MAX_REPORT_BYTES || cec_size > MAX_CEC_REPORT_BYTES) return null;
  return Buffer.from(bytes.subarray(REPORT_AT, REPORT_AT + size));
}

/** ASCII up to the first zero byte. */
export function readText(bytes: Buffer): string {
  const end = bytes.indexOf(0);
  return bytes.toString('latin1', 0, end < 0 ? bytes.length : end);
}
