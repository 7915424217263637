// The doctor's settings, from the sidecar's own variables: the one place in this process that reads the environment.
import { resolve } from 'node:path';
import { NRAS_KEYS_URL, NVIDIA_OCSP_URL, NVIDIA_RIM_URL } from '../../verify/index.ts';
import { nvattestEnvironment } from '../attesters/program.ts';
import { ATTESTERS, type AttesterName, CPU_EVIDENCE, type CpuEvidenceChoice, TSM_ENTRY } from '../config.ts';
import { AMD_KDS_URL } from '../cpu/amd.ts';
import { INTEL_PCS_URL } from '../cpu/intel.ts';

export interface DoctorConfig {
  readonly attester: AttesterName;
  /** Absolute path. */
  readonly sidecar_socket: string;
  readonly rim_url: string;
  readonly ocsp_url: string;
  readonly nras_url: string;
  readonly kds_url: string;
  readonly pcs_url: string;
  readonly cpu_evidence: CpuEvidenceChoice;
  /** Absolute path. */
  readonly tsm_entry: string;
  /** Absolute path. */
  readonly nvtrust_venv: string;
  /** A path, or a name to be found in PATH. */
  readonly nvattest: string;
  readonly nvml_library: string;
  /** What programs that the doctor runs may see. */
  readonly environment: Readonly<Record<string, string>>;
}

/** A variable is wrong. The message is one line that names it. */
export class DoctorConfigError extends Error {
  override readonly name = 'DoctorConfigError';
}

/** @throws {DoctorConfigError} one line that names the variable. */
export function loadDoctorConfig(env: Readonly<Record<string, string | undefined>>): DoctorConfig {
  const text = (name: string, fallback: string) => env[name] || fallback;
  const url = (name: string, fallback: string) => {
    const value = text(name, fallback);
    if (!/^https?:$/.test(URL.parse(value)?.protocol ?? ''))
      throw new DoctorConfigError(`${name} must be an http(s) URL`);
    return value.replace(/\/+$/, '');
  };
  const attester = ATTESTERS.find((name) => name === text('ATTESTER', 'nvtrust'));
  if (attester === undefined) throw new DoctorConfigError(`ATTESTER must be one of ${ATTESTERS.join(', ')}`);
  const cpu_evidence = CPU_EVIDENCE.find((name) => name === text('CPU_EVIDENCE', 'off'));
  if (cpu_evidence === undefined) throw new DoctorConfigError(`CPU_EVIDENCE must be one of ${CPU_EVIDENCE.join(', ')}`);
  return {
    attester,
    sidecar_socket: resolve(text('SIDECAR_SOCKET', 'run/sidecar.sock')),
    rim_url: url('RIM_URL', NVIDIA_RIM_URL),
    ocsp_url: url('OCSP_URL', NVIDIA_OCSP_URL),
    nras_url: url('NRAS_URL', new URL(NRAS_KEYS_URL).origin),
    kds_url: url('KDS_URL', AMD_KDS_URL),
    pcs_url: url('PCS_URL', INTEL_PCS_URL),
    cpu_evidence,
    tsm_entry: resolve(text('TSM_ENTRY', TSM_ENTRY)),
    nvtrust_venv: resolve(text('NVTRUST_VENV', 'run/nvtrust-venv')),
    nvattest: text('NVATTEST', 'nvattest'),
    nvml_library: text('NVML_LIBRARY', 'libnvidia-ml.so.1'),
    environment: nvattestEnvironment(env),
  };
}
