// Chooses the attester that the configuration names.
import { readFile } from 'node:fs/promises';
import type { Logger } from 'pino';
import type { Attester } from '../attester.ts';
import type { SidecarConfig } from '../config.ts';
import { chooseAttester, DRIVER_VERSION_FILE, readsNewFormat } from '../nvattest/choice.ts';
import { refusal } from '../nvml/failure.ts';
import { createNativeAttester } from './native.ts';
import { createNrasAttester } from './nras.ts';
import { createNvattestAttester } from './nvattest.ts';
import { createNvtrustAttester } from './nvtrust.ts';
import { createSimulatedAttester } from './simulated.ts';
import { withSuccessor } from './successor.ts';

/** @throws {AttesterError} when the named attester cannot run here. */
export async function createAttester(config: SidecarConfig, log: Logger): Promise<Attester> {
  const nvml = {
    library: config.nvml_library,
    switch_library: config.nscq_library,
    parallel_calls: config.nvml_parallel_calls,
  };
  const services = { rim_url: config.rim_url ?? undefined, ocsp_url: config.ocsp_url ?? undefined };
  const nvattest = { environment: config.nvattest_environment, program: config.nvattest, ...services };
  switch (await chosen(config, log)) {
    case 'simulated':
      return createSimulatedAttester({
        rootDir: config.simulated_root_dir,
        collectionMs: config.simulated_collection_ms,
      });
    case 'nvtrust':
      return withSuccessor(
        await createNvtrustAttester({
          venv: config.nvtrust_venv,
          environment: config.worker_environment,
          workers: config.nvtrust_workers,
          onTrouble: (error) => log.warn({ reason: error.message }, 'nvtrust worker'),
        }),
        () => createNvattestAttester({ ...nvattest, onVersion: refuseUnlessNew }),
        () => log.warn('nvtrust cannot read the reports of this driver: nvattest is used instead'),
      );
    case 'nvattest':
      return createNvattestAttester({ ...nvattest, onVersion: (version) => log.info({ version }, 'nvattest') });
    case 'native':
      return createNativeAttester({
        ...nvml,
        ...services,
        cache_dir: config.collateral_dir,
        onTrouble: (message) => log.warn({ reason: message }, 'native'),
      });
    case 'nras':
      return createNrasAttester({
        ...nvml,
        url: config.nras_url ?? undefined,
        service_key_file: config.nras_service_key_file ?? undefined,
      });
  }
}

function refuseUnlessNew(version: string): void {
  if (readsNewFormat(version) === false)
    throw refusal(
      'nvattest_old',
      `nvattest ${version} cannot read this driver's reports either; install 2.0.0 or newer`,
    );
}

/** Drivers with the new report format choose for themselves: nvtrust's end of support came before them. */
async function chosen(config: SidecarConfig, log: Logger): Promise<SidecarConfig['attester']> {
  const driver = await readFile(DRIVER_VERSION_FILE, 'utf8').catch(() => null);
  return chooseAttester(config.attester, driver, (version) =>
    log.warn({ driver: version }, 'nvtrust cannot read the reports of this driver: nvattest is used instead'),
  );
}
