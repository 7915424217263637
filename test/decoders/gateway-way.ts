// The way through a running gateway with tee, whose backend sends the nasty stream.
import { topLevelMembers } from '../../proto/json.ts';
import { VerificationError, verifyAttestation } from '../../verify/index.ts';
import { type Service, startService } from '../support/harness.ts';
import { isEventStream, type Way } from './differential.ts';
import { cutAt, encode, PROOF } from './grammar.ts';
import { type Answer, readByStandard } from './reading.ts';
import type { Sent } from './stream.ts';

/** What the gateway itself writes. */
const OWN_EVENTS = /^(?:(?:data: [^\r\n]*\n)+\n|: (?:attesting|waiting)\n\n)*$/;
const CUTS = [150, 400, 401, 900];
const NULL_BODY = [204, 205, 304];

export interface GatewayWay extends Way {
  close(): Promise<void>;
}

export async function gatewayWay(): Promise<GatewayWay> {
  const service = await startService();
  const answers = new Map<string, Answer>();
  let next = 0;
  service.backend.script = async ({ body }, response) => {
    const answer = answers.get((JSON.parse(body) as { user: string }).user);
    if (answer === undefined) throw new TypeError('a request that nobody sent');
    const { status, type, pieces, broken } = answer;
    response.writeHead(status, type === '' ? {} : { 'content-type': type });
    if (!NULL_BODY.includes(status))
      for (const piece of pieces) {
        response.write(piece);
        await new Promise(setImmediate);
      }
    if (broken === null) response.end();
    else response.destroy();
  };
  return {
    name: 'through a gateway with tee',
    concurrency: 8,
    async carry(sent) {
      const user = `u${next++}`;
      answers.set(user, fromBackend(sent));
      const answer = await ask(service.gateway.url, user);
      answers.delete(user);
      service.backend.seen.length = 0;
      const bytes = Buffer.concat(answer.pieces);
      const streamed = isEventStream(answer);
      const proven = streamed ? await verdict(bytes, service) : null;
      return { answer, proven, endProves: false, framing: streamed ? OWN_EVENTS : null };
    },
    close: () => service.close(),
  };
}

/** A backend sends no attestation: those that were put in beside the first are left. */
function fromBackend({ text, attestation, answer }: Sent): Answer {
  const bare = text.replace(`,"attestation":${PROOF}`, '').replaceAll(PROOF, attestation);
  return { ...answer, pieces: cutAt(encode(bare), CUTS) };
}

async function ask(url: string, user: string): Promise<Answer> {
  const pieces: Uint8Array[] = [];
  const messages = [{ role: 'user', content: 'Hi' }];
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'm', messages, stream: true, tee: true, user }),
  });
  let broken: Error | null = null;
  try {
    for await (const piece of (response.body ?? []) as AsyncIterable<Uint8Array>) pieces.push(piece);
  } catch (error) {
    broken = error as Error;
  }
  return { status: response.status, type: response.headers.get('content-type') ?? '', pieces, broken };
}

/** The stream that was signed, where one of the events carries the proof of it. */
async function verdict(bytes: Uint8Array<ArrayBuffer>, { sidecar }: Service): Promise<string | null> {
  const attestation = attestationIn(bytes);
  if (attestation === null) return null;
  try {
    const verified = await verifyAttestation(attestation, {
      simulatedRoot: sidecar.attester.simulated?.root,
      expected: { transcript: bytes },
    });
    return verified.exchange.stream?.sha256 ?? null;
  } catch (error) {
    if (error instanceof VerificationError) return null;
    throw error;
  }
}

function attestationIn(bytes: Uint8Array): string | null {
  for (const payload of readByStandard(bytes).payloads.filter((one) => one.trimStart().startsWith('{'))) {
    const member = topLevelMembers(payload).find(({ key }) => key === 'attestation');
    if (member !== undefined) return payload.slice(member.valueStart, member.valueEnd);
  }
  return null;
}
