// What NSCQ's return codes mean to an operator.
import { AttesterError } from '../attester.ts';

type Meaning = readonly [reason: string, again: 'retry' | 'stop', words: string];

/** nscq_rc_t below zero, as NVIDIA's header numbers it. Above zero are warnings. */
const MEANINGS: Readonly<Record<number, Meaning>> = {
  [-1]: ['unsupported_switch', 'stop', 'this driver cannot attest switches; install one for protected PCIe'],
  [-2]: ['switch_lost', 'stop', 'the switch is no longer there; look at dmesg'],
  [-3]: [
    'switch_lost',
    'stop',
    'the switch cannot be opened; look at dmesg and at the rights of /dev/nvidia-nvswitch*',
  ],
  [-6]: ['no_nscq', 'stop', 'libnvidia-nscq and the driver differ in version; install the library of its branch'],
  [-7]: ['no_driver', 'stop', "the switches' driver does not answer; look at dmesg"],
  [-8]: ['switch_busy', 'retry', 'the switch did not answer in time'],
};
const UNKNOWN: Meaning = ['nscq_error', 'retry', 'the driver failed without saying why; look at dmesg'];

/** A call that NSCQ answered with an error; after it the switches' driver is opened anew. */
export class NscqError extends AttesterError {
  constructor(path: string, nscq_code: number) {
    const [reason, again, words] = MEANINGS[nscq_code] ?? UNKNOWN;
    super('collection_failed', `${reason}: ${words} (${path}: NSCQ error ${nscq_code})`, again === 'retry');
  }
}
