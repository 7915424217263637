// Which nvattest reads the newer opaque data, whose magic is NVDAOD and which drivers of CUDA 13.5 and later write
// (docs.nvidia.com/attestation, specs, "NVIDIA Opaque Data Format"): 2.0.0 (release 2026.10.02) is the first. The Python SDK, whose
// support has ended, never will. No driver version decides anything here: a report's own magic does.

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
