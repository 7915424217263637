// The backend's process: HTTP/1.1 by hand on raw sockets, so that it costs little beside what is measured.
import { createServer } from 'node:net';
import { serveCalls } from '../system/calls.ts';
import { Connection } from './connection.ts';
import { endStreams } from './streams.ts';

const server = createServer({ noDelay: true }, (socket) => void new Connection(socket));
server.listen({ port: 0, host: '127.0.0.1', backlog: 4096 });
await new Promise((resolve) => server.once('listening', resolve));

export interface BackendCalls {
  port(): number;
  /** Ends every stream that nobody ended; says how many there were. */
  endStreams(): number;
}

const calls: BackendCalls = {
  port: () => (server.address() as { port: number }).port,
  endStreams,
};
serveCalls(calls);
