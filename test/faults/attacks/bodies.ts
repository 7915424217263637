// Large requests with tee, many at once and again and again, from one key.
import { request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { attack, untilEnd } from './attack.ts';

/** For those that are under way at the end, before one more is asked by itself. */
const REST_MS = 3_000;
/** As clients do. */
const TRIES = 4;

interface Options {
  readonly at_once: number;
  readonly bytes: number;
  /** What the text of the prompt is made of. */
  readonly text: string;
}

attack<Options>(async (given) => {
  const { url, key, options, goesOn } = given;
  const { at_once, bytes, text } = options;
  // As JSON writes it.
  const filler = text.repeat(Math.floor(bytes / (Buffer.byteLength(JSON.stringify(text)) - 2)));
  const body = Buffer.from(JSON.stringify({ model: 'm', messages: [{ role: 'user', content: filler }], tee: true }));
  const became: Record<string, number> = {};

  const once = () =>
    new Promise<string>((resolve) => {
      const headers = {
        authorization: `Bearer ${key}`,
        'content-type': 'application/json',
        'content-length': body.length,
      };
      const asked = request(`${url}/v1/chat/completions`, { method: 'POST', headers, agent: false }, (answer) => {
        let start = '';
        answer.on('data', (chunk: Buffer) => {
          if (start.length < 1000) start += chunk.toString('latin1', 0, 1000);
        });
        answer.on('end', () => resolve(`${answer.statusCode} ${/"code":"(\w+)"/.exec(start)?.[1] ?? ''}`));
        answer.on('error', () => resolve('cut'));
      });
      asked.on('error', ({ code }: NodeJS.ErrnoException) => resolve(`no answer: ${code}`));
      asked.end(body);
    });

  async function client(): Promise<void> {
    while (goesOn()) {
      const what = await once();
      became[what] = (became[what] ?? 0) + 1;
      // As `retry-after` says.
      if (!what.startsWith('200')) await sleep(1_000);
    }
  }
  const all = Array.from({ length: at_once }, client);
  await untilEnd(given);
  await Promise.race([Promise.all(all), sleep(REST_MS)]);
  let afterwards = await once();
  for (let i = 0; i < TRIES && !afterwards.startsWith('200'); i++) {
    await sleep(1_000);
    afterwards = await once();
  }
  return { became, afterwards };
});
