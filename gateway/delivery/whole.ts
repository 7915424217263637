// Delivers a whole answer with its attestation: the backend's body text with one member spliced in.
import { isUtf8 } from 'node:buffer';
import { type Answer, type Attestor, NOTHING } from '../attestor.ts';
import { toClient } from '../engine/headers.ts';
import { asProblem, Problem } from '../problem.ts';
import type { Delivery, Exchange, Head } from './exchange.ts';
import type { Port } from './relay.ts';

const bad = (message: string) => new Problem('backend_bad_response', message);

export function wholeDelivery(
  head: Head,
  port: Port,
  exchange: Exchange,
  attestor: Attestor,
  max_answer_bytes: number,
): Delivery {
  const chunks: Buffer[] = [];
  let bytes = 0;
  async function send(): Promise<void> {
    const answered = chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks);
    const attested = await attestor.attest(exchange, readAnswer(answered), port.onLeft);
    const pieces = withAttestation(answered, attested.json);
    attested.json = NOTHING;
    const { outgoing } = exchange;
    outgoing.writeHead(head.status, {
      ...toClient(head.headers),
      'content-type': 'application/json',
      'content-length': pieces.reduce((length, piece) => length + piece.length, 0),
    });
    // One write of the pieces as they are: together they would be a copy of what is kept.
    const { socket } = outgoing;
    socket?.cork();
    for (const piece of pieces) outgoing.write(piece);
    outgoing.end();
    socket?.uncork();
    port.done({ status: head.status, tee: 'attested' });
  }
  return {
    data(chunk) {
      bytes += chunk.length;
      chunks.push(chunk);
      if (bytes > max_answer_bytes) port.refuse(bad('The answer is larger than what is attested.'));
    },
    end: () => void send().catch((error) => port.refuse(asProblem(error))),
    fail: (problem) => port.refuse(problem),
  };
}

const FIRST_MEMBER = Buffer.from('"attestation":');
const NEXT_MEMBER = Buffer.from(',"attestation":');
const BRACE = 0x7b;

/** A JSON object's bytes, in pieces, with the attestation before the last `}`: taken out again, they are the backend's. */
function withAttestation(body: Buffer, attestation: Buffer): readonly Buffer[] {
  const end = body.lastIndexOf('}');
  let last = end - 1;
  while (' \t\r\n'.includes(String.fromCharCode(body[last] as number))) last--;
  const name = body[last] === BRACE ? FIRST_MEMBER : NEXT_MEMBER;
  return [Buffer.concat([body.subarray(0, end), name]), attestation, body.subarray(end)];
}

/** @throws {Problem} backend_bad_response unless the body is a JSON object that nobody has put an attestation into. */
function readAnswer(body: Buffer): Answer {
  if (!isUtf8(body)) throw bad('The backend sent an answer that is not UTF-8.');
  const response = body.toString('utf8');
  let value: unknown;
  try {
    value = JSON.parse(response);
  } catch {
    throw bad('The backend sent an answer that is not JSON.');
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw bad('The backend sent an answer that is not a JSON object.');
  if (Object.hasOwn(value, 'attestation')) throw bad('The backend sent an attestation of its own.');
  if ('error' in value && value.error !== null) throw bad('The backend sent an error as if it were an answer.');
  const id = (value as { id?: unknown }).id;
  return { response, completionId: typeof id === 'string' && id !== '' ? id : null };
}
