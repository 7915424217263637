// Judges an answer on its bytes: whole or cut, its own or another's, proven or not.
import { type VerificationError, verifyAttestation } from '../../verify/index.ts';
import type { Answer } from '../support/client.ts';
import { ANSWER, answerTo } from './words.ts';

/** Words that begin so are what must never happen. */
export const NEVER = 'NEVER: ';

export interface Asked {
  readonly question: string;
  readonly stream: boolean;
  readonly tee: boolean;
  /** With tee: the answer may share a signature. */
  readonly batch?: boolean;
}

/** What an answer shows, in words. `body` is the request as it was sent, `root` the simulated root. */
export async function judge(answer: Answer, asked: Asked, body: string, root: () => string): Promise<string> {
  if (answer.status !== 200) return refusal(answer);
  return asked.stream ? judgeStream(answer, asked, body, root) : judgeWhole(answer, asked, body, root);
}

function refusal(answer: Answer): string {
  if (!answer.complete) return `${answer.status}, cut`;
  const { error } = answer.json();
  const waits = answer.headers['retry-after'] === undefined ? '' : ', retry-after';
  return `${answer.status} ${error.code}${waits}`;
}

async function judgeWhole(answer: Answer, asked: Asked, body: string, root: () => string): Promise<string> {
  if (!answer.complete) return 'cut';
  const value = answer.json();
  if (value.choices[0].message.content !== answerTo(asked.question)) return `${NEVER}another's answer`;
  if (!asked.tee) return 'the answer';
  const wrong = await unproven(answer.text, { request: body, response: answer.text }, root);
  return wrong ?? 'the answer with its proof';
}

async function judgeStream(answer: Answer, asked: Asked, body: string, root: () => string): Promise<string> {
  const events = answer.payloads().flatMap((payload) => parsed(payload));
  const done = answer.payloads().includes('[DONE]');
  const content = events.map((one) => one.choices?.[0]?.delta?.content ?? '').join('');
  const finished = events.filter((one) => one.choices?.some((choice: Json) => Boolean(choice.finish_reason)));
  const error = events.find((one) => one.error !== undefined)?.error;
  // A backend that never ends says more than its question.
  if (content.startsWith(ANSWER) && !isPrefix(content, answerTo(asked.question))) return `${NEVER}another's answer`;
  if (finished.length > 1) return `${NEVER}stop twice`;
  if (finished.length === 0) {
    if (done) return `${NEVER}[DONE] without stop`;
    if (error !== undefined) return `deltas, then error ${error.code}`;
    return answer.complete ? `${NEVER}an end without stop or error` : 'deltas, then cut';
  }
  if (content !== answerTo(asked.question)) return `${NEVER}stop before the answer's end`;
  if (!asked.tee) return done ? 'the stream whole' : 'stop, then cut';
  const { attestation } = finished[0] as Json;
  if (attestation === undefined) return `${NEVER}stop without proof`;
  const transcript = done ? { transcript: answer.body } : {};
  const wrong = await unproven(JSON.stringify(attestation), { request: body, ...transcript }, root);
  return wrong ?? (done ? 'stop with its proof' : 'stop with its proof, then cut');
}

const isPrefix = (a: string, b: string): boolean => a.startsWith(b) || b.startsWith(a);

// biome-ignore lint/suspicious/noExplicitAny: events of every shape
type Json = any;

function parsed(payload: string): Json[] {
  try {
    return [JSON.parse(payload)];
  } catch {
    return []; // [DONE], or an event that was cut
  }
}

/** null when the proof is right and about this very exchange. */
async function unproven(
  text: string,
  expected: { request: string; response?: string; transcript?: Uint8Array },
  root: () => string,
): Promise<string | null> {
  try {
    const { exchange } = await verifyAttestation(text, {
      simulatedRoot: root(),
      expected,
      without: { referenceValues: true, revocation: true },
    });
    return exchange.request === expected.request ? null : `${NEVER}another's proof`;
  } catch (error) {
    const failed = (error as VerificationError).checks?.find((check) => check.status === 'fail');
    return `${NEVER}a proof that is wrong: ${failed?.code ?? (error as Error).message}`;
  }
}
