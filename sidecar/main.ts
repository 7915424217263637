// The sidecar process: owns the GPU, answers gateways on a Unix socket.
import { pino } from 'pino';
import { AttesterError } from './attester.ts';
import { createAttester } from './attesters/index.ts';
import { ConfigError, loadConfig } from './config.ts';
import { startServer } from './server.ts';
import { SocketError } from './socket.ts';

try {
  const config = loadConfig(process.env);
  const log = pino({ name: 'sidecar', level: config.log_level });
  const attester = await createAttester(config);
  const server = await startServer(attester, config, log);
  log.info(
    {
      socket: config.socket_path,
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
} catch (error) {
  if (!(error instanceof ConfigError || error instanceof SocketError || error instanceof AttesterError)) throw error;
  console.error(`sidecar: ${error.message}`);
  process.exit(1);
}
