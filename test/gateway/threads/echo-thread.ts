// A worker thread for test/gateway/threads/thread.test.ts: counts its jobs, throws, or dies.
import { serveJobs } from '../../../gateway/threads/thread.ts';

let count = 0;

serveJobs<string, { asked: number; bytes: Uint8Array<ArrayBuffer> }>(
  async (job) => {
    if (job === 'throw') throw new TypeError('the prompt is a secret');
    if (job === 'die') process.exit(1);
    if (job === 'crash') setImmediate(() => JSON.parse('no JSON'));
    if (job === 'crash' || job === 'hang') await new Promise(() => {});
    return { asked: ++count, bytes: new TextEncoder().encode(job) };
  },
  ({ bytes }) => [bytes.buffer],
);
