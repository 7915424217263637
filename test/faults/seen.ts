// What one client saw, in a few words, after everything that could be checked about it was checked.
import { type VerificationError, verifyAttestation } from '../../verify/index.ts';
import { type Answer, ask } from '../client.ts';
import { ANSWER, answerTo } from './words.ts';

/** Words that begin so are what must never happen. */
export const NEVER = 'NEVER: ';

/** Words that begin so are a client's that asked for no proof. */
export const PLAIN = 'no tee: ';

const HANG_MS = 60_000;

export interface Question {
  readonly question: string;
  readonly stream: boolean;
  readonly tee: boolean;
  /** Leaves when this says so, each time something came. */
  readonly leaves?: (text: string) => boolean;
  /** Longer than this is a hang. */
  readonly hang_ms?: number;
}

/** Asks as a client would, and says what it saw. `root` is the simulated root. */
export async function see(url: string, asked: Question, root: () => string): Promise<string> {
  const saw = await seen(url, asked, root);
  return asked.tee || saw.startsWith(NEVER) ? saw : `${PLAIN}${saw}`;
}

async function seen(url: string, asked: Question, root: () => string): Promise<string> {
  const { question, stream, tee, leaves, hang_ms = HANG_MS } = asked;
  const body = JSON.stringify({
    model: 'scripted',
    messages: [{ role: 'user', content: question }],
    ...(stream ? { stream } : {}),
    ...(tee ? { tee } : {}),
  });
  const signal = AbortSignal.timeout(hang_ms);
  let text = '';
  try {
    const answer = await ask(`${url}/v1/chat/completions`, {
      body,
      signal,
      onData(chunk) {
        text += chunk;
        return leaves?.(text) !== true;
      },
    });
    if (signal.aborted) return `${NEVER}hung`;
    return await judge(answer, asked, body, root);
  } catch (error) {
    if (signal.aborted) return `${NEVER}hung`;
    return `no answer: ${(error as NodeJS.ErrnoException).code ?? (error as Error).message}`;
  }
}

async function judge(answer: Answer, asked: Question, body: string, root: () => string): Promise<string> {
  if (answer.status !== 200) return refusal(answer);
  return asked.stream ? judgeStream(answer, asked, body, root) : judgeWhole(answer, asked, body, root);
}

function refusal(answer: Answer): string {
  if (!answer.complete) return `${answer.status}, cut`;
  const { error } = answer.json();
  const waits = answer.headers['retry-after'] === undefined ? '' : ', retry-after';
  return `${answer.status} ${error.code}${waits}`;
}

async function judgeWhole(answer: Answer, asked: Question, body: string, root: () => string): Promise<string> {
  if (!answer.complete) return 'cut';
  const value = answer.json();
  if (value.choices[0].message.content !== answerTo(asked.question)) return `${NEVER}another's answer`;
  if (!asked.tee) return 'the answer';
  const wrong = await unproven(answer.text, { request: body, response: answer.text }, root);
  return wrong ?? 'the answer with its proof';
}

async function judgeStream(answer: Answer, asked: Question, body: string, root: () => string): Promise<string> {
  const events = answer.payloads().flatMap((payload) => parsed(payload));
  const done = answer.payloads().includes('[DONE]');
  const content = events.map((one) => one.choices?.[0]?.delta?.content ?? '').join('');
  if (
    !answerTo(asked.question).startsWith(content) &&
    content.includes('answer to') &&
    !content.includes(asked.question)
  )
    return `${NEVER}another's answer`;
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
