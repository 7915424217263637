// llama-server on a free port of the loopback, over the seeded model; its slots can be looked at and it ends with the test.
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { inject } from 'vitest';
import { ask } from '../support/client.ts';
import { eventually, type Folder } from '../support/harness.ts';
import { writeModel } from './model.ts';

const provided = inject('llamaServer');
/** What this machine lacks, as part of the name of what is skipped; null when nothing. */
export const missing: string | null = 'missing' in provided ? provided.missing : null;

/** What llama-server calls the model, in `/v1/models` and in every answer. */
export const MODEL = 'countersign-random';
const SLOTS = 2;
const CONTEXT_TOKENS = 8_192;
const START_MS = 20_000;

export interface LlamaServer {
  /** For BACKEND_URL. */
  readonly url: string;
  /**
   * How many of its slots work on a request now. Not to be asked while llama-server should notice that a client has left a
   * whole answer: it looks only after a second in which no result came for anybody, and this question has one.
   */
  busySlots(): Promise<number>;
  /** How many requests it has given up because their client had left, by its log: see `busySlots`. */
  cancelled(): number;
  close(): Promise<void>;
  /** Ends it as a fault would, at once. */
  kill(): void;
}

export async function startLlamaServer(folder: Folder): Promise<LlamaServer> {
  if ('missing' in provided) throw new Error(provided.missing);
  const model = join(folder.path, 'model.gguf');
  writeFileSync(model, writeModel('1'));
  const child = spawn(
    provided.path,
    [
      ...['--model', model, '--alias', MODEL, '--host', '127.0.0.1', '--port', '0'],
      ...['--threads', '1', '--threads-batch', '1', '--parallel', `${SLOTS}`, '--ctx-size', `${CONTEXT_TOKENS}`],
      // Shifting its context, it writes on until it is told to stop: what a client that leaves needs to be tested with.
      ...['--context-shift', '--slots', '--offline'],
    ],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  );
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (data) => {
      output += data;
    });
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const address = () => /listening on (http:\/\/127\.0\.0\.1:\d+)/.exec(output)?.[1];
  const close = async () => {
    child.kill('SIGTERM');
    await exited;
  };
  try {
    await eventually(async () => {
      if (child.exitCode !== null) throw new Error(`llama-server ended at its start:\n${output}`);
      const base = address();
      return base !== undefined && (await ask(`${base}/health`, { method: 'GET' })).status === 200;
    }, START_MS);
  } catch (error) {
    await close();
    throw error;
  }
  const base = address() as string;
  return {
    url: `${base}/v1`,
    cancelled: () => output.split('cancel task').length - 1,
    close,
    kill: () => void child.kill('SIGKILL'),
    async busySlots() {
      const slots: { is_processing: boolean }[] = (await ask(`${base}/slots`, { method: 'GET' })).json();
      return slots.filter((slot) => slot.is_processing).length;
    },
  };
}
