// A sidecar without the simulated GPU's work: real socket, session, scheduler and check, over evidence that was signed once.
// With BENCH_CHECK=0 without the check too: what is left of tee when no public-key cryptography runs in software.
import { createServer } from 'node:http';
import { pino } from 'pino';
import { WebSocketServer } from 'ws';
import { MAX_FRAME_BYTES } from '../proto/frames.ts';
import type { Nonce } from '../proto/raw.ts';
import type { Attester } from '../sidecar/attester.ts';
import { createSimulatedAttester } from '../sidecar/attesters/simulated.ts';
import { checkCollected } from '../sidecar/checked.ts';
import { loadConfig } from '../sidecar/config.ts';
import { createScheduler } from '../sidecar/scheduler.ts';
import { runSession } from '../sidecar/session.ts';
import { listenOnSocket } from '../sidecar/socket.ts';

const NONCE = '0'.repeat(64) as Nonce;

const config = loadConfig(process.env);
const log = pino({ name: 'sidecar', level: config.log_level });
const twin = await createSimulatedAttester({ rootDir: config.simulated_root_dir });
const canned = await twin.attest(NONCE, new AbortController().signal);
const attester: Attester = { ...twin, attest: async () => canned };
// Checked as ever, signature and chain, but over the nonce that was signed.
const check = process.env.BENCH_CHECK === '0' ? async () => {} : () => checkCollected(canned, NONCE, attester);
const scheduler = createScheduler(attester, {
  ...config,
  check,
  onTrouble: () => {},
});

const server = createServer();
new WebSocketServer({ server, perMessageDeflate: false, maxPayload: MAX_FRAME_BYTES }).on(
  'connection',
  (ws, { socket }) =>
    runSession(ws, socket, {
      attester,
      scheduler,
      onUnexpected: () => {},
      totals: () => ({ attested_total: 0, failed_total: 0 }),
      onResult: ({ code, ms }) => log.debug({ code, ms: Math.round(ms), queued: scheduler.waiting }, 'attest'),
    }),
);
await listenOnSocket(server, config.socket_path);
