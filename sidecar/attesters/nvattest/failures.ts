// What nvattest's result codes mean to an operator: a reason, whether asking again can help, and what to do.
// The codes are those of `nvat_rc_t` in nvat.h of NVIDIA/attestation-sdk. Newer releases may add others; its process exit
// status is the same code cut to eight bits, so that only the `result_code` in its JSON says which.
import { type AttesterError, failed, type Reason } from '../attester.ts';

type Code = AttesterError['code'];
type Again = 'retry' | 'stop';
type Meaning = readonly [reason: Reason, code: Code, again: Again, words: string];

const SERVICE_KEY = 'NVIDIA asks for a service key: set NVIDIA_ATTESTATION_SERVICE_KEY';
const RIM_AWAY = 'the RIM service cannot be reached; look at RIM_URL and the network';
const UPDATE = 'install a newer nvattest';
const FOR_NEW_DRIVERS = 'drivers of CUDA 13.5 and later need nvattest 2.0.0';

const MEANINGS: Readonly<Record<number, Meaning>> = {
  1: ['nvattest_failed', 'appraisal_failed', 'retry', 'nvattest failed without saying why'],
  2: ['nvattest_failed', 'appraisal_failed', 'retry', 'nvattest failed inside'],
  4: ['nvattest_usage', 'collection_failed', 'stop', `nvattest refused an argument; ${UPDATE}`],
  5: ['nvattest_failed', 'collection_failed', 'retry', 'nvattest ran out of memory'],
  6: ['nvattest_build', 'collection_failed', 'stop', "this nvattest was built without NVML; install NVIDIA's package"],
  7: ['nvattest_build', 'collection_failed', 'stop', 'nvattest cannot load libxml2 or xmlsec; install them'],
  8: ['nvattest_build', 'collection_failed', 'stop', 'nvattest cannot load libcurl; install it'],
  11: [
    'policy_refused',
    'appraisal_failed',
    'stop',
    'the claims do not satisfy sidecar/attesters/nvattest/policy.rego',
  ],
  12: ['refused', 'appraisal_failed', 'stop', "NVIDIA's verifier says that the device does not pass"],
  15: ['rate_limited', 'appraisal_failed', 'retry', 'NVIDIA limits the rate of requests; wait some minutes'],
  16: ['report_invalid', 'appraisal_failed', 'stop', 'the evidence cannot be read'],
  17: ['report_signature', 'appraisal_failed', 'stop', "the report's signature does not verify"],
  18: ['nonce_mismatch', 'appraisal_failed', 'stop', 'the evidence is over another nonce'],
  19: ['nonce_mismatch', 'appraisal_failed', 'stop', 'the token is about another nonce'],
  101: ['rim_forbidden', 'appraisal_failed', 'stop', SERVICE_KEY],
  102: ['rim_unreachable', 'appraisal_failed', 'retry', 'the RIM service has an error of its own'],
  103: ['rim_unreachable', 'appraisal_failed', 'retry', RIM_AWAY],
  104: ['rim_not_found', 'appraisal_failed', 'stop', 'no reference values for this driver or VBIOS; use one that has'],
  105: ['rim_refused', 'appraisal_failed', 'stop', "the reference values' signature does not verify"],
  106: ['rim_refused', 'appraisal_failed', 'stop', 'the reference values are not in their format'],
  107: ['measurement_mismatch', 'appraisal_failed', 'stop', 'a measurement is missing in the reference values'],
  108: ['measurement_mismatch', 'appraisal_failed', 'stop', 'driver and VBIOS reference values contradict each other'],
  // Which of the two an unreachable responder gives is not documented: either may be asked again.
  201: ['ocsp_unreachable', 'appraisal_failed', 'retry', 'no usable OCSP answer; look at OCSP_URL and the network'],
  202: ['ocsp_unreachable', 'appraisal_failed', 'retry', 'the OCSP responder has an error of its own'],
  203: ['ocsp_refused', 'appraisal_failed', 'stop', 'the OCSP responder refused the request; look at OCSP_URL'],
  204: ['ocsp_revoked', 'appraisal_failed', 'stop', 'a certificate is revoked or not known to its issuer'],
  205: ['ocsp_forbidden', 'appraisal_failed', 'stop', SERVICE_KEY],
  301: ['policy_broken', 'appraisal_failed', 'stop', `nvattest cannot evaluate policy.rego; ${UPDATE}`],
  402: ['report_invalid', 'appraisal_failed', 'stop', `the report's opaque data cannot be read; ${FOR_NEW_DRIVERS}`],
  500: ['no_driver', 'collection_failed', 'stop', 'the NVIDIA driver is not loaded; look at nvidia-smi'],
  // NVML's own code is not told: the GPU may have been busy, or may be gone.
  501: ['nvml_error', 'collection_failed', 'retry', 'the driver gave no report; look at nvidia-smi and dmesg'],
  502: ['unsupported_gpu', 'collection_failed', 'stop', 'a GPU here cannot attest; Hopper and Blackwell can'],
  503: ['report_invalid', 'appraisal_failed', 'stop', 'the evidence is not valid'],
  504: ['nonce_mismatch', 'appraisal_failed', 'stop', 'the report is over another nonce'],
  505: ['version_mismatch', 'appraisal_failed', 'stop', 'the reference values are for another driver'],
  506: ['version_mismatch', 'appraisal_failed', 'stop', 'the reference values are for another VBIOS'],
  507: ['firmware_id', 'appraisal_failed', 'stop', "the report's firmware is not the certificate's"],
  508: ['report_signature', 'appraisal_failed', 'stop', "the report's signature does not verify"],
  509: ['cc_off', 'collection_failed', 'stop', 'confidential computing is off; turn it on from the host and restart'],
  510: ['unsupported_firmware', 'collection_failed', 'stop', `nvattest does not know this firmware; ${UPDATE}`],
  800: ['firmware_id', 'appraisal_failed', 'stop', "the device's certificate names no firmware"],
  801: ['certificate_chain', 'appraisal_failed', 'stop', 'a certificate is missing in the chain'],
  802: ['certificate_chain', 'appraisal_failed', 'stop', 'the certificate chain does not verify'],
};

const RANGES: readonly (readonly [from: number, reason: Reason, code: Code])[] = [
  [900, 'nvattest_failed', 'appraisal_failed'],
  [800, 'certificate_chain', 'appraisal_failed'],
  [700, 'nras_error', 'appraisal_failed'],
  [600, 'switch_error', 'collection_failed'],
  [500, 'gpu_error', 'collection_failed'],
  [400, 'report_invalid', 'appraisal_failed'],
  [300, 'policy_broken', 'appraisal_failed'],
  [200, 'ocsp_refused', 'appraisal_failed'],
  [100, 'rim_refused', 'appraisal_failed'],
  [0, 'nvattest_failed', 'appraisal_failed'],
];

/** For a `result_code` that is not 0. `said`: what the claims name, or nvattest's own words. */
export function resultError(result_code: number, said: string): AttesterError {
  const [reason, code, again, words] = MEANINGS[result_code] ?? unknown(result_code);
  const quoted = said === '' ? '' : `: ${said.slice(0, 500)}`;
  return failed(code, reason, `${words} (nvattest ${result_code}${quoted})`, again);
}

function unknown(result_code: number): Meaning {
  const range = RANGES.find(([from]) => result_code >= from);
  const [, reason, code] = range ?? ([0, 'nvattest_failed', 'appraisal_failed'] as const);
  return [reason, code, 'stop', 'a result that we do not know; look at the release notes of nvattest'];
}

// Why NVIDIA's verifier said no: result 11 and 12 name no reason, but the claims beside them do.

/** Reasons are for people: enough of them to see where to look. */
const MAX_REASONS = 6;
const MAX_DEVICES = 64;

/** "GPU 0: measurements 9, 52 differ; ocsp revoked", or '' where the claims do not say. @param output what nvattest printed. */
export function whyRefused(output: unknown): string {
  const claims = isRecord(output) && Array.isArray(output.claims) ? output.claims : [];
  return claims
    .slice(0, MAX_DEVICES)
    .map((device: unknown, i) => [i, isRecord(device) ? reasonsOf(device) : []] as const)
    .filter(([, reasons]) => reasons.length > 0)
    .map(([i, reasons]) => `GPU ${i}: ${reasons.slice(0, MAX_REASONS).join('; ')}`)
    .join('. ');
}

function reasonsOf(device: Readonly<Record<string, unknown>>): string[] {
  const reasons: string[] = [];
  const different = device['x-nvidia-mismatch-measurement-records'];
  if (Array.isArray(different))
    reasons.push(`measurements ${different.slice(0, 8).map(indexOf).join(', ')} differ from the reference values`);
  else if (device.measres !== undefined && device.measres !== 'success')
    reasons.push(`measres ${word(device.measres)}`);
  if (Array.isArray(device['x-nvidia-mismatch-opaque-data-records'])) reasons.push('opaque data differs');
  if (device.dbgstat !== undefined && device.dbgstat !== 'disabled') reasons.push(`dbgstat ${word(device.dbgstat)}`);
  for (const [name, value] of Object.entries(device)) {
    const short = word(name.replace(/^x-nvidia-(gpu-)?/, ''));
    if (value === false) reasons.push(`${short} is false`);
    if (!isRecord(value) || !name.endsWith('-cert-chain')) continue;
    const status = value['x-nvidia-cert-status'];
    const revocation = value['x-nvidia-cert-ocsp-status'];
    if (status !== 'valid') reasons.push(`${short} ${word(status)}`);
    if (revocation !== 'good') reasons.push(`${short}: ocsp ${word(revocation)}`);
  }
  return reasons;
}

const indexOf = (record: unknown) => (isRecord(record) && typeof record.index === 'number' ? record.index : '?');
const word = (value: unknown) =>
  String(value)
    .replace(/[^\w .:-]/g, '')
    .slice(0, 64);
const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
