// A client that asks one question, and what it saw in a few words.
import { ask } from '../support/client.ts';
import { type Asked, judge, NEVER } from './judge.ts';

/** Words that begin so are a client's that asked for no proof. */
export const PLAIN = 'no tee: ';

const HANG_MS = 60_000;

export interface Question extends Asked {
  /** Leaves when this says so, each time something came. */
  readonly leaves?: (text: string) => boolean;
  /** The API key. */
  readonly key?: string;
  /** Longer than this is a hang. */
  readonly hang_ms?: number;
}

/** Asks as a client would, and says what it saw. `root` is the simulated root. */
export async function see(url: string, asked: Question, root: () => string): Promise<string> {
  const saw = await seen(url, asked, root);
  return asked.tee || saw.startsWith(NEVER) ? saw : `${PLAIN}${saw}`;
}

async function seen(url: string, asked: Question, root: () => string): Promise<string> {
  const { question, stream, tee, batch = false, leaves, key, hang_ms = HANG_MS } = asked;
  const body = JSON.stringify({
    model: 'scripted',
    messages: [{ role: 'user', content: question }],
    ...(stream ? { stream } : {}),
    ...(tee ? { tee: batch ? { batch } : true } : {}),
  });
  const signal = AbortSignal.timeout(hang_ms);
  let text = '';
  let left = false;
  try {
    const answer = await ask(`${url}/v1/chat/completions`, {
      body,
      signal,
      ...(key === undefined ? {} : { headers: { authorization: `Bearer ${key}` } }),
      onData(chunk) {
        text += chunk;
        left = leaves?.(text) === true;
        return !left;
      },
    });
    if (signal.aborted) return `${NEVER}hung`;
    const saw = await judge(answer, asked, body, root);
    return left && !saw.startsWith(NEVER) ? 'left' : saw;
  } catch (error) {
    if (signal.aborted) return `${NEVER}hung`;
    return `no answer: ${(error as NodeJS.ErrnoException).code ?? (error as Error).message}`;
  }
}
