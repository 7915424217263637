// Chooses the attester that the configuration names.
import type { Logger } from 'pino';
import { type Attester, AttesterError } from '../attester.ts';
import type { SidecarConfig } from '../config.ts';
import { createNvtrustAttester } from './nvtrust.ts';
import { createSimulatedAttester } from './simulated.ts';

/** @throws {AttesterError} when the named attester cannot run here. */
export async function createAttester(config: SidecarConfig, log: Logger): Promise<Attester> {
  if (config.attester === 'simulated')
    return createSimulatedAttester({
      rootDir: config.simulated_root_dir,
      collectionMs: config.simulated_collection_ms,
    });
  if (config.attester === 'nvtrust')
    return createNvtrustAttester({
      venv: config.nvtrust_venv,
      environment: config.worker_environment,
      workers: config.nvtrust_workers,
      onTrouble: (error) => log.warn({ reason: error.message }, 'worker'),
    });
  throw new AttesterError('collection_failed', `ATTESTER=${config.attester} is not part of this version`, false);
}
