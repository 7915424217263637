// Connections on which a test speaks when it likes, and what became of them.
import { connect, type Socket } from 'node:net';
import { eventually } from '../support/harness.ts';
import { NEVER } from './judge.ts';

/** A request for a stream with tee, and one without. */
export const TEE = streamRequest(true);
export const PLAIN = streamRequest(false);

export interface Line {
  readonly socket: Socket;
  text: string;
  closed: boolean;
}

function streamRequest(tee: boolean): { head: string; body: string } {
  const body = JSON.stringify({ messages: [{ role: 'user', content: 'by hand' }], stream: true, tee });
  const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`;
  return { head, body };
}

/** Resolves when it is connected, or refused. */
export function dial(url: string): Promise<Line> {
  const { hostname, port } = new URL(url);
  const line: Line = {
    socket: connect({ port: Number(port), host: hostname, allowHalfOpen: true }),
    text: '',
    closed: false,
  };
  line.socket.on('data', (data) => {
    line.text += data;
  });
  line.socket.on('error', () => {});
  line.socket.on('close', () => {
    line.closed = true;
  });
  line.socket.on('end', () => line.socket.end());
  return new Promise((resolve) => {
    line.socket.once('connect', () => resolve(line)).once('close', () => resolve(line));
  });
}

export const lines = (url: string, count: number): Promise<Line[]> =>
  Promise.all(Array.from({ length: count }, () => dial(url)));

/** In words; `NEVER` when the connection is still open after so long. */
export async function letGo(line: Line, within_ms: number): Promise<string> {
  try {
    await eventually(() => line.closed, within_ms);
  } catch {
    return `${NEVER}held on to`;
  } finally {
    line.socket.destroy();
  }
  const status = /^HTTP\/1\.1 (\d{3})/.exec(line.text)?.[1];
  const code = /"code":"(\w+)"/.exec(line.text)?.[1];
  if (line.text.includes('"finish_reason":"stop"')) return `${NEVER}stop`;
  if (status === undefined) return 'let go without a word';
  return status === '200' ? 'deltas, then let go' : `${status} ${code}, then let go`;
}
