// A sidecar without the simulated GPU's work: real socket, connection, scheduler and check, over evidence whose signatures cost a hash.
import { createServer } from 'node:http';
import { pino } from 'pino';
import { WebSocketServer } from 'ws';
import { MAX_FRAME_BYTES } from '../../proto/attestation/frames.ts';
import { loadConfig } from '../../sidecar/common/config.ts';
import { serveConnection } from '../../sidecar/server/connection.ts';
import { listenOnSocket } from '../../sidecar/server/server.ts';
import { checkCollected } from '../../sidecar/signing/evidence-check.ts';
import { createScheduler } from '../../sidecar/signing/scheduler.ts';
import { createQuickAttester } from './quick-device.ts';

const config = loadConfig(process.env);
const log = pino({ name: 'sidecar', level: config.log_level });
const attester = await createQuickAttester(process.argv[2] ?? `${config.sidecar_socket}.root`);
const scheduler = createScheduler(attester, {
  ...config,
  check: (collected, nonce) => checkCollected(collected, nonce, attester),
  onUnavailable: () => {},
});

const server = createServer();
new WebSocketServer({ server, perMessageDeflate: false, maxPayload: MAX_FRAME_BYTES }).on(
  'connection',
  (ws, { socket }) =>
    serveConnection(ws, socket, {
      attester,
      scheduler,
      sessions: null,
      onKeys: () => {},
      onUnexpected: () => {},
      totals: () => ({ attested_total: 0, failed_total: 0 }),
      onResult: ({ code, ms }) => log.debug({ code, ms: Math.round(ms), queued: scheduler.waiting }, 'attest'),
    }),
);
await listenOnSocket(server, config.sidecar_socket);
