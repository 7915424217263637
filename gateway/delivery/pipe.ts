// Delivers an answer as it comes, without tee: nothing is parsed, held or added.
import { toClient } from '../engine/headers.ts';
import { errorEvent } from '../sse.ts';
import { type Delivery, type Exchange, type Head, mediaType } from './exchange.ts';
import { flowingWriter, type Port } from './relay.ts';

export function pipeDelivery(head: Head, port: Port, exchange: Exchange): Delivery {
  const { outgoing } = exchange;
  const stream = mediaType(head.headers) === 'text/event-stream';
  const headers = toClient(head.headers);
  const length = head.headers['content-length'];
  if (length !== undefined) headers['content-length'] = length;
  if (stream) headers['x-accel-buffering'] = 'no';
  outgoing.writeHead(head.status, headers);
  if (stream) outgoing.flushHeaders();
  const write = flowingWriter(exchange, port);
  let tail: Buffer = Buffer.alloc(0);
  return {
    data(chunk) {
      if (stream) tail = chunk.length >= 4 ? chunk.subarray(-4) : Buffer.concat([tail, chunk]).subarray(-4);
      write(chunk);
    },
    end() {
      outgoing.end();
      port.done({ status: head.status });
    },
    fail(problem) {
      // Between two events an error can be said. Inside one, or inside a body of known length, only a broken connection is honest.
      if (stream && betweenEvents(tail)) outgoing.end(errorEvent(problem));
      else outgoing.destroy();
      port.done({ status: head.status, problem });
    },
  };
}

function betweenEvents(tail: Buffer): boolean {
  const text = tail.toString('latin1');
  return text === '' || /(\n\n|\r\r|\r\n\r\n)$/.test(text);
}
