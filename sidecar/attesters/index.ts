// Chooses the attester that the configuration names.
import { type Attester, AttesterError } from '../attester.ts';
import type { SidecarConfig } from '../config.ts';
import { createSimulatedAttester } from './simulated.ts';

/** @throws {AttesterError} when the named attester cannot run here. */
export async function createAttester(config: SidecarConfig): Promise<Attester> {
  if (config.attester === 'simulated')
    return createSimulatedAttester({
      rootDir: config.simulated_root_dir,
      collectionMs: config.simulated_collection_ms,
    });
  throw new AttesterError(
    'collection_failed',
    `ATTESTER=${config.attester} is not part of this version; ATTESTER=simulated is`,
    false,
  );
}
