// A Valkey or Redis server of the test's own: on a free port of this machine, with a password, keeping nothing on disk.
import { type ChildProcess, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { debianProgram, MissingPart, which } from '../support/debian.ts';
import { eventually, freePort, temporaryFolder } from '../support/harness.ts';

export const PASSWORD = 'of-the-test';

/** What is on this machine, or Debian's package. null: it cannot be had here, which is said aloud. */
export function serverProgram(): string | null {
  try {
    return which('valkey-server') ?? which('redis-server') ?? debianProgram('redis-server', 'redis-server');
  } catch (error) {
    if (!(error instanceof MissingPart)) throw error;
    console.error(`SKIPPED, all of npm run test:with servers: this machine does not have ${error.message}`);
    return null;
  }
}

export interface StoreServer {
  /** For ATTESTATION_STORE_URL. */
  readonly url: string;
  readonly port: number;
  /** What it answers to a command, as text. */
  ask(...words: string[]): Promise<string>;
  /** SIGSTOP, SIGCONT: it hangs, it goes on. */
  signal(signal: NodeJS.Signals): void;
  stop(): Promise<void>;
  start(): Promise<void>;
  close(): Promise<void>;
}

/** `more`: further arguments, and a line each of its file of settings for `sentinel`. */
export async function startStoreServer(
  program: string,
  more: readonly string[] = [],
  sentinel: readonly string[] = [],
): Promise<StoreServer> {
  const folder = temporaryFolder();
  const port = await freePort();
  let child: ChildProcess | null = null;

  function ask(...words: string[]): Promise<string> {
    const command = (parts: string[]) =>
      `*${parts.length}\r\n${parts.map((part) => `$${Buffer.byteLength(part)}\r\n${part}\r\n`).join('')}`;
    return new Promise((resolve, reject) => {
      const socket = connect(port, '127.0.0.1');
      let text = '';
      socket.on('error', reject);
      // A sentinel knows no QUIT.
      if (sentinel.length > 0) socket.setTimeout(200, () => socket.destroy());
      socket.on('data', (data) => {
        text += data;
      });
      socket.on('close', () => resolve(text));
      socket.write(command(['AUTH', PASSWORD]) + command(words) + command(['QUIT']));
    });
  }
  const settings = ['--port', `${port}`, '--bind', '127.0.0.1', '--requirepass', PASSWORD, '--dir', folder.path];
  const start = async () => {
    const file = join(folder.path, 'sentinel.conf');
    if (sentinel.length > 0) writeFileSync(file, `${sentinel.join('\n')}\n`);
    const kept = ['--save', '', '--appendonly', 'no'];
    const args = sentinel.length > 0 ? [file, '--sentinel', ...settings] : [...settings, ...kept];
    child = spawn(program, [...args, ...more], { stdio: 'ignore' });
    await eventually(async () => /PONG/.test(await ask('PING').catch(() => '')), 10_000);
  };
  const stop = async () => {
    const ended = child;
    if (ended === null) return;
    child = null;
    const exited = new Promise((resolve) => ended.once('exit', resolve));
    ended.kill('SIGKILL');
    await exited;
  };
  await start();
  return {
    url: `redis://:${PASSWORD}@127.0.0.1:${port}`,
    port,
    ask,
    signal: (signal) => void child?.kill(signal),
    start,
    stop,
    async close() {
      await stop();
      folder.remove();
    },
  };
}
