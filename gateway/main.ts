// The gateway process: configuration in, a server or the primary of several workers out.
import type { Logger } from 'pino';
import { where } from '../proto/log.ts';
import { isMember } from './cluster/member.ts';
import { runPrimary } from './cluster/primary.ts';
import { ConfigError, loadConfig, NO_ARGUMENTS } from './config.ts';
import { checkMemory } from './limits/memory.ts';
import { serve } from './serve.ts';
import { createLog } from './telemetry/log.ts';

try {
  if (process.argv.length > 2) throw new ConfigError(NO_ARGUMENTS);
  const config = loadConfig(process.env);
  const log = createLog(config.log_level);
  endOnUncaught(log);
  if (!isMember) checkMemory(config, log);
  if (config.workers > 1 && !isMember) runPrimary(config, log);
  else await serve(config, log);
} catch (error) {
  if (!(error instanceof ConfigError)) throw error;
  console.error(`gateway: ${error.message}`);
  process.exit(1);
}

/** Node would print the message of an error that nobody caught, and a message can quote a prompt. */
function endOnUncaught(log: Logger): void {
  process.on('uncaughtException', (error) => {
    log.fatal(where(error), 'uncaught error');
    process.exit(1);
  });
}
