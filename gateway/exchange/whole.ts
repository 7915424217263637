// Delivers a whole response with its attestation: one member is inserted into the text of the backend's body.
import type { Attestor } from '../attestation/interfaces.ts';
import type { ResponseHead } from '../backend/backend.ts';
import { ChunkBuffer, EMPTY } from '../base/bytes.ts';
import { asProblem } from '../base/problem.ts';
import { answerTooLarge } from '../offload/jobs.ts';
import { type Delivery, headersOf, type Port, spliced, type TeeExchange } from './relay.ts';

export function wholeDelivery(
  head: ResponseHead,
  port: Port,
  exchange: TeeExchange,
  attestor: Attestor,
  max_answer_bytes: number,
): Delivery {
  const chunks = new ChunkBuffer();
  async function send(): Promise<void> {
    const body = chunks.whole();
    const attested = await attestor.attest(exchange, { body }, port.onDisconnect);
    const parts = exchange.spliced ? spliced(body, attested.json) : [body];
    attested.json = EMPTY;
    const { outgoing } = exchange;
    if (attested.tree_size !== null) outgoing.setHeader('x-tee-batch', String(attested.tree_size));
    outgoing.setHeader('content-length', String(parts.reduce((length, part) => length + part.length, 0)));
    outgoing.writeHead(head.status, { ...headersOf(head, false), 'content-type': 'application/json' });
    // Node sends them in one write without joining them: that would copy bytes that are already in memory.
    for (const part of parts) outgoing.write(part);
    outgoing.end();
    port.done({ status: head.status, tee: 'attested' });
  }
  return {
    data(chunk) {
      exchange.hold(chunk);
      if (chunks.bytes + chunk.length <= max_answer_bytes) chunks.add(chunk);
      else port.refuse(answerTooLarge(max_answer_bytes));
    },
    end: () => void send().catch((error) => port.refuse(asProblem(error))),
    fail: (problem) => port.refuse(problem),
  };
}
