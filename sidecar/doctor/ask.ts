// Asks a running sidecar for one attestation over its socket, as a gateway would.
import { connect } from 'node:net';
import { WebSocket } from 'ws';
import { type Attested, fromSidecarSchema, type Hello, MAX_FRAME_BYTES } from '../../proto/frames.ts';

export interface Answered {
  readonly hello: Hello;
  /** Or why there is none, in the sidecar's words. */
  readonly result: Attested | { readonly failure: string };
}

const HELLO_MS = 5_000;
const ANSWER_MS = 60_000;
const ID = 'doctor';

/** @throws {Error} nobody listens there (`code` ENOENT, ECONNREFUSED, EACCES), or what does is not a sidecar. */
export function askSidecar(socket_path: string, raw: string): Promise<Answered> {
  // A path in a URL would be another with a space or a # in it.
  const ws = new WebSocket('ws://localhost/', {
    createConnection: () => connect(socket_path),
    perMessageDeflate: false,
    maxPayload: MAX_FRAME_BYTES,
    handshakeTimeout: HELLO_MS,
  });
  let timer: NodeJS.Timeout | undefined;
  const answer = new Promise<Answered>((resolve, reject) => {
    let hello: Hello | null = null;
    const within = (ms: number, what: string) => {
      clearTimeout(timer);
      timer = setTimeout(() => reject(new Error(`no ${what} within ${ms} ms`)), ms);
    };
    within(HELLO_MS, 'hello');
    ws.on('error', reject);
    ws.on('close', () => reject(new Error('it hung up')));
    ws.on('message', (data) => {
      const frame = readFrame((data as Buffer).toString('utf8'));
      if (frame === null) return reject(new Error('what listens there does not speak our protocol'));
      if (frame.type === 'hello') {
        const again = hello !== null;
        hello = frame;
        if (again) return;
        ws.send(JSON.stringify({ type: 'attest', id: ID, raw }));
        return within(ANSWER_MS, 'attestation');
      }
      if (hello === null) return reject(new Error('it did not say hello first'));
      if (frame.type === 'attested') return resolve({ hello, result: frame });
      if (frame.type === 'failed') return resolve({ hello, result: { failure: `${frame.code}: ${frame.message}` } });
    });
  });
  return answer.finally(() => {
    clearTimeout(timer);
    ws.terminate();
  });
}

function readFrame(text: string) {
  try {
    return fromSidecarSchema.parse(JSON.parse(text));
  } catch {
    return null;
  }
}
