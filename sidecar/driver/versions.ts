// Which of NVIDIA's verifiers can read this driver's reports: drivers of CUDA 13.5 and later write a new opaque-data format
// (docs.nvidia.com/attestation, specs, "NVIDIA Opaque Data Format"). nvattest reads it from 2.0.0 (release 2026.10.02) on; the Python
// SDK, whose support has ended, never will. NVIDIA names no first driver version: 620.12 is the first seen with the format
// (NVIDIA/attestation-sdk's test data), so the branch decides.

/** The branch of the first driver whose reports carry the new format. */
const FIRST_BRANCH = 620;

/** `driver_version`: "580.65.06". False where it is not a version. */
export function needsNvattest(driver_version: string): boolean {
  const branch = /^([0-9]{3,5})\.[0-9]/.exec(driver_version.trim())?.[1];
  return branch !== undefined && Number(branch) >= FIRST_BRANCH;
}

/** Whether this nvattest reads the new format: "1.2.1" does not. Null where the text is not a version. */
export function readsNewFormat(nvattest_version: string): boolean | null {
  const major = /^([0-9]{1,4})\.[0-9]/.exec(nvattest_version.trim())?.[1];
  return major === undefined ? null : Number(major) >= 2;
}

/** From the text of /proc/driver/nvidia/version; null where it names none. */
export function driverVersionIn(text: string): string | null {
  return /^NVRM version:.*?Kernel Module(?: for \S+)?\s+([0-9]{3,5}(?:\.[0-9]+){1,2})\b/m.exec(text)?.[1] ?? null;
}

export const DRIVER_VERSION_FILE = '/proc/driver/nvidia/version';
