// A scene: what the backend is to answer. It travels as the model's name, which every gateway passes on.

export type Scene =
  /** One whole answer of exactly `bytes`; to a request of `asked_bytes`, about 450 by default, which the backend is not told. */
  | { readonly kind: 'whole'; readonly bytes: number; readonly asked_bytes?: number }
  /** A stream of `chunks`, `rate` of them a second, the first at once. */
  | { readonly kind: 'paced'; readonly chunks: number; readonly rate: number }
  /** A stream of `chunks` as fast as they are taken, one write each. */
  | { readonly kind: 'burst'; readonly chunks: number }
  /** One chunk, then silence until the other side leaves. */
  | { readonly kind: 'hold' };

export function sceneName(scene: Scene): string {
  switch (scene.kind) {
    case 'whole':
      return `whole-${scene.bytes}`;
    case 'paced':
      return `paced-${scene.chunks}-${scene.rate}`;
    case 'burst':
      return `burst-${scene.chunks}`;
    case 'hold':
      return 'hold';
  }
}

export function parseScene(name: string): Scene | null {
  const [kind, a, b] = name.split('-');
  const [first, second] = [Number(a), Number(b)];
  if (kind === 'whole') return { kind, bytes: first };
  if (kind === 'paced') return { kind, chunks: first, rate: second };
  if (kind === 'burst') return { kind, chunks: first };
  if (kind === 'hold') return { kind };
  return null;
}

const SYSTEM =
  'You are a helpful assistant. Answer in a few clear sentences, name your sources, and say so when you do not know.';
const QUESTION = 'Which rivers flow through more than three capitals, and what would change if one of them ran dry?';

/** Digits after this are the request's number, where requests must differ: equal raws would share one signature. */
export const USER = 'bench-';
export const USER_DIGITS = 10;

/** The client's body: as a short conversation has, or with a question as long as was asked for. `model` stands first, so that a backend finds it soon. */
export function requestBody(scene: Scene, tee: boolean, batch = false): string {
  const short = bodyWith(QUESTION, scene, tee, batch);
  const more = scene.kind === 'whole' ? (scene.asked_bytes ?? 0) - short.length : 0;
  return more > 0 ? bodyWith(QUESTION + ' more'.repeat(Math.ceil(more / 5)).slice(0, more), scene, tee, batch) : short;
}

function bodyWith(question: string, scene: Scene, tee: boolean, batch: boolean): string {
  return JSON.stringify({
    model: sceneName(scene),
    user: `${USER}${'0'.repeat(USER_DIGITS)}`,
    messages: [
      { role: 'system', content: SYSTEM },
      { role: 'user', content: question },
    ],
    max_tokens: 512,
    temperature: 0.7,
    ...(scene.kind === 'whole' ? {} : { stream: true, stream_options: { include_usage: true } }),
    ...(tee ? { tee: batch ? { batch } : true } : {}),
  });
}
