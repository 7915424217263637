// Is the sidecar alive? Connects to its socket as a gateway would and reads its hello: exit 0, or 1 with the reason.
import { connect } from 'node:net';
import { WebSocket } from 'ws';
import { HEALTH_PATH, helloSchema } from '../proto/frames.ts';
import { loadConfig } from './config.ts';

const TIMEOUT_MS = 8_000;

const { sidecar_socket } = loadConfig(process.env);
// A path in a URL would be another with a space or a # in it.
const ws = new WebSocket(`ws://localhost${HEALTH_PATH}`, {
  createConnection: () => connect(sidecar_socket),
  perMessageDeflate: false,
  maxPayload: 1024 * 1024,
});
const end = (code: 0 | 1, words: string) => {
  console.log(words);
  process.exit(code);
};
setTimeout(() => end(1, 'no hello in time'), TIMEOUT_MS);
ws.once('error', (error) => end(1, `not reachable: ${(error as NodeJS.ErrnoException).code ?? error.message}`));
ws.once('close', () => end(1, 'closed without a hello'));
ws.once('message', (data) => {
  const hello = helloSchema.safeParse(JSON.parse(String(data)));
  if (!hello.success) return end(1, 'its hello is not of the protocol');
  // A restart brings no GPU back: a sidecar that says why it cannot attest is alive.
  const { attester, trouble } = hello.data;
  end(0, trouble === null ? `${attester}: ready` : `${attester}: cannot attest: ${trouble.message}`);
});
