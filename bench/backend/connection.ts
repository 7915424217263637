// One connection of the backend: finds requests in its bytes and answers each by the scene in its model's name.
import type { Socket } from 'node:net';
import { wholeAnswer } from '../answer.ts';
import { parseScene, type Scene } from '../scene.ts';
import { startStream } from './streams.ts';

const MODELS = response('application/json', '{"object":"list","data":[{"id":"bench","object":"model"}]}');
const LOST = response('application/json', '{"error":{"message":"no such scene"}}', '404 Not Found');
const whole = new Map<number, Buffer>();

function response(type: string, body: string | Buffer, status = '200 OK'): Buffer {
  const head = `HTTP/1.1 ${status}\r\ncontent-type: ${type}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n`;
  return Buffer.concat([Buffer.from(head, 'latin1'), Buffer.from(body)]);
}

export class Connection {
  readonly #socket: Socket;
  #pending: Buffer = Buffer.alloc(0);

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('error', () => socket.destroy());
    socket.on('data', (bytes: Buffer) => this.#take(bytes));
  }

  #take(bytes: Buffer): void {
    let rest = this.#pending.length === 0 ? bytes : Buffer.concat([this.#pending, bytes]);
    for (;;) {
      const used = this.#request(rest);
      if (used === 0) break;
      rest = rest.subarray(used);
      if (rest.length === 0) break;
    }
    this.#pending = rest;
  }

  /** Answers the first request of `bytes` and says how long it was; 0 while it is not complete. */
  #request(bytes: Buffer): number {
    const headEnd = bytes.indexOf('\r\n\r\n');
    if (headEnd < 0) return 0;
    const head = bytes.toString('latin1', 0, headEnd);
    const bodyEnd = endOfBody(bytes, headEnd + 4, head);
    if (bodyEnd === null) return 0;
    if (head.startsWith('GET ')) this.#socket.write(MODELS);
    else this.#answer(bytes.toString('latin1', headEnd + 4, bodyEnd));
    return bodyEnd;
  }

  #answer(body: string): void {
    const model = /"model":\s*"(?:openai\/)?([^"]+)"/.exec(body)?.[1];
    const scene: Scene | null = model === undefined ? null : parseScene(model);
    if (scene === null) return void this.#socket.write(LOST);
    if (scene.kind !== 'whole') return startStream(this.#socket, scene);
    let answer = whole.get(scene.bytes);
    if (answer === undefined) {
      answer = response('application/json', wholeAnswer(scene.bytes));
      whole.set(scene.bytes, answer);
    }
    this.#socket.write(answer);
  }
}

function endOfBody(bytes: Buffer, from: number, head: string): number | null {
  const length = /\r\ncontent-length: *(\d+)/i.exec(head);
  if (length !== null) {
    const end = from + Number(length[1]);
    return bytes.length >= end ? end : null;
  }
  if (!/\r\ntransfer-encoding: *chunked/i.test(head)) return from;
  const last = bytes.indexOf('0\r\n\r\n', from); // no body of ours holds these bytes
  return last < 0 ? null : last + 5;
}
