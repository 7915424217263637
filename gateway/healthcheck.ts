// Checks that the gateway serves: requests its own /health on the loopback interface. Exits with 0 for a 200, or with 1 and the reason.
import { request as overHttp } from 'node:http';
import { request as overTls } from 'node:https';
import { loadConfig } from './base/config.ts';

const TIMEOUT_MS = 8_000;
const ANY = new Map([
  ['0.0.0.0', '127.0.0.1'],
  ['::', '::1'],
]);

const config = loadConfig(process.env);
const end = (code: 0 | 1, message: string) => {
  console.log(message);
  process.exit(code);
};
// The certificate names the service, not the loopback interface. The address already ensures that this is our own process.
const tls = config.tls !== null;
const request = tls ? overTls : overHttp;
request(
  {
    host: ANY.get(config.host) ?? config.host,
    port: config.port,
    path: '/health',
    timeout: TIMEOUT_MS,
    ...(tls ? { rejectUnauthorized: false } : {}),
  },
  (response) => end(response.statusCode === 200 ? 0 : 1, `/health answers ${response.statusCode}`),
)
  .on('error', (error: NodeJS.ErrnoException) => end(1, `not reachable: ${error.code}`))
  .on('timeout', () => end(1, 'no answer in time'))
  .end();
