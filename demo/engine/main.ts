// The demo engine as a process of its own: configuration in, a listening server out, a clean end.
import { ConfigError, loadConfig } from './config.ts';
import { startEngine } from './server.ts';

try {
  const config = loadConfig(process.env);
  const engine = await startEngine({ host: config.host, port: config.port });
  if (config.talks) console.log(`demo engine: ${engine.url}/v1`);
  const stop = () => void engine.close().then(() => process.exit(0));
  process.once('SIGTERM', stop).once('SIGINT', stop).once('disconnect', stop);
} catch (error) {
  const { code } = error as NodeJS.ErrnoException;
  if (!(error instanceof ConfigError) && code === undefined) throw error;
  console.error(`demo engine: ${error instanceof ConfigError ? error.message : `cannot listen: ${code}`}`);
  process.exit(1);
}
