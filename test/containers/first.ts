// From nothing to the first verified answer: what an operator waits for after `compose up`.
import { ask } from '../support/client.ts';
import type { Stage } from './stage.ts';

const PATIENCE_MS = 60_000;

/** Milliseconds from the start of `compose up` to an answer with tee that the gateway verifies. */
export async function firstAnswer(stage: Stage): Promise<number> {
  const started = performance.now();
  await stage.compose('up', '--detach', '--no-build');
  for (;;) {
    const reason = await tryOnce(stage).catch((error: NodeJS.ErrnoException) => error.code ?? error.message);
    const ms = performance.now() - started;
    if (reason === null) return ms;
    if (ms > PATIENCE_MS)
      throw new Error(`no verified answer in ${PATIENCE_MS} ms: ${reason}\n${await stage.compose('logs')}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** null, or why not yet. */
async function tryOnce({ url, headers }: Stage): Promise<string | null> {
  const body = JSON.stringify({ messages: [{ role: 'user', content: 'Hello' }], max_tokens: 8, tee: true });
  const answer = await ask(`${url}/v1/chat/completions`, { headers, body });
  if (answer.status !== 200) return `${answer.status} ${answer.text}`;
  const verdict = await ask(`${url}/~sev_gpu@1.0/verify`, { headers, body: answer.text });
  return verdict.text === 'true' ? null : verdict.text;
}
