// Strangers at the verify endpoint, each from an address of its own: what they send takes memory and time to read, or never comes.
import { Agent } from 'node:http';
import { ask } from '../../support/client.ts';
import { attack, dialed, untilEnd } from './attack.ts';

interface Options {
  readonly clients: number;
  /** The first of their addresses is 127.0.0.`from`, or all have this one. */
  readonly from: number;
  readonly addresses: 'each' | 'one';
  readonly sends: keyof typeof BODIES | 'nothing' | 'all but one byte';
}

const PATH = '/~sev_gpu@1.0/verify';
const ALMOST_BYTES = 200 * 1024;

const BODIES = {
  /** 14 MB that are a GiB once they are parsed. */
  objects: () => Buffer.from(`[${'{"a":[1]},'.repeat(1_400_000)}1]`),
  /** 14 MB of which as much is parsed as the gateway parses. */
  costly: () =>
    Buffer.from(
      `{"x":[${Array.from({ length: 320_000 }, (_, i) => `{"k${i}":1}`).join()}],"y":"${'y'.repeat(9_000_000)}"}`,
    ),
  /** As much as is verified beside everybody else's. */
  small: () => Buffer.from(`{"x":[${Array.from({ length: 16_000 }, (_, i) => `{"k${i}":1}`).join()}]}`),
};

attack<Options>(async (given) => {
  const { url, port, options } = given;
  const said: Record<string, number> = {};
  const count = (what: string) => {
    said[what] = (said[what] ?? 0) + 1;
  };
  const addressOf = (client: number) => options.from + (options.addresses === 'one' ? 0 : client % 200);

  async function waiting(client: number, sent: number) {
    const socket = await dialed(port, addressOf(client));
    socket?.on('close', () => count('closed')).resume();
    socket?.write(`POST ${PATH} HTTP/1.1\r\nhost: h\r\ncontent-length: ${ALMOST_BYTES}\r\n\r\n`);
    socket?.write(Buffer.alloc(sent, 0x20));
    await untilEnd(given);
    socket?.destroy();
  }

  async function sending(client: number, body: Buffer) {
    const agent = new Agent({ keepAlive: true, maxSockets: 1, localAddress: `127.0.0.${addressOf(client)}` });
    while (given.goesOn())
      await ask(`${url}${PATH}`, { body, agent, signal: AbortSignal.timeout(30_000) }).then(
        ({ status }) => count(String(status)),
        (error: NodeJS.ErrnoException) => count(error.code ?? error.name),
      );
    agent.destroy();
  }

  const { sends } = options;
  const body = sends in BODIES ? BODIES[sends as keyof typeof BODIES]() : null;
  const clients = Array.from({ length: options.clients }, (_, client) =>
    body !== null ? sending(client, body) : waiting(client, sends === 'nothing' ? 0 : ALMOST_BYTES - 1),
  );
  await Promise.race([Promise.all(clients), untilEnd(given)]);
  return said;
});
