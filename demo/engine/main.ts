// The demo engine as a process of its own: configuration in, a listening server out, a clean end. Arguments: the entry of node-llama-cpp
// and a model's file, for a real model beside the demo's.
import { ConfigError, loadConfig } from './config.ts';
import { createEngine } from './engine.ts';
import { LlamaError, loadLlama } from './llama.ts';
import { startEngine } from './server.ts';

try {
  const config = loadConfig(process.env);
  const [, , library, file] = process.argv;
  const demo = createEngine();
  const llama = library && file ? [createEngine({ llama: await loadLlama(library, file) })] : [];
  const engine = await startEngine({ host: config.host, port: config.port, engines: [...llama, demo] });
  if (config.talks) console.log(`demo engine: ${engine.url}/v1`);
  const stop = () => void engine.close().then(() => process.exit(0));
  process.once('SIGTERM', stop).once('SIGINT', stop).once('disconnect', stop);
} catch (error) {
  const { code } = error as NodeJS.ErrnoException;
  const known = error instanceof ConfigError || error instanceof LlamaError;
  if (!known && code === undefined) throw error;
  console.error(`demo engine: ${known ? error.message : `cannot listen: ${code}`}`);
  process.exit(1);
}
