// Is the sidecar alive? Connects to its socket as a gateway would and reads its hello: exit 0, or 1 with the reason.
import { connect } from 'node:net';
import { type ConnectionEnd, connectToSidecar, readTextFrame, updateBoth } from '../node/sidecar-connection.ts';
import { HEALTH_PATH, type Hello } from '../proto/attestation/frames.ts';
import { loadConfig } from './common/config.ts';

const TIMEOUT_MS = 8_000;
const MAX_HELLO_BYTES = 1024 * 1024;

const { sidecar_socket } = loadConfig(process.env);

connectToSidecar({
  createConnection: () => connect(sidecar_socket),
  path: HEALTH_PATH,
  max_frame_bytes: MAX_HELLO_BYTES,
  hello_timeout_ms: TIMEOUT_MS,
  read: readTextFrame,
  onHello: (hello) => exit(0, state(hello)),
  onFrame: () => {},
  onEnd: (end) => exit(1, failure(end)),
});

function exit(code: 0 | 1, words: string): void {
  console.log(words);
  process.exit(code);
}

/** A sidecar that reports why it cannot attest is alive: a restart would not repair the GPU. */
function state({ attester, trouble }: Hello): string {
  return trouble === null ? `${attester}: ready` : `${attester}: cannot attest: ${trouble.message}`;
}

function failure(end: ConnectionEnd): string {
  switch (end.reason) {
    case 'error':
      return `not reachable: ${end.error.code ?? end.error.message}`;
    case 'no_hello_in_time':
      return 'no hello in time';
    case 'other_protocol':
      return updateBoth(end.protocol);
    case 'invalid_frame':
    case 'hello_not_first':
      return 'its hello is not of the protocol';
    default:
      return 'closed without a hello';
  }
}
