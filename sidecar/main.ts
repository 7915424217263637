// The sidecar process: owns the GPU and serves gateways on a Unix socket.
import { NO_ARGUMENTS } from '../node/settings.ts';
import { createAttester, createCpuCollector } from './choose.ts';
import { ConfigError } from './common/config.ts';
import { runSidecar } from './run.ts';

await runSidecar(process.env, () => {
  if (process.argv.length > 2) throw new ConfigError(NO_ARGUMENTS);
  return { createAttester, createCpuCollector };
});
