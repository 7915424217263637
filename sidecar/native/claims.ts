// What a token says of one device whose every check passed, in NVIDIA's claim names (version 3.0).
import type { DeviceAppraisal } from './appraisal.ts';

/** NVIDIA's private enterprise number, as its own tokens give it. */
const OEM_ID = '5703';

/** Each `true` is a check of verify/ that passed: a device that fails one has no claims and no token. */
export function deviceClaims(device: DeviceAppraisal): Record<string, unknown> {
  const { claims } = device;
  return {
    'x-nvidia-device-type': claims.kind === 'switch' ? 'nvswitch' : 'gpu',
    measres: 'success',
    secboot: true,
    dbgstat: 'disabled',
    hwmodel: claims.model,
    ueid: claims.ueid,
    oemid: OEM_ID,
    ...(claims.kind === 'switch' ? switchClaims(device) : gpuClaims(device)),
  };
}

function gpuClaims({ claims, expires, fwid_checked }: DeviceAppraisal): Record<string, unknown> {
  return {
    'x-nvidia-gpu-claims-version': '3.0',
    ...reportClaims('x-nvidia-gpu', expires.device, fwid_checked),
    'x-nvidia-gpu-driver-version': claims.driver,
    'x-nvidia-gpu-vbios-version': claims.vbios,
    ...(expires.driver === null ? {} : rim('x-nvidia-gpu-driver-rim', expires.driver)),
    ...rim('x-nvidia-gpu-vbios-rim', expires.vbios),
    'x-nvidia-gpu-vbios-index-no-conflict': true,
    'x-nvidia-mismatch-measurement-records': null,
  };
}

function switchClaims({ claims, expires, fwid_checked }: DeviceAppraisal): Record<string, unknown> {
  return {
    ...reportClaims('x-nvidia-switch', expires.device, fwid_checked),
    'x-nvidia-switch-bios-version': claims.vbios,
    ...rim('x-nvidia-switch-bios-rim', expires.vbios),
  };
}

function reportClaims(prefix: string, expires: Date, fwid_checked: boolean): Record<string, unknown> {
  const report = `${prefix}-attestation-report`;
  return {
    [`${prefix}-arch-check`]: true,
    [`${report}-parsed`]: true,
    [`${report}-nonce-match`]: true,
    [`${report}-signature-verified`]: true,
    [`${report}-cert-chain`]: chain(expires),
    // Left out for drivers, and switches, whose reports do not name their firmware.
    ...(fwid_checked ? { [`${report}-cert-chain-fwid-match`]: true } : {}),
  };
}

function rim(prefix: string, expires: Date): Record<string, unknown> {
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
