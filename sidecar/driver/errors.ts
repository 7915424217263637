// What the return codes of NVML and NSCQ mean to an operator: a reason, whether a retry can help, and what to do.
import { AttesterError, failed, type Reason } from '../common/attester.ts';

type Again = 'retry' | 'stop';
interface Meaning {
  readonly reason: Reason;
  readonly again: Again;
  readonly words: string;
}

/** nvmlReturn_t, as nvml.h numbers it. */
export const NVML = {
  success: 0,
  uninitialized: 1,
  not_supported: 3,
  insufficient_size: 7,
  driver_not_loaded: 9,
  function_not_found: 13,
  gpu_lost: 15,
  reset_required: 16,
  version_mismatch: 25,
} as const;

const DEVICES = 'the user that runs the sidecar must be able to open /dev/nvidiactl and /dev/nvidia*';

const MEANINGS: Readonly<Record<number, Meaning>> = {
  1: { reason: 'nvml_error', again: 'retry', words: 'NVML was shut down; it is opened again at the next request' },
  2: { reason: 'nvml_error', again: 'stop', words: 'NVML refused an argument; this driver is not one we know' },
  3: {
    reason: 'unsupported_gpu',
    again: 'stop',
    words: 'this GPU or driver cannot attest; a Hopper or newer is needed',
  },
  4: { reason: 'no_permission', again: 'stop', words: `no permission; ${DEVICES}` },
  6: { reason: 'no_gpu', again: 'stop', words: 'no such GPU; look at nvidia-smi -L' },
  7: { reason: 'nvml_error', again: 'stop', words: 'the driver answers with more than we know; update the sidecar' },
  8: { reason: 'gpu_lost', again: 'stop', words: 'a GPU lacks power; check its cables' },
  9: { reason: 'no_driver', again: 'stop', words: 'the NVIDIA driver is not loaded; look at nvidia-smi and dmesg' },
  10: { reason: 'nvml_timeout', again: 'retry', words: 'the GPU did not answer in time' },
  11: { reason: 'gpu_lost', again: 'stop', words: "the kernel has a problem with a GPU's interrupts; look at dmesg" },
  12: {
    reason: 'no_driver',
    again: 'stop',
    words: "one of the driver's libraries is missing; install the driver again",
  },
  13: { reason: 'unsupported_gpu', again: 'stop', words: 'this driver cannot attest; install 535.86 or newer' },
  14: { reason: 'gpu_lost', again: 'stop', words: "a GPU's infoROM is damaged; it must be repaired by its maker" },
  15: { reason: 'gpu_lost', again: 'stop', words: 'a GPU fell off the bus; reset it or restart the machine' },
  16: { reason: 'gpu_lost', again: 'stop', words: 'a GPU needs a reset: nvidia-smi -r, or restart the machine' },
  17: { reason: 'no_permission', again: 'stop', words: `the operating system keeps us from the GPU; ${DEVICES}` },
  18: {
    reason: 'no_driver',
    again: 'stop',
    words:
      "the driver's library and kernel module differ in version; restart the machine, or give the container the host's library",
  },
  19: { reason: 'gpu_busy', again: 'retry', words: 'the GPU is in use' },
  20: { reason: 'gpu_busy', again: 'retry', words: 'the driver is out of memory' },
  21: { reason: 'gpu_busy', again: 'retry', words: 'the driver has no data yet' },
  23: { reason: 'gpu_busy', again: 'retry', words: 'the driver is out of resources' },
  27: { reason: 'gpu_busy', again: 'retry', words: 'the system is not ready yet' },
  28: { reason: 'no_gpu', again: 'stop', words: 'no GPU was found; look at nvidia-smi -L' },
  29: { reason: 'gpu_busy', again: 'retry', words: 'the GPU is in a state in which it cannot answer' },
  999: { reason: 'nvml_error', again: 'retry', words: 'the driver failed without saying why; look at dmesg' },
};

const UNKNOWN: Meaning = { reason: 'nvml_error', again: 'stop', words: 'an error that we do not know' };

/** An NVML call returned an error. */
export class NvmlError extends AttesterError {
  readonly nvml_code: number;
  constructor(function_name: string, nvml_code: number) {
    const { reason, again, words } = MEANINGS[nvml_code] ?? UNKNOWN;
    const detail = `${words} (${function_name}: NVML error ${nvml_code})`;
    super('collection_failed', detail, again === 'retry', { reason });
    this.nvml_code = nvml_code;
  }
}

/** The node cannot attest and an operator must act; or, with `retry`, the GPU was busy. */
export function refusal(reason: Reason, words: string, again: Again = 'stop', options?: ErrorOptions): AttesterError {
  return failed('collection_failed', reason, words, again, options);
}

// What NSCQ's return codes mean to an operator.

/** nscq_rc_t below zero, as NVIDIA's header numbers it. Values above zero are warnings. */
const NSCQ_MEANINGS: Readonly<Record<number, Meaning>> = {
  [-1]: {
    reason: 'unsupported_switch',
    again: 'stop',
    words: 'this driver cannot attest switches; install one for protected PCIe',
  },
  [-2]: { reason: 'switch_lost', again: 'stop', words: 'the switch is no longer there; look at dmesg' },
  [-3]: {
    reason: 'switch_lost',
    again: 'stop',
    words: 'the switch cannot be opened; look at dmesg and at the rights of /dev/nvidia-nvswitch*',
  },
  [-6]: {
    reason: 'no_nscq',
    again: 'stop',
    words: 'libnvidia-nscq and the driver differ in version; install the library of its branch',
  },
  [-7]: { reason: 'no_driver', again: 'stop', words: "the switches' driver does not answer; look at dmesg" },
  [-8]: { reason: 'switch_busy', again: 'retry', words: 'the switch did not answer in time' },
};
const NSCQ_UNKNOWN: Meaning = {
  reason: 'nscq_error',
  again: 'retry',
  words: 'the driver failed without saying why; look at dmesg',
};

/** An NSCQ call returned an error. The switches' driver is opened again after it. */
export class NscqError extends AttesterError {
  constructor(path: string, nscq_code: number) {
    const { reason, again, words } = NSCQ_MEANINGS[nscq_code] ?? NSCQ_UNKNOWN;
    super('collection_failed', `${words} (${path}: NSCQ error ${nscq_code})`, again === 'retry', { reason });
  }
}
