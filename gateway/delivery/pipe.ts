// Delivers an answer as it comes, without tee: nothing is parsed, held or added.
import type { AnswerHead } from '../engine/engine.ts';
import { errorEvent } from '../sse.ts';
import { type Delivery, type Exchange, mediaType } from './exchange.ts';
import { headersOf } from './headers.ts';
import { flowingWriter, type Port } from './relay.ts';

export function pipeDelivery(head: AnswerHead, port: Port, exchange: Exchange): Delivery {
  const { outgoing } = exchange;
  const stream = mediaType(head.headers) === 'text/event-stream';
  const write = flowingWriter(exchange, port);
  function begin(): void {
    if (head.length !== null) outgoing.setHeader('content-length', String(head.length));
    outgoing.writeHead(head.status, headersOf(head, stream));
  }
  if (stream) {
    begin();
    outgoing.flushHeaders();
  }
  /** The last four bytes; null before the first. */
  let tail: number | null = null;
  return {
    data(chunk) {
      if (stream) tail = tailOf(tail, chunk);
      else if (!outgoing.headersSent) begin();
      write(chunk);
    },
    end() {
      if (!outgoing.headersSent) begin();
      outgoing.end();
      port.done({ status: head.status });
    },
    fail(problem) {
      if (!outgoing.headersSent) return port.refuse(problem);
      // Between two events an error can be said. Inside one, or inside a body of known length, only a broken connection is honest.
      if (stream && head.length === null && betweenEvents(tail)) outgoing.end(errorEvent(problem));
      else outgoing.destroy();
      port.done({ status: head.status, problem });
    },
  };
}

/** As one number: it keeps nothing of the chunk in memory. */
function tailOf(before: number | null, chunk: Buffer): number {
  let tail = before ?? 0;
  for (let i = Math.max(0, chunk.length - 4); i < chunk.length; i++) tail = (tail << 8) | (chunk[i] as number);
  return tail;
}

/** Behind `\n\n`, `\r\r` or `\r\n\r\n`, or before everything. */
function betweenEvents(tail: number | null): boolean {
  if (tail === null) return true;
  const two = tail & 0xffff;
  return two === 0x0a0a || two === 0x0d0d || tail === 0x0d0a0d0a;
}
