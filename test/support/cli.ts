// The verifier's command line for tests of what it prints: one thread runs it for all cases of a file, where a process each would take most of
// their time. While it runs, nothing else of the test does, as with spawnSync. What a process is like is tested with bin/countersign.js.
import { MessageChannel, receiveMessageOnPort, Worker } from 'node:worker_threads';

const TIMEOUT_MS = 60_000;

export interface Ran {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs `countersign ARGS`. */
export function commandLine(): (...args: string[]) => Ran {
  const done = new Int32Array(new SharedArrayBuffer(4));
  const { port1, port2 } = new MessageChannel();
  const worker = new Worker(new URL('cli-thread.ts', import.meta.url), {
    workerData: { port: port2, done },
    transferList: [port2],
    execArgv: ['--disable-warning=ExperimentalWarning'],
  });
  worker.unref();
  return (...args) => {
    Atomics.store(done, 0, 0);
    port1.postMessage(args);
    if (Atomics.wait(done, 0, 0, TIMEOUT_MS) === 'timed-out') throw new Error(`countersign ${args.join(' ')} hangs`);
    const { thrown, ...ran } = receiveMessageOnPort(port1)?.message ?? {};
    if (thrown !== null) throw new Error(`countersign ${args.join(' ')}: ${thrown}`);
    return ran;
  };
}
