// A steady stream of requests with tee, each answer checked: proven, its own, and when it came.
import { createHash } from 'node:crypto';
import { splitRaw } from '../../proto/attestation/raw.ts';
import { type Answer, ask } from '../support/client.ts';
import type { Stage } from './stage.ts';

export interface Outcome {
  readonly sent_ms: number;
  readonly came_ms: number;
  /** null: a proven answer to this very question. */
  readonly wrong: string | null;
}

export interface Load {
  /** Sends no more, and waits for every answer. */
  stop(): Promise<readonly Outcome[]>;
}

/** Every second request is a stream. */
export function startLoad({ url, headers }: Stage, per_second: number): Load {
  const running: Promise<Outcome>[] = [];
  const send = () => {
    const question = `question ${running.length}`;
    const stream = running.length % 2 === 1;
    const sent_ms = performance.now();
    const body = JSON.stringify({ messages: [{ role: 'user', content: question }], max_tokens: 6, stream, tee: true });
    running.push(
      ask(`${url}/v1/chat/completions`, { headers, body })
        .then((answer) => wrongWith(answer, stream, question))
        .catch((error: NodeJS.ErrnoException) => error.code ?? error.message)
        .then((wrong) => ({ sent_ms, came_ms: performance.now(), wrong })),
    );
  };
  // By the clock and not by the timer: a busy machine makes a timer late, and the rate would drop.
  const started_ms = performance.now();
  const timer = setInterval(() => {
    while (running.length < ((performance.now() - started_ms) / 1000) * per_second) send();
  }, 10);
  return {
    stop() {
      clearInterval(timer);
      return Promise.all(running);
    },
  };
}

function wrongWith(answer: Answer, stream: boolean, question: string): string | null {
  if (answer.status !== 200 || !answer.complete) return `${answer.status} ${answer.text.slice(0, 300)}`;
  const bodies = stream ? answer.payloads().filter((one) => one.startsWith('{')) : [answer.text];
  const carriers = bodies.map((one) => JSON.parse(one).attestation).filter((one) => one !== undefined);
  if (carriers.length !== 1) return `${carriers.length} attestations: ${answer.text.slice(-300)}`;
  const [{ raw, nonce, evidence }] = carriers;
  if (createHash('sha256').update(raw).digest('hex') !== nonce) return 'the nonce is not the hash of raw';
  if (Buffer.from(evidence[0].report, 'base64').toString('hex', 4, 36) !== nonce)
    return 'the report holds another nonce';
  return splitRaw(raw).request.includes(`"${question}"`) ? null : 'an answer to another question';
}
