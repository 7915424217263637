// Checks that the gateway serves: requests its own /health on the loopback interface. Exits with 0 for a 200, or with 1 and the reason. An
// argument such as `tee,canary` is what /health then requires.
import { request as overHttp } from 'node:http';
import { request as overTls } from 'node:https';
import { loadConfig } from './base/config.ts';

const TIMEOUT_MS = 8_000;
const ANY = new Map([
  ['0.0.0.0', '127.0.0.1'],
  ['::', '::1'],
]);

const config = loadConfig(process.env);
const [required] = process.argv.slice(2);
const path = required === undefined ? '/health' : `/health?require=${encodeURIComponent(required)}`;
const end = (code: 0 | 1, message: string) => {
  console.log(message);
  process.exit(code);
};

/** `onError` is called when there is no answer of this protocol. */
function ask(tls: boolean, onError: (error: NodeJS.ErrnoException) => void): void {
  const request = tls ? overTls : overHttp;
  request(
    {
      host: ANY.get(config.host) ?? config.host,
      port: config.port,
      path,
      timeout: TIMEOUT_MS,
      // The certificate names the service, not the loopback interface. The address already ensures that this is our own process.
      ...(tls ? { rejectUnauthorized: false } : {}),
    },
    (response) =>
      end(response.statusCode === 200 ? 0 : 1, `${decodeURIComponent(path)} answers ${response.statusCode}`),
  )
    .on('error', onError)
    .on('timeout', () => end(1, 'no answer in time'))
    .end();
}

const unreachable = (error: NodeJS.ErrnoException) => end(1, `not reachable: ${error.code}`);
// Nothing but the sender knows whether a certificate came sealed.
if (config.secrets === 'sealed') ask(false, () => ask(true, unreachable));
else ask(config.tls !== null, unreachable);
