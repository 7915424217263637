// Chooses what the configuration names: the attester, and the collector of the processor's evidence.
import { hash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Logger } from 'pino';
import type { Nonce } from '../proto/attestation/raw.ts';
import { createNativeAttester } from './attesters/native/native.ts';
import { createNrasAttester } from './attesters/nras/nras.ts';
import { createNvattestAttester } from './attesters/nvattest/nvattest.ts';
import { createNvtrustAttester } from './attesters/nvtrust/nvtrust.ts';
import { type Attester, AttesterError, failed } from './common/attester.ts';
import { AZURE_TPM, ConfigError, type SidecarConfig } from './common/config.ts';
import { shared, until } from './common/lock.ts';
import { createAmdEndorsements, readCertificateTable } from './cpu/amd.ts';
import { createAzureCollector } from './cpu/azure.ts';
import type { CpuCollector } from './cpu/collector.ts';
import { createIntelCollateral } from './cpu/intel.ts';
import { createTsmCollector } from './cpu/tsm.ts';
import { refusal } from './driver/errors.ts';
import { DRIVER_VERSION_FILE, driverVersionIn, needsNvattest, readsNewFormat } from './driver/versions.ts';

/** @throws {AttesterError} when the named attester cannot run here. @throws {ConfigError} without the simulators. */
export async function createAttester(config: SidecarConfig, log: Logger): Promise<Attester> {
  const nvml = {
    library: config.nvml_library,
    switch_library: config.nscq_library,
    parallel_calls: config.nvml_parallel_calls,
  };
  const services = { rim_url: config.rim_url ?? undefined, ocsp_url: config.ocsp_url ?? undefined };
  const nvattest = { environment: config.nvattest_environment, program: config.nvattest, ...services };
  const native = () =>
    createNativeAttester({
      ...nvml,
      ...services,
      cache_dir: config.collateral_dir,
      onFailure: (message) => log.warn({ reason: message }, 'native'),
    });
  const nvtrust = async () =>
    withSuccessor(
      await createNvtrustAttester({
        venv: config.nvtrust_venv,
        environment: config.worker_environment,
        workers: config.nvtrust_workers,
        onFailure: (error) => log.warn({ reason: error.message }, 'nvtrust worker'),
      }),
      () => createNvattestAttester({ ...nvattest, onVersion: refuseUnlessNew }),
      () => log.warn('nvtrust cannot read the reports of this driver: nvattest is used instead'),
    );
  switch (await chosen(config, log)) {
    case 'simulated': {
      const { createSimulatedAttester } = await ofTheDemo(import('../demo/twin/gpu.ts'));
      return createSimulatedAttester({
        rootDir: config.simulated_root_dir,
        collectionMs: config.simulated_collection_ms,
        devices: config.simulated_gpus,
      });
    }
    case 'nvtrust':
      return nvtrust();
    case 'auto':
      return nativeOrElse(native, nvtrust, (attester, reason) => log.info({ attester, reason }, 'ATTESTER=auto'));
    case 'nvattest':
      return createNvattestAttester({ ...nvattest, onVersion: (version) => log.info({ version }, 'nvattest') });
    case 'native':
      return native();
    case 'nras':
      return createNrasAttester({
        ...nvml,
        url: config.nras_url ?? undefined,
        service_key_file: config.nras_service_key_file ?? undefined,
      });
  }
}

/** The simulators, which are loaded only where ATTESTER=simulated. The images for production do not hold them. @throws {ConfigError} */
async function ofTheDemo<T>(module: Promise<T>): Promise<T> {
  return module.catch((cause: NodeJS.ErrnoException) => {
    if (cause.code !== 'ERR_MODULE_NOT_FOUND') throw cause;
    const words = 'ATTESTER=simulated needs demo/twin, which is not here: the image of the target demo-sidecar has it';
    throw new ConfigError(words, { cause });
  });
}

/** Failures of this installation, which another attester does not share. All others are the machine's, so nvtrust would have them too. */
const INSTALLATION_FAILURES = new Set<string | null>(['no_ffi', 'no_nscq']);

/**
 * ATTESTER=auto: `native` wherever the driver's libraries can be called directly: it needs no Python, and no SDK whose support has ended.
 * @param onChoice called with the choice and its reason, for the log.
 */
export async function nativeOrElse(
  native: () => Promise<Attester>,
  nvtrust: () => Promise<Attester>,
  onChoice: (attester: string, reason: string) => void,
): Promise<Attester> {
  try {
    const attester = await native();
    onChoice('native', "the driver's libraries can be asked directly, and our own verifier appraises");
    return attester;
  } catch (error) {
    if (!(error instanceof AttesterError) || !INSTALLATION_FAILURES.has(error.reason)) throw error;
    const attester = await nvtrust().catch((cause: unknown) => {
      if (!(cause instanceof AttesterError)) throw cause;
      const { code, reason, retryable } = cause;
      throw new AttesterError(code, `native: ${error.words}; nvtrust: ${cause.words}`, retryable, { reason, cause });
    });
    onChoice('nvtrust', error.words);
    return attester;
  }
}

function refuseUnlessNew(version: string): void {
  if (readsNewFormat(version) === false)
    throw refusal(
      'nvattest_old',
      `nvattest ${version} cannot read this driver's reports either; install 2.0.0 or newer`,
    );
}

/**
 * `nvattest` in place of `nvtrust` where the driver needs it; any other choice stands.
 * @param driver_version_text the contents of DRIVER_VERSION_FILE; null where it cannot be read.
 * @param onSwitch called with the driver's version when the choice is not the configured one, for the log.
 */
export function chooseAttester<T extends string>(
  configured: T,
  driver_version_text: string | null,
  onSwitch: (driver_version: string) => void,
): T | 'nvattest' {
  if (configured !== 'nvtrust' || driver_version_text === null) return configured;
  const version = driverVersionIn(driver_version_text);
  if (version === null || !needsNvattest(version)) return configured;
  onSwitch(version);
  return 'nvattest';
}

/** Drivers with the new report format are attested by nvattest: the support of nvtrust's SDK ended before they came. */
async function chosen(config: SidecarConfig, log: Logger): Promise<SidecarConfig['attester']> {
  const driver = await readFile(DRIVER_VERSION_FILE, 'utf8').catch(() => null);
  return chooseAttester(config.attester, driver, (version) =>
    log.warn({ driver: version }, 'nvtrust cannot read the reports of this driver: nvattest is used instead'),
  );
}

// An attester with a successor: nvtrust, until a driver signs reports that NVIDIA's Python SDK cannot read; then nvattest, which can.

/**
 * @param make makes the successor; called when `first` fails with `new_format`, and again at each attestation until it returns.
 * @param onSwitch called once, for the log.
 */
export function withSuccessor(first: Attester, make: () => Promise<Attester>, onSwitch: () => void): Attester {
  let current = first;
  let closed = false;

  async function switchOver(first_failure: AttesterError): Promise<void> {
    const next = await make().catch((cause: unknown) => {
      if (!(cause instanceof AttesterError)) throw cause;
      throw failed(first_failure.code, 'new_format', `${first_failure.words}. ${cause.message}`, 'stop', { cause });
    });
    if (closed) return next.close();
    current = next;
    onSwitch();
    await first.close();
  }

  return {
    get name() {
      return current.name;
    },
    get devices() {
      return current.devices;
    },
    get simulated() {
      return current.simulated;
    },
    async attest(nonce: Nonce, signal: AbortSignal) {
      try {
        return await current.attest(nonce, signal);
      } catch (error) {
        if (current !== first || !(error instanceof AttesterError) || error.reason !== 'new_format') throw error;
        await switchOver(error);
        return current.attest(nonce, signal);
      }
    },
    async close() {
      closed = true;
      await current.close();
    },
  };
}

// Stands in for an attester that cannot run yet (no driver, CC mode off): reports the reason, and creates the attester once it can.

/** @param make throws an AttesterError while the attester cannot run. Called at attestations until it returns, once at a time. */
export function unavailableAttester(name: string, make: () => Promise<Attester>): Attester {
  const none: Attester['devices'] = [];
  let made: Attester | null = null;
  /** Creating the attester may take longer than a request waits, so all requests wait for the same creation. */
  const create = shared(async () => {
    made = await make();
    return made;
  });

  return {
    simulated: null,
    get name() {
      return made?.name ?? name;
    },
    get devices() {
      return made?.devices ?? none;
    },
    get token_keys() {
      return made?.token_keys;
    },
    async attest(nonce: Nonce, signal: AbortSignal, device?: number) {
      const attester = made ?? (await until(create(), signal));
      return attester.attest(nonce, signal, device);
    },
    close: async () => made?.close(),
  };
}

// The processor's evidence.

/** @param launch the launch file's text; null without one. @returns null: CPU_EVIDENCE is off. @throws {ConfigError} without the simulators. */
export async function createCpuCollector(
  config: SidecarConfig,
  launch: string | null,
  log: Logger,
): Promise<CpuCollector | null> {
  if (config.cpu_evidence === 'off') return null;
  if (config.attester === 'simulated') {
    const { createSimulatedCpu } = await ofTheDemo(import('../demo/twin/cpu.ts'));
    return createSimulatedCpu({
      type: config.simulated_cpu,
      rootDir: config.simulated_root_dir,
      collectionMs: config.simulated_cpu_ms,
      launch: launch === null ? null : hash('sha256', launch, 'buffer'),
    });
  }
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
