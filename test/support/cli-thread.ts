// The command line, run again and again in one thread: see cli.ts.
import { formatWithOptions } from 'node:util';
import { type MessagePort, workerData } from 'node:worker_threads';

const { port, done } = workerData as { port: MessagePort; done: Int32Array };
const [node = '', file = ''] = process.argv;
let ran = { stdout: '', stderr: '' };
let count = 0;
console.log = (...words) => {
  ran.stdout += `${formatWithOptions({}, ...words)}\n`;
};
console.error = (...words) => {
  ran.stderr += `${formatWithOptions({}, ...words)}\n`;
};

port.on('message', async (args: readonly string[]) => {
  ran = { stdout: '', stderr: '' };
  process.argv = [node, file, ...args];
  let thrown: string | null = null;
  try {
    // The module runs anew under each name; what it imports does not.
    await import(`../../auditor/main.ts?${count++}`);
  } catch (error) {
    thrown = String(error instanceof Error ? error.stack : error);
  }
  port.postMessage({ ...ran, status: process.exitCode, thrown });
  Atomics.store(done, 0, 1);
  Atomics.notify(done, 0);
});
