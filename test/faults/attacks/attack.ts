// What every attack stands on. An attack is a file that calls `attack`; it runs as a process of its own, so that its memory
// and its time are not the gateway's.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** An attack that does not end by itself is ended. */
const GRACE_MS = 30_000;

export interface Given<Options> {
  readonly url: string;
  readonly port: number;
  /** The attacker's own API key, for attacks with one. */
  readonly key: string;
  readonly ends_ms: number;
  readonly options: Options;
  /** False when the attack's time is over. */
  goesOn(): boolean;
}

/** Runs `run` until its time is over; what it returns is the attack's word on what became of it. */
export function attack<Options = object>(run: (given: Given<Options>) => Promise<unknown>): void {
  const { url, key, ms, options } = JSON.parse(process.argv[2] as string);
  const ends_ms = performance.now() + ms;
  setTimeout(() => process.exit(1), ms + GRACE_MS).unref();
  // Whatever becomes of a connection is the attack's affair.
  process.on('uncaughtException', (error: NodeJS.ErrnoException) => {
    if (error.code === undefined) throw error;
  });
  const given = {
    url,
    key,
    options,
    ends_ms,
    port: Number(new URL(url).port),
    goesOn: () => performance.now() < ends_ms,
  };
  void run(given).then((result) => process.send?.({ result: result ?? null }, () => process.exit(0)));
}

/** A connection from 127.0.0.`from`: Linux lets a machine be many. null when it was refused. */
export async function dialed(port: number, from = 1, allowHalfOpen = true): Promise<Socket | null> {
  const socket = connect({ port, host: '127.0.0.1', localAddress: `127.0.0.${from}`, allowHalfOpen });
  socket.on('error', () => {});
  try {
    await once(socket, 'connect');
    return socket;
  } catch {
    return null;
  }
}

/** So many connections, a hundred at a time. */
export async function dialedMany(port: number, count: number, from = 1): Promise<Socket[]> {
  const sockets: Socket[] = [];
  for (let left = count; left > 0; left -= 100) {
    const some = await Promise.all(Array.from({ length: Math.min(100, left) }, () => dialed(port, from)));
    sockets.push(...some.filter((socket) => socket !== null));
  }
  return sockets;
}

/** Until the attack's time is over. */
export async function untilEnd({ ends_ms }: { readonly ends_ms: number }): Promise<void> {
  await sleep(Math.max(0, ends_ms - performance.now()));
}
