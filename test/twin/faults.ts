// What the twin can do wrong, on demand. The test changes these while everything runs; the next call sees the change.

import type { CertificateStatus } from './ocsp.ts';
import type { ReportOptions } from './report.ts';

export interface Faults {
  /** NVML: added to each collection of a report. */
  collection_ms: number;
  /** NVML calls that are never answered. */
  hang: Set<string>;
  /** NVML function, or path of NSCQ, to the return code it gives. */
  nvml: Map<string, number>;
  /** As NVIDIA's driver does: a failed call for a report or certificate ends confidential computing. */
  tears_down: boolean;
  /** Whether the GPUs accept work. */
  ready: boolean;
  cc: 'on' | 'off';
  devtools: 'on' | 'off';
  protected_pcie: boolean;
  /** By device. */
  report: Map<number, ReportOptions>;
  /** By device: answered with the nonce of the report before. */
  stale_nonce: Set<number>;
  /** Reports carry their opaque data in the format of newer drivers. */
  new_format: boolean;
  /** By switch. */
  switch_report: Map<number, ReportOptions>;
  stale_switch_nonce: Set<number>;
  /** Whether the switches can no longer be reconfigured. */
  switches_locked: boolean;
  no_switches: boolean;
  /** nscq_arch_t: 2 LS10. */
  switch_architecture: number;
  /** Status that the RIM service gives in place of a manifest; null for none; 'cut' closes the connection. */
  rim: number | 'cut' | null;
  /** A character of each manifest is changed after it was signed. */
  rim_broken_signature: boolean;
  /** For every certificate asked about. */
  ocsp: CertificateStatus | 'expired' | 'responder_expired' | 'no_nonce' | 'broken_signature' | 'cut' | number;
}

export const noFaults = (): Faults => ({
  collection_ms: 0,
  hang: new Set(),
  nvml: new Map(),
  tears_down: false,
  ready: true,
  cc: 'on',
  devtools: 'off',
  protected_pcie: false,
  report: new Map(),
  stale_nonce: new Set(),
  new_format: false,
  switch_report: new Map(),
  stale_switch_nonce: new Set(),
  switches_locked: true,
  no_switches: false,
  switch_architecture: 2,
  rim: null,
  rim_broken_signature: false,
  ocsp: 'good',
});
