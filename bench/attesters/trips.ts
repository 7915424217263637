// A sidecar in this process with an attester of choice, and somebody who asks it.
import type { Attester } from '../../sidecar/common/attester.ts';
import { startSidecar, temporaryFolder } from '../../test/support/harness.ts';
import { connectTo } from '../trip.ts';

const RAW_BYTES = 1024;

export interface Trips {
  /** Milliseconds that one attestation took. */
  once(): Promise<number>;
  close(): Promise<void>;
}

/** `root`: the test root under which the attester's devices are certified. */
export async function startTrips(attester: Attester, root: string): Promise<Trips> {
  const folder = temporaryFolder();
  const sidecar = await startSidecar(folder, { attester: { ...attester, simulated: { root } } });
  const asker = await connectTo(sidecar.socket);
  return {
    once: () => asker.trip(RAW_BYTES),
    async close() {
      asker.close();
      await sidecar.close();
      folder.remove();
    },
  };
}
