// The worker thread for large raws: takes bytes, returns the nonce or the reason why raw is refused, in order.
import { parentPort } from 'node:worker_threads';
import { JsonTextError } from '../../proto/json.ts';
import { type NonceResult, nonceHere } from './nonce.ts';

parentPort?.on('message', (bytes: Uint8Array<ArrayBuffer>) => {
  parentPort?.postMessage(nonceOrRefusal(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)));
});

function nonceOrRefusal(raw: Buffer): NonceResult {
  try {
    return nonceHere(raw);
  } catch (error) {
    if (error instanceof JsonTextError) return { refused: error.message };
    throw error;
  }
}
