// The bytes that the bench's backend answers with, and by which its load generator knows a right answer from a wrong one.

const ID = 'chatcmpl-bench';
const CREATED = 1_700_000_000;

/** A whole answer of exactly `bytes`, at least 512. */
export function wholeAnswer(bytes: number): Buffer {
  const body = (content: string) =>
    JSON.stringify({
      id: ID,
      object: 'chat.completion',
      created: CREATED,
      model: 'bench',
      choices: [{ index: 0, message: { role: 'assistant', content }, logprobs: null, finish_reason: 'stop' }],
      usage: { prompt_tokens: 48, completion_tokens: 128, total_tokens: 176 },
    });
  const words = 'the Danube passes Vienna, Bratislava, Budapest and Belgrade; ';
  const room = bytes - body('').length;
  if (room < 0) throw new RangeError(`an answer of ${bytes} bytes is too small`);
  return Buffer.from(body(words.repeat(Math.ceil(room / words.length)).slice(0, room)));
}

const event = (choice: object, more: object = {}): string =>
  `data: ${JSON.stringify({ id: ID, object: 'chat.completion.chunk', created: CREATED, model: 'bench', choices: [choice], ...more })}\n\n`;

const delta = (content: object): string => event({ index: 0, delta: content, logprobs: null, finish_reason: null });

/** A delta carries the moment at which it was written: `@` and 13 digits of microseconds and `@`. No other event has an `@`. */
export const STAMP = 0x40;
export const STAMP_DIGITS = 13;

export const ROLE = delta({ role: 'assistant', content: '' });
export const FINISH =
  event({ index: 0, delta: {}, logprobs: null, finish_reason: 'stop' }) +
  `data: ${JSON.stringify({ id: ID, object: 'chat.completion.chunk', created: CREATED, model: 'bench', choices: [], usage: { prompt_tokens: 48, completion_tokens: 128, total_tokens: 176 } })}\n\n`;
export const DONE = 'data: [DONE]\n\n';

const [BEFORE, AFTER] = delta({ content: ' word STAMP' }).split('STAMP') as [string, string];

export function stampedDelta(now_us: number): string {
  return `${BEFORE}@${String(Math.round(now_us)).padStart(STAMP_DIGITS, '0')}@${AFTER}`;
}
