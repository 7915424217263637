// What the bench's processes say to one another, and what its backend answers: both ends know a right answer from a wrong one.

/** What the backend is to answer. It travels as the model's name, which every gateway passes on. */
export type Scene =
  /** One whole answer of 1 KB to a request of `asked` bytes, which the backend is not told. */
  | { readonly kind: 'whole'; readonly asked: number }
  /** A stream of `chunks`, `rate` of them a second, the first at once. */
  | { readonly kind: 'paced'; readonly chunks: number; readonly rate: number }
  /** One chunk, then silence until the other side leaves. */
  | { readonly kind: 'hold' };

export const SMALL: Scene = { kind: 'whole', asked: 1024 };

const sceneName = (scene: Scene): string =>
  scene.kind === 'paced' ? `paced-${scene.chunks}-${scene.rate}` : scene.kind;

/** LiteLLM puts its provider's name before it. */
export function parseScene(model: string): Scene | null {
  const [kind, chunks, rate] = model.replace('openai/', '').split('-');
  if (kind === 'whole') return SMALL;
  if (kind === 'paced') return { kind, chunks: Number(chunks), rate: Number(rate) };
  return kind === 'hold' ? { kind } : null;
}

export type Tee = 'none' | 'strict' | 'batch';

/** Whom to ask, and how. */
export interface Aim {
  readonly port: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly tee: Tee;
  /** The backend's bytes must come through; a gateway that rewrites them is checked by what they say. */
  readonly exact: boolean;
}

const QUESTION = 'Which rivers flow through more than three capitals, and what would change if one of them ran dry?';
let numbered = 0;

/** A client's body. No two are equal: the sidecar signs equal raws once. */
export function requestBody(scene: Scene, tee: Tee): string {
  const user = `bench-${String(numbered++).padStart(10, '0')}`;
  const body = (content: string) =>
    JSON.stringify({
      model: sceneName(scene),
      user,
      messages: [
        { role: 'system', content: 'You are a helpful assistant. Answer in a few clear sentences.' },
        { role: 'user', content },
      ],
      max_tokens: 512,
      ...(scene.kind === 'whole' ? {} : { stream: true, stream_options: { include_usage: true } }),
      ...(tee === 'none' ? {} : { tee: tee === 'batch' ? { batch: true } : true }),
    });
  const more = scene.kind === 'whole' ? scene.asked - body(QUESTION).length : 0;
  return more > 0 ? body(QUESTION + ' more'.repeat(Math.ceil(more / 5)).slice(0, more)) : body(QUESTION);
}

const ANSWER_BYTES = 1024;
const COMMON = { id: 'chatcmpl-bench', created: 1_700_000_000, model: 'bench' };
const USAGE = { prompt_tokens: 48, completion_tokens: 128, total_tokens: 176 };
const whole = (content: string) =>
  JSON.stringify({
    ...COMMON,
    object: 'chat.completion',
    choices: [{ index: 0, message: { role: 'assistant', content }, logprobs: null, finish_reason: 'stop' }],
    usage: USAGE,
  });
export const ANSWER: string = whole('word '.repeat(ANSWER_BYTES).slice(0, ANSWER_BYTES - whole('').length));

const event = (choices: readonly object[], more: object = {}): string =>
  `data: ${JSON.stringify({ ...COMMON, object: 'chat.completion.chunk', choices, ...more })}\n\n`;
const delta = (content: object) => event([{ index: 0, delta: content, logprobs: null, finish_reason: null }]);

export const ROLE: string = delta({ role: 'assistant', content: '' });
export const END: string = `${event([{ index: 0, delta: {}, logprobs: null, finish_reason: 'stop' }])}${event([], { usage: USAGE })}data: [DONE]\n\n`;
const [BEFORE, AFTER] = delta({ content: ' word STAMP' }).split('STAMP') as [string, string];

/** A delta carries the moment at which it was written. No other event has an `@`. */
export const STAMP: RegExp = /@(\d{13})@/g;
export const stamped = (at_us: number): string => `${BEFORE}@${String(Math.round(at_us)).padStart(13, '0')}@${AFTER}`;

/** Why a whole answer is wrong; null when it is right. */
export function wrongWhole(body: string, { exact, tee }: Pick<Aim, 'exact' | 'tee'>): string | null {
  if (tee === 'none') {
    if (exact) return body === ANSWER ? null : 'not the bytes of the backend';
    return body.includes('"finish_reason":"stop"') ? null : 'no finish_reason in the answer';
  }
  if (!body.startsWith(`${ANSWER.slice(0, -1)},"attestation":{"raw":"`)) return 'no attestation behind the answer';
  return body.includes('"evidence":[{"arch":"') ? null : 'no evidence in the attestation';
}

/** Why a stream is wrong. `rest`: what came behind its last stamped chunk. */
export function wrongStream(chunks: number, rest: string, wanted: number, tee: Tee): string | null {
  if (chunks !== wanted) return `${chunks} of ${wanted} chunks`;
  if (!rest.includes('data: [DONE]') || !rest.includes('"finish_reason":"stop"')) return 'no end of the stream';
  return tee === 'none' || rest.includes('"attestation":{"raw":"') ? null : 'no attestation in the stream';
}

/** Microseconds since the machine's start: one clock for all its processes (CLOCK_MONOTONIC). */
export const now_us = (): number => Number(process.hrtime.bigint()) / 1e3;
export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
