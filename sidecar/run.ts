// The sidecar's process over a machine: this one's hardware, or the simulated one of demo/twin.
import type { Logger } from 'pino';
import { where } from '../node/log.ts';
import { unavailableAttester } from './choose.ts';
import { type Attester, AttesterError, failed } from './common/attester.ts';
import { ConfigError, loadConfig, readLaunchFile, type SidecarConfig } from './common/config.ts';
import type { CpuCollector } from './cpu/cpu-collector.ts';
import { createReadReady, createReadyGuard } from './driver/ready-guard.ts';
import { createLog, SocketError, startServer } from './server/server.ts';

/** Who signs. */
export interface Machine {
  /** @throws {AttesterError} when it cannot run. @throws {ConfigError} */
  createAttester(config: SidecarConfig, log: Logger): Promise<Attester>;
  /** Called unless CPU_EVIDENCE is off. `launch`: the launch file's text; null without one. @throws {AttesterError} */
  createCpuCollector(config: SidecarConfig, log: Logger, launch: string | null): CpuCollector | Promise<CpuCollector>;
}

/** Resolves when the sidecar listens. A start that is not allowed ends the process with one line. */
export async function runSidecar(env: NodeJS.ProcessEnv, machineOf: () => Machine): Promise<void> {
  try {
    const machine = machineOf();
    const config = loadConfig(env);
    const log = createLog(config.log_level);
    endOnUncaught(log);
    const { attester, unavailable } = await attesterOrReason(machine, config, log);
    const launch = await readLaunchFile(config);
    const cpu =
      config.cpu_evidence === 'off'
        ? null
        : {
            collector: await machine.createCpuCollector(config, log, launch),
            launch,
            required: config.cpu_evidence === 'required',
          };
    const server = await startServer(attester, { ...config, unavailable, cpu }, log);
    log.info(
      {
        socket: config.inherited_fd === null ? config.sidecar_socket : 'inherited',
        attester: attester.name,
        devices: attester.devices,
        simulated: attester.simulated !== null,
      },
      'listening',
    );
    const stop = (signal: string) => {
      log.info({ signal }, 'stopping');
      void server.close().then(() => process.exit(0));
    };
    process.once('SIGTERM', stop).once('SIGINT', stop);
    // A sidecar that a launcher started ends with it.
    process.once('disconnect', () => stop('disconnect'));
  } catch (error) {
    if (!(error instanceof ConfigError || error instanceof SocketError || error instanceof AttesterError)) throw error;
    console.error(`sidecar: ${error.message}`);
    process.exit(1);
  }
}

/** Node would print an uncaught error's message, which can quote raw. */
function endOnUncaught(log: Logger): void {
  process.on('uncaughtException', (error) => {
    log.fatal(where(error), 'uncaught error');
    process.exit(1);
  });
}

/** A simulated attester that cannot start ends the process. Hardware that cannot attest yet may be repaired meanwhile. */
async function attesterOrReason(machine: Machine, config: SidecarConfig, log: Logger) {
  const choose = async () => {
    const attester = await machine.createAttester(config, log);
    if (config.signers === 'all') return attester;
    if (!attester.devices.some(({ arch }) => arch === 'LS10')) return attester;
    await attester.close();
    throw failed(
      'collection_failed',
      'protected_pcie',
      'GPUs behind NVSwitches sign together: SIGNERS=any is not for them',
      'stop',
    );
  };
  if (config.attester === 'simulated') return { attester: await choose(), unavailable: null };
  const guard = createReadyGuard(createReadReady(config.nvml_library, config.nvml_parallel_calls));
  const make = () => guard.attester(choose);
  try {
    return { attester: await make(), unavailable: null };
  } catch (error) {
    if (!(error instanceof AttesterError)) throw error;
    return { attester: unavailableAttester(config.attester, make), unavailable: error };
  }
}
