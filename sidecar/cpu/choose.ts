// Chooses the collector of the processor's evidence, as configured.
import { hash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Logger } from 'pino';
import { shared, until } from '../common/lock.ts';
import { AZURE_TPM, type SidecarConfig } from '../config.ts';
import { createAmdEndorsements, readCertificateTable } from './amd.ts';
import { createAzureCollector } from './azure.ts';
import type { CpuCollector } from './collector.ts';
import { createIntelCollateral } from './intel.ts';
import { createSimulatedCpu } from './simulated/simulated.ts';
import { createTsmCollector } from './tsm.ts';

/** @param launch the launch file's text; null without one. @returns null: CPU_EVIDENCE is off. */
export async function createCpuCollector(
  config: SidecarConfig,
  launch: string | null,
  log: Logger,
): Promise<CpuCollector | null> {
  if (config.cpu_evidence === 'off') return null;
  if (config.attester === 'simulated')
    return createSimulatedCpu({
      type: config.simulated_cpu,
      rootDir: config.simulated_root_dir,
      collectionMs: config.simulated_cpu_ms,
      launch: launch === null ? null : hash('sha256', launch, 'buffer'),
    });
  const options = {
    cache_dir: join(config.collateral_dir, 'cpu'),
    fetch: globalThis.fetch,
    onFailure: (message: string) => log.warn({ reason: message }, 'endorsements of the processor'),
  };
  const amd = createAmdEndorsements({ ...options, kds_url: config.kds_url });
  const intel = createIntelCollateral({ ...options, pcs_url: config.pcs_url });
  const environment = { PATH: config.worker_environment.PATH ?? '', TPM2TOOLS_TCTI: `device:${AZURE_TPM}` };
  return lazyCollector(async () => {
    // Behind Azure's paravisor there is a TPM in place of configfs-tsm.
    if (!existsSync(dirname(config.tsm_entry)) && existsSync(AZURE_TPM))
      return createAzureCollector({ amd, intel, fetch: globalThis.fetch, environment });
    return createTsmCollector({
      entry: config.tsm_entry,
      endorse({ type, report, auxblob }, signal) {
        if (type !== 'SEV_SNP') return intel.endorse({ report }, signal);
        return amd.endorse({ report, certificates: readCertificateTable(auxblob, options.onFailure) }, signal);
      },
    });
  });
}

/** Makes the collector at the first report, and tries again at later ones until it succeeds: a driver may be loaded later. */
function lazyCollector(make: () => Promise<CpuCollector>): CpuCollector {
  let made: CpuCollector | null = null;
  const create = shared(async () => {
    made = await make();
    return made;
  });
  return {
    get type() {
      return made?.type ?? null;
    },
    simulated: null,
    async collect(reportData, signal) {
      const collector = made ?? (await until(create(), signal));
      return collector.collect(reportData, signal);
    },
  };
}
