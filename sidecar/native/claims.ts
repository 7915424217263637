// What a token says of one device whose every check passed, in NVIDIA's claim names (version 3.0).
import type { DeviceAppraisal } from './appraisal.ts';

/** NVIDIA's private enterprise number, as its own tokens give it. */
const OEM_ID = '5703';

/** Each `true` is a check of verify/ that passed: a device that fails one has no claims and no token. */
export function deviceClaims({ claims, expires, fwid_checked }: DeviceAppraisal): Record<string, unknown> {
  return {
    'x-nvidia-device-type': 'gpu',
    'x-nvidia-gpu-claims-version': '3.0',
    measres: 'success',
    secboot: true,
    dbgstat: 'disabled',
    hwmodel: claims.model,
    ueid: claims.ueid,
    oemid: OEM_ID,
    'x-nvidia-gpu-arch-check': true,
    'x-nvidia-gpu-driver-version': claims.driver,
    'x-nvidia-gpu-vbios-version': claims.vbios,
    'x-nvidia-gpu-attestation-report-parsed': true,
    'x-nvidia-gpu-attestation-report-nonce-match': true,
    'x-nvidia-gpu-attestation-report-signature-verified': true,
    'x-nvidia-gpu-attestation-report-cert-chain': chain(expires.device),
    // Left out for drivers whose reports do not name their firmware.
    ...(fwid_checked ? { 'x-nvidia-gpu-attestation-report-cert-chain-fwid-match': true } : {}),
    ...rim('driver', expires.driver),
    ...rim('vbios', expires.vbios),
    'x-nvidia-gpu-vbios-index-no-conflict': true,
    'x-nvidia-mismatch-measurement-records': null,
  };
}

function rim(kind: 'driver' | 'vbios', expires: Date): Record<string, unknown> {
  const prefix = `x-nvidia-gpu-${kind}-rim`;
  return {
    [`${prefix}-fetched`]: true,
    [`${prefix}-schema-validated`]: true,
    [`${prefix}-cert-chain`]: chain(expires),
    [`${prefix}-signature-verified`]: true,
    [`${prefix}-version-match`]: true,
    [`${prefix}-measurements-available`]: true,
  };
}

function chain(expires: Date): Record<string, unknown> {
  return {
    'x-nvidia-cert-status': 'valid',
    'x-nvidia-cert-ocsp-status': 'good',
    'x-nvidia-cert-expiration-date': expires.toISOString().replace('.000Z', 'Z'),
    'x-nvidia-cert-revocation-reason': null,
  };
}
