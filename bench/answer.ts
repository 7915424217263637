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

export function stampedDelta(now_us: number, more_bytes = 0): string {
  return `${BEFORE}@${String(Math.round(now_us)).padStart(STAMP_DIGITS, '0')}@${' '.repeat(more_bytes)}${AFTER}`;
}

// The same of /v1/responses. Its last event holds the text of all deltas.

const named = (event: { type: string }): string => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
const PLACE = { item_id: 'msg-bench', output_index: 0, content_index: 0 };
const response = (status: string, output: readonly object[]) => ({
  id: 'resp-bench',
  object: 'response',
  created_at: CREATED,
  status,
  error: null,
  model: 'bench',
  output,
});

export const RESPONSE_START = named({ type: 'response.created', response: response('in_progress', []) } as {
  type: string;
});

const [NAMED_BEFORE, NAMED_AFTER] = named({
  type: 'response.output_text.delta',
  ...PLACE,
  delta: 'STAMP',
  logprobs: [],
} as { type: string }).split('STAMP') as [string, string];

export const responseText = (now_us: number): string =>
  ` word @${String(Math.round(now_us)).padStart(STAMP_DIGITS, '0')}@`;
export const responseDelta = (text: string): string => NAMED_BEFORE + text + NAMED_AFTER;

export function responseEnd(text: string): string {
  const content = [{ type: 'output_text', text, annotations: [] }];
  const output = [{ type: 'message', id: 'msg-bench', status: 'completed', role: 'assistant', content }];
  return named({ type: 'response.completed', response: response('completed', output) } as { type: string });
}
