// Notices that the driver has torn confidential computing down: one failed report or certificate call makes it set the GPUs' ready
// state to false and end its session with the GPU (open-gpu-kernel-modules, confComputeSetErrorState), until the guest restarts.
import { type Attester, AttesterError } from '../common/attester.ts';
import { shared, withDeadline } from '../common/lock.ts';
import { createNvml, type Nvml, openLibrary } from './nvml.ts';

/** Whether the GPUs accept work; null where that cannot be learnt: no NVML, no koffi, a driver that hangs. */
type ReadReady = () => Promise<boolean | null>;

const READ_MS = 5_000;

/** Reads the ready state through a session of its own with NVML, which counts its sessions. */
export function createReadReady(library: string, max_calls: number): ReadReady {
  let session: Nvml | null = null;
  const open = shared(async () => {
    const nvml = createNvml(openLibrary(library, max_calls));
    await nvml.init();
    session = nvml;
    return nvml;
  });
  const read = async () => (session ?? (await open())).ready();
  const late = () => new Error(`NVML did not answer within ${READ_MS} ms`);
  return () => withDeadline(read(), READ_MS, late).catch(() => null);
}

const LOST =
  'the driver has torn confidential computing down after a failed call (GPUs not ready, dmesg: "ConfCompute: Fatal error hit!"); restart the guest';

/** Once the GPUs were ready and are not after a failure, everything fails with `cc_lost`, and the attester is not called any more. */
interface ReadyGuard {
  /** @throws {AttesterError} cc_lost; else what `make` threw. */
  attester(make: () => Promise<Attester>): Promise<Attester>;
}

export function createReadyGuard(readReady: ReadReady): ReadyGuard {
  let was_ready = false;
  let lost: AttesterError | null = null;

  async function watched<T>(work: () => Promise<T>): Promise<T> {
    if (lost !== null) throw lost;
    // Attestation comes before the first time that somebody sets the GPUs ready.
    was_ready ||= (await readReady()) === true;
    try {
      return await work();
    } catch (cause) {
      if (was_ready && (await readReady()) === false)
        lost ??= new AttesterError('cc_lost', LOST, false, { reason: 'cc_lost', cause });
      throw lost ?? cause;
    }
  }

  return {
    async attester(make) {
      const made = await watched(make);
      return {
        get name() {
          return made.name;
        },
        get reason() {
          return made.reason;
        },
        get devices() {
          return made.devices;
        },
        get simulated() {
          return made.simulated;
        },
        get token_keys() {
          return made.token_keys;
        },
        attest: (nonce, signal, device) => watched(() => made.attest(nonce, signal, device)),
        close: () => made.close(),
      };
    },
  };
}
