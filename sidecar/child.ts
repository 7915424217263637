// What the sidecar does with every process that it starts: NVIDIA's programs, and its Python workers.
import type { ChildProcess } from 'node:child_process';
import type { Readable } from 'node:stream';

/** Kills it and whatever it started: it was spawned `detached`, so that it has a process group of its own. */
export function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // nobody is left in it
  }
}

/** Reads the stream to its end and keeps the last `max_characters` of it. */
export function tailOf(stream: Readable | null, max_characters: number): () => string {
  let text = '';
  stream?.setEncoding('utf8').on('data', (more: string) => {
    text = (text + more).slice(-max_characters);
  });
  return () => text;
}

/** A wait that does not keep this process alive. */
export function unreffed(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms).unref();
  });
}
