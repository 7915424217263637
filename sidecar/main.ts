// The sidecar process: owns the GPU and serves gateways on a Unix socket.
import type { Logger } from 'pino';
import { where } from '../node/log.ts';
import { NO_ARGUMENTS } from '../node/settings.ts';
import { createAttester, createCpuCollector, unavailableAttester } from './choose.ts';
import { AttesterError, failed } from './common/attester.ts';
import { ConfigError, loadConfig, readLaunchFile, type SidecarConfig } from './common/config.ts';
import { createReadReady, createReadyGuard } from './driver/ready-guard.ts';
import { createLog, SocketError, startServer } from './server/server.ts';

try {
  if (process.argv.length > 2) throw new ConfigError(NO_ARGUMENTS);
  const config = loadConfig(process.env);
  const log = createLog(config.log_level);
  endOnUncaught(log);
  const { attester, unavailable } = await attesterOrReason(config, log);
  const launch = readLaunchFile(config);
  const collector = await createCpuCollector(config, launch, log);
  const cpu = collector === null ? null : { collector, launch, required: config.cpu_evidence === 'required' };
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

/** Node would print an uncaught error's message, which can quote raw. */
function endOnUncaught(log: Logger): void {
  process.on('uncaughtException', (error) => {
    log.fatal(where(error), 'uncaught error');
    process.exit(1);
  });
}

/** A simulated attester that cannot start ends the process. Hardware that cannot attest yet may be repaired meanwhile. */
async function attesterOrReason(config: SidecarConfig, log: Logger) {
  const choose = async () => {
    const attester = await createAttester(config, log);
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
