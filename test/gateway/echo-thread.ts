// A thread for test/gateway/thread.test.ts: counts what it was asked, throws, or dies.
import { serveJobs } from '../../gateway/offload/thread.ts';

let asked = 0;

serveJobs<string, { asked: number; bytes: Uint8Array<ArrayBuffer> }>(
  async (question) => {
    if (question === 'throw') throw new TypeError('the prompt is a secret');
    if (question === 'die') process.exit(1);
    if (question === 'crash') setImmediate(() => JSON.parse('no JSON'));
    if (question === 'crash' || question === 'hang') await new Promise(() => {});
    return { asked: ++asked, bytes: new TextEncoder().encode(question) };
  },
  ({ bytes }) => [bytes.buffer],
);
