// The thread that looks at large raws: bytes in, nonce or refusal out, in order.
import { parentPort } from 'node:worker_threads';
import { JsonTextError } from '../../proto/json.ts';
import { type Looked, nonceHere } from './nonce.ts';

parentPort?.on('message', (bytes: Uint8Array<ArrayBuffer>) => {
  parentPort?.postMessage(look(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)));
});

function look(raw: Buffer): Looked {
  try {
    return { nonce: nonceHere(raw) };
  } catch (error) {
    if (error instanceof JsonTextError) return { refused: error.message };
    throw error;
  }
}
