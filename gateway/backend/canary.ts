// The canary: sends the backend a question that any language model can answer, and checks that the answer makes sense and is stable. A
// backend can respond 200 with garbage (vllm-project/vllm#57224: an H100 under TDX), and a signature over garbage is valid.
import type { Logger } from 'pino';
import * as z from 'zod';
import { ANY_TEXT } from '../base/config.ts';
import { asProblem } from '../base/problem.ts';
import type { Backend, Canary, CanaryResult } from './backend.ts';
import { collect } from './probe.ts';

const QUESTION = 'What is the capital of France? Answer with its name only.';
/** Enough for a model that reasons before it writes the name. */
const MAX_TOKENS = 256;
const LIMITS = { max_bytes: 1024 * 1024, timeout_ms: 60_000 };
/** The interval while the backend loads its model. A backend that rejects the question, such as one for embeddings, has the usual one. */
const RETRY_MS = 5_000;
const LOADING = /^(backend_\w+|http_5\d\d|timeout)$/;
/** The number of characters in which answers must agree. Later ones may differ, because the other requests of a batch affect the result. */
const SAME_CHARACTERS = 16;

const modelsSchema = z.object({ data: z.array(z.object({ id: z.string().min(1) })).min(1) });
const answerSchema = z.object({
  choices: z
    .array(
      z.object({
        finish_reason: z.string().nullish(),
        message: z.object({
          content: z.string().nullish(),
          reasoning_content: z.string().nullish(),
          reasoning: z.string().nullish(),
        }),
      }),
    )
    .min(1),
});

class Unavailable extends Error {
  readonly reason: string;
  constructor(reason: string) {
    super(reason);
    this.reason = reason;
  }
}

interface CanaryOptions {
  /** 0: the canary is off. */
  readonly canary_interval_ms: number;
  readonly canary_expect: string;
  readonly backend_api_key: string | null;
}

/** A backend under test. `name` null: it is the only one. */
interface CanaryTarget {
  readonly name: string | null;
  readonly call: Backend['call'];
  /** Whether requests for this model go to it; absent: all do. */
  serves?(model: string): boolean;
}

/** `backends` returns the backends to test now. */
export function startCanary(backends: () => readonly CanaryTarget[], options: CanaryOptions, log: Logger): Canary {
  const { canary_interval_ms: interval_ms, canary_expect: expected, backend_api_key } = options;
  let result: CanaryResult = { state: interval_ms === 0 ? 'off' : 'pending' };
  let timer: NodeJS.Timeout | null = null;
  let closed = false;

  async function test(): Promise<void> {
    const found = await testAll(backends(), backend_api_key, expected);
    if (closed) return;
    const stays = found.state === 'unavailable' && result.state === 'wrong';
    if (!stays && (found.state !== result.state || found.reason !== result.reason))
      log[found.state === 'wrong' ? 'error' : 'info'](found, 'canary');
    // A wrong result stays until a good one: a backend that is too busy to answer has not recovered.
    if (!stays) result = { ...found, at: new Date().toISOString() };
    const loading = found.state === 'unavailable' && LOADING.test(found.reason ?? '');
    timer = setTimeout(test, loading ? Math.min(RETRY_MS, interval_ms) : interval_ms).unref();
  }

  if (interval_ms > 0) timer = setTimeout(test, 0);
  return {
    get result() {
      return result;
    },
    close() {
      closed = true;
      clearTimeout(timer ?? undefined);
    },
  };
}

/** Returns `wrong` as soon as one backend is wrong, else `good` if one is good, else the last result. */
async function testAll(backends: readonly CanaryTarget[], key: string | null, expected: string): Promise<CanaryResult> {
  let result: CanaryResult = { state: 'unavailable', reason: 'no_backend' };
  for (const backend of backends) {
    const found = await testBackend(backend, key, expected);
    if (found.state === 'wrong') return backend.name === null ? found : { ...found, backend: backend.name };
    if (result.state !== 'good') result = found;
  }
  return result;
}

async function testBackend(backend: CanaryTarget, key: string | null, expected: string): Promise<CanaryResult> {
  const headers: Record<string, string> = { accept: 'application/json', 'content-type': 'application/json' };
  if (key !== null) headers.authorization = `Bearer ${key}`;
  try {
    const models = modelsSchema.safeParse(await fetchJson(backend, { path: '/models', headers, body: null }));
    if (!models.success) throw new Unavailable('no_model');
    const model = models.data.data.find(({ id }) => backend.serves?.(id) ?? true)?.id;
    if (model === undefined) throw new Unavailable('no_model');
    const messages = [{ role: 'user', content: QUESTION }];
    const body = JSON.stringify({ model, messages, temperature: 0, max_tokens: MAX_TOKENS });
    const question = { path: '/chat/completions', headers, body };
    const first = answerOf(await fetchJson(backend, question));
    const second = answerOf(await fetchJson(backend, question));
    for (const { text, cut } of [first, second]) {
      const reason = faultIn(text, expected);
      // Reasoning that was cut off may not have reached the name.
      if (cut && (reason === 'empty' || reason === 'unexpected')) throw new Unavailable('cut');
      if (reason !== null) return { state: 'wrong', reason };
    }
    const same = first.text.slice(0, SAME_CHARACTERS) === second.text.slice(0, SAME_CHARACTERS);
    return same ? { state: 'good' } : { state: 'wrong', reason: 'changed' };
  } catch (error) {
    return { state: 'unavailable', reason: error instanceof Unavailable ? error.reason : asProblem(error).code };
  }
}

/** The fault of an answer; null: none is visible. */
function faultIn(answer: string, expected: string): string | null {
  const text = answer.trim();
  if (text === '') return 'empty';
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are searched for
  if (/[\u0000-\u0008\u000e-\u001f\ufffd]/.test(text)) return 'not_text';
  if (isRepetition(text)) return 'repetition';
  return expected === ANY_TEXT || text.toLowerCase().includes(expected.toLowerCase()) ? null : 'unexpected';
}

/** One character over and over, the output of logits that are NaN: `!!!!!!!!`. */
function isRepetition(text: string): boolean {
  const characters = [...text.replace(/\s/g, '')];
  const counts = new Map<string, number>();
  for (const one of characters) counts.set(one, (counts.get(one) ?? 0) + 1);
  return characters.length >= SAME_CHARACTERS && Math.max(...counts.values()) > 0.8 * characters.length;
}

/** The text of the model's answer, its reasoning first. @throws {Unavailable} */
function answerOf(value: unknown): { readonly text: string; readonly cut: boolean } {
  const parsed = answerSchema.safeParse(value);
  if (!parsed.success) throw new Unavailable('no_answer');
  const [choice] = parsed.data.choices;
  const { content, reasoning_content, reasoning } = choice?.message ?? {};
  return {
    text: `${reasoning_content ?? reasoning ?? ''}${content ?? ''}`,
    cut: choice?.finish_reason === 'length',
  };
}

/** Posts the body, or gets the path without one. @throws {Unavailable} */
async function fetchJson(backend: CanaryTarget, request: Parameters<typeof collect>[1]): Promise<unknown> {
  const { status, body, fault } = await collect(backend, request, LIMITS);
  if (fault !== null) throw new Unavailable(fault === 'timeout' ? fault : fault.code);
  if (status !== 200) throw new Unavailable(`http_${status}`);
  try {
    return JSON.parse(body?.toString('utf8') ?? '');
  } catch {
    throw new Unavailable('no_answer');
  }
}
