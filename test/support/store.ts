// A store of the test's own in place of Valkey: what gateways ask about sealed requests and attestations, and no more.
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { freePort } from './harness.ts';

export interface FakeStore {
  /** For ATTESTATION_STORE_URL. */
  readonly url: string;
  /** What it keeps, by key. */
  readonly kept: ReadonlyMap<string, string>;
  /** It is away, and comes back with what it had. */
  stop(): Promise<void>;
  start(): Promise<void>;
}

/** SET with NX and GET of texts, DEL; every other command is answered with OK. Nothing expires. */
export async function startFakeStore(): Promise<FakeStore> {
  const port = await freePort();
  const kept = new Map<string, string>();
  const sockets = new Set<Socket>();
  let server: Server | null = null;

  function answer([command = '', key = '', value = '', ...options]: readonly string[]): string {
    const name = command.toUpperCase();
    if (name === 'GET') {
      const found = kept.get(key);
      return found === undefined ? '$-1\r\n' : `$${found.length}\r\n${found}\r\n`;
    }
    if (name === 'DEL') return `:${Number(kept.delete(key))}\r\n`;
    if (name !== 'SET') return '+OK\r\n';
    if (options.includes('NX') && kept.has(key)) return '$-1\r\n';
    kept.set(key, value);
    return '+OK\r\n';
  }

  async function start(): Promise<void> {
    server = createServer((socket) => {
      sockets.add(socket.setEncoding('latin1'));
      let text = '';
      socket.on('error', () => {}).on('close', () => sockets.delete(socket));
      socket.on('data', (data: string) => {
        text += data;
        for (let command = read(text); command !== null; command = read(text)) {
          text = text.slice(command.length);
          socket.write(answer(command.words), 'latin1');
        }
      });
    }).listen(port, '127.0.0.1');
    await once(server, 'listening');
  }

  await start();
  return {
    url: `redis://127.0.0.1:${port}`,
    kept,
    start,
    async stop() {
      const closed = new Promise((resolve) => server?.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

/** The first whole command of a text in RESP, one character a byte; null while it has not come. */
function read(text: string): { readonly words: readonly string[]; readonly length: number } | null {
  const head = /^\*(\d+)\r\n/.exec(text);
  if (head === null) return null;
  const words: string[] = [];
  let at = head[0].length;
  for (let i = 0; i < Number(head[1]); i++) {
    const [line = '', length] = /^\$(\d+)\r\n/.exec(text.slice(at, at + 32)) ?? [];
    const end = at + line.length + Number(length);
    if (length === undefined || text.length < end + 2) return null;
    words.push(text.slice(at + line.length, end));
    at = end + 2;
  }
  return { words, length: at };
}
