// NSCQ as this sidecar uses it: which switches there are, whether they are locked, and a switch's chain and report over a nonce.
import { refusal } from '../nvml/failure.ts';
import { NONCE_BYTES, readText } from '../nvml/structures.ts';
import { NscqError } from './failure.ts';
import type { NscqKind, NscqLibrary, NscqValues, Observed } from './library.ts';

/** One call at a time: a session keeps the nonce that its next report is over. Every method throws {AttesterError}. */
export interface Nscq {
  open(): Promise<void>;
  close(): Promise<void>;
  /** By label, in the driver's order. */
  switches(): Promise<readonly string[]>;
  /** nscq_arch_t: 2 LS10. */
  architecture(label: string): Promise<number>;
  /** Trusted NVLink is on, and locked until the switch is reset. */
  locked(label: string): Promise<boolean>;
  /** PEM, leaf first. */
  attestationChain(label: string): Promise<string>;
  report(label: string, nonce: Uint8Array): Promise<Uint8Array>;
}

const UUIDS = '/drv/nvswitch/{device}/uuid';
/** nscq_tnvl_status_t, bit by bit as NVIDIA's verifier reads it. */
const TNVL = 1;
const LOCKED = 2;

export function createNscq(library: NscqLibrary): Nscq {
  const checked = (path: string, code: number) => {
    if (code < 0) throw new NscqError(path, code);
  };

  async function observed<K extends NscqKind>(kind: K, path: string): Promise<readonly Observed<NscqValues[K]>[]> {
    const { code, answers } = await library.observe(kind, path);
    checked(path, code);
    for (const answer of answers) checked(path, answer.code);
    return answers;
  }

  async function only<K extends NscqKind>(kind: K, label: string, what: string): Promise<NscqValues[K]> {
    const path = `/${label}/${what}`;
    const [answer, ...more] = await observed(kind, path);
    if (answer === undefined || answer.label !== label || more.length > 0)
      throw refusal('nscq_error', `${path} was not answered by that switch alone`);
    return answer.value;
  }

  async function bytes(kind: 'chain' | 'report', label: string, what: string): Promise<Uint8Array> {
    const value = await only(kind, label, what);
    if (value.length === 0) throw refusal('nscq_error', `${what} of ${label} has a size that cannot be`);
    return value;
  }

  return {
    async open() {
      checked('nscq_session_create', await library.create());
    },
    close: () => library.destroy(),
    switches: async () => (await observed('uuid', UUIDS)).map(({ value }) => value),
    architecture: (label) => only('byte', label, 'id/arch'),
    async locked(label) {
      const status = await only('byte', label, 'config/pcie_mode');
      return status > 0 && (status & TNVL) !== 0 && (status & LOCKED) !== 0;
    },
    attestationChain: async (label) => readText(Buffer.from(await bytes('chain', label, 'config/certificate'))),
    async report(label, nonce) {
      if (nonce.length !== NONCE_BYTES) throw new RangeError(`a nonce has ${NONCE_BYTES} bytes`);
      checked('nscq_session_set_input', await library.setInput(Buffer.from(nonce)));
      return bytes('report', label, 'config/attestation_report');
    },
  };
}
