// Runs NVIDIA's SDK without us: plain.py, in a process of its own.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { temporaryFolder } from '../support/harness.ts';
import type { Twin } from './twin.ts';

const SCRIPT = fileURLToPath(new URL('plain.py', import.meta.url));

export interface Plain {
  /** What NVIDIA's verifier said. */
  readonly result: boolean;
  readonly token: string;
  /** From the start of the process to its end. */
  readonly ms: number;
}

export async function plainAttest(twin: Twin, nonce: string): Promise<Plain> {
  const folder = temporaryFolder(); // the SDK writes its log files where it stands
  const begin = performance.now();
  const child = spawn(join(twin.venv, 'bin/python'), ['-W', 'ignore', SCRIPT, nonce], {
    cwd: folder.path,
    env: { ...twin.environment },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  let printed = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    printed += text;
  });
  await new Promise<void>((resolve, reject) => child.once('close', () => resolve()).once('error', reject));
  folder.remove();
  const ms = performance.now() - begin;
  return { ...(JSON.parse(printed.trim().split('\n').at(-1) ?? '') as { result: boolean; token: string }), ms };
}
