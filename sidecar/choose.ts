// Chooses what the configuration names: the attester, and the collector of the processor's evidence.
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Logger } from 'pino';
import type { Nonce } from '../proto/attestation/raw.ts';
import { createNativeAttester } from './attesters/native/native.ts';
import { createNrasAttester } from './attesters/nras/nras.ts';
import { createNvattestAttester } from './attesters/nvattest/nvattest.ts';
import { createNvtrustAttester } from './attesters/nvtrust/nvtrust.ts';
import { type Attester, AttesterError, failed, type Reason } from './common/attester.ts';
import { AZURE_TPM, ConfigError, type SidecarConfig, withServiceKey } from './common/config.ts';
import { shared, until } from './common/lock.ts';
import type { ProgramEnvironment } from './common/program.ts';
import { createAmdEndorsements, readCertificateTable } from './cpu/amd.ts';
import { createAzureCollector } from './cpu/azure.ts';
import type { CpuCollector } from './cpu/cpu-collector.ts';
import { createIntelCollateral } from './cpu/intel.ts';
import { createTsmCollector } from './cpu/tsm.ts';
import { refusal } from './driver/errors.ts';
import { SWITCH_CONTROL } from './driver/nscq.ts';
import { readsNewFormat } from './driver/versions.ts';

/** @throws {AttesterError} when the named attester cannot run here. @throws {ConfigError} for the simulated one. */
export async function createAttester(config: SidecarConfig, log: Logger): Promise<Attester> {
  const nvml = {
    library: config.nvml_library,
    switch_library: config.nscq_library,
    parallel_calls: config.nvml_parallel_calls,
  };
  const services = { rim_url: config.rim_url ?? undefined, ocsp_url: config.ocsp_url ?? undefined };
  const withKey = (environment: ProgramEnvironment, name: string) =>
    withServiceKey(environment, name, config.nras_service_key_file);
  const nvattest = () => ({
    environment: withKey(config.nvattest_environment, 'NV_ATTESTATION_SERVICE_KEY'),
    program: config.nvattest,
    ...services,
  });
  const native = () =>
    createNativeAttester({
      ...nvml,
      ...services,
      cache_dir: config.collateral_dir,
      onFailure: (message) => log.warn({ reason: message }, 'native'),
    });
  const nvtrust = () =>
    createNvtrustAttester({
      venv: config.nvtrust_venv,
      environment: withKey(config.worker_environment, 'NVIDIA_ATTESTATION_SERVICE_KEY'),
      workers: config.nvtrust_workers,
      cache_dir: config.collateral_dir,
      onFailure: (error) => log.warn({ reason: error.message }, 'nvtrust worker'),
    });
  const onVersion = (version: string) => log.info({ version }, 'nvattest');
  const onChoice = (attester: string, reason: string) => log.info({ attester, reason }, 'attester chosen');
  switch (config.attester) {
    case 'simulated':
      throw new ConfigError(
        'ATTESTER=simulated is for demo/twin/main.ts, which the image of the target demo-sidecar runs',
      );
    case 'nvtrust':
      return inOrder(
        [
          { name: 'nvtrust', make: nvtrust },
          { name: 'nvattest', make: () => createNvattestAttester({ ...nvattest(), onVersion: refuseUnlessNew }) },
        ],
        NOTHING,
        onChoice,
      );
    case 'auto':
      return inOrder(
        [
          { name: 'nvtrust', make: nvtrust },
          { name: 'nvattest', make: () => withoutSwitches(() => createNvattestAttester({ ...nvattest(), onVersion })) },
          { name: 'native', make: native },
        ],
        INSTALLATION_FAILURES,
        onChoice,
      );
    case 'nvattest':
      return createNvattestAttester({ ...nvattest(), onVersion });
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

/** Failures of this installation, which the next attester may not share. All others are the machine's, and every attester has them. */
const INSTALLATION_FAILURES: ReadonlySet<Reason | null> = new Set<Reason>([
  'no_sdk',
  'worker_not_started',
  'no_nvattest',
  'nvattest_old',
  'nvattest_build',
  'nvattest_usage',
  'protected_pcie',
]);
/** A named attester must run. */
const NOTHING: typeof INSTALLATION_FAILURES = new Set();

/** nvattest's evidence is of GPUs only, and behind NVSwitches these must be attested too. */
async function withoutSwitches(make: () => Promise<Attester>): Promise<Attester> {
  if (existsSync(SWITCH_CONTROL)) throw refusal('protected_pcie', 'nvattest attests no NVSwitches here');
  return make();
}

function refuseUnlessNew(version: string): void {
  if (readsNewFormat(version) === false)
    throw refusal(
      'nvattest_old',
      `nvattest ${version} cannot read this driver's reports either; install 2.0.0 or newer`,
    );
}

// Attesters in order of preference: NVIDIA's Python SDK while it reads this driver's reports, then nvattest, then native.

interface Candidate {
  readonly name: string;
  readonly make: () => Promise<Attester>;
}

interface Choice {
  readonly index: number;
  readonly attester: Attester;
  /** Why the ones before it were passed over. */
  readonly passed: readonly string[];
}

/**
 * The first candidate that can run. It gives way to the next one when it meets a report in a format that it cannot read (`new_format`):
 * the report's own magic decides, for no driver version is known to be the first.
 * @param passes the failures of `make` for which the next candidate is tried.
 * @param onChoice called at each choice, for the log. @throws {AttesterError}
 */
export async function inOrder(
  candidates: readonly Candidate[],
  passes: ReadonlySet<Reason | null>,
  onChoice: (name: string, reason: string) => void,
): Promise<Attester> {
  async function choose(from: number, before: readonly string[]): Promise<Choice> {
    const passed = [...before];
    for (let index = from; ; index++) {
      const { name, make } = candidates[index] as Candidate;
      try {
        return { index, attester: await make(), passed };
      } catch (error) {
        if (!(error instanceof AttesterError)) throw error;
        passed.push(`${name}: ${error.message}`);
        if (passes.has(error.reason) && index + 1 < candidates.length) continue;
        if (passed.length === 1) throw error;
        const { code, reason, retryable } = error;
        throw new AttesterError(code, passed.join('; '), retryable, { reason, cause: error });
      }
    }
  }
  const reasonOf = ({ passed }: Choice) => (passed.length === 0 ? 'the first choice' : passed.join('; '));

  let current = await choose(0, []);
  let closed = false;
  onChoice(current.attester.name, reasonOf(current));

  /** Called again at each attestation until the next candidate can run. */
  async function giveWay(failure: AttesterError): Promise<void> {
    const { attester, index, passed } = current;
    const next = await choose(index + 1, [...passed, `${attester.name}: ${failure.message}`]).catch(
      (cause: unknown) => {
        if (!(cause instanceof AttesterError)) throw cause;
        throw failed(failure.code, 'new_format', cause.words, 'stop', { cause });
      },
    );
    if (closed) return next.attester.close();
    current = next;
    onChoice(next.attester.name, reasonOf(next));
    await attester.close();
  }

  return {
    get name() {
      return current.attester.name;
    },
    get reason() {
      return reasonOf(current);
    },
    get devices() {
      return current.attester.devices;
    },
    get simulated() {
      return current.attester.simulated;
    },
    get token_keys() {
      return current.attester.token_keys;
    },
    async attest(nonce: Nonce, signal: AbortSignal) {
      for (;;) {
        try {
          return await current.attester.attest(nonce, signal);
        } catch (error) {
          if (!(error instanceof AttesterError) || error.reason !== 'new_format') throw error;
          if (current.index + 1 >= candidates.length) throw error;
          await giveWay(error);
        }
      }
    },
    async close() {
      closed = true;
      await current.attester.close();
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
    get reason() {
      return made?.reason;
    },
    async attest(nonce: Nonce, signal: AbortSignal, device?: number) {
      const attester = made ?? (await until(create(), signal));
      return attester.attest(nonce, signal, device);
    },
    close: async () => made?.close(),
  };
}

// The processor's evidence.

export function createCpuCollector(config: SidecarConfig, log: Logger): CpuCollector {
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
