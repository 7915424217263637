// Prints every module that a gateway without tracing loads; its argument is a socket that nobody listens on.
import { registerHooks } from 'node:module';

registerHooks({
  load(url, context, next) {
    console.log(url);
    return next(url, context);
  },
});
const { buildApp } = await import('../../gateway/app.ts');
const { loadConfig } = await import('../../gateway/base/config.ts');
const { createLog } = await import('../../gateway/telemetry/log.ts');
const env = { BACKEND_URL: 'http://127.0.0.1:1/v1', SIDECAR_SOCKET: process.argv[2] };
await buildApp(loadConfig(env), createLog('silent')).close();
process.exit(0);
