// Many requests on each of many connections, one behind the other, by clients that never read an answer.
import { attack, dialedMany, untilEnd } from './attack.ts';

interface Options {
  readonly connections: number;
  readonly bytes: number;
  /** One request. */
  readonly request: string;
}

attack<Options>(async (given) => {
  const { port, options } = given;
  const requests = Buffer.from(options.request.repeat(Math.ceil(options.bytes / options.request.length)));
  const sockets = await dialedMany(port, options.connections);
  for (const socket of sockets) {
    socket.pause();
    socket.write(requests);
  }
  await untilEnd(given);
  const open = sockets.filter((socket) => !socket.destroyed).length;
  for (const socket of sockets) socket.destroy();
  return { connections: sockets.length, open };
});
