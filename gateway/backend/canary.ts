// The canary: sends the backend a question that any language model can answer, and checks that the answer makes sense and repeats, and that
// the parameters of sampling have their effect. A backend can respond 200 with garbage (vllm-project/vllm#57224: an H100 under TDX), and a
// signature over garbage is valid.
import type { Logger } from 'pino';
import * as z from 'zod';
import { ANY_TEXT } from '../base/config.ts';
import { asProblem, Problem } from '../base/problem.ts';
import type { Backend, Canary, CanaryChecks, CanaryResult, CanaryVerdict } from './backend.ts';
import { collect } from './probe.ts';

const QUESTION = 'What is the capital of France? Answer with its name only.';
/** Enough for a model that reasons before it writes the name. */
const MAX_TOKENS = 256;
/** A request whose samples differ where sampling works. */
const SAMPLED = 'Write twelve random words.';
const HOT = { temperature: 2, max_tokens: 16 };
const LIMITS = { max_bytes: 1024 * 1024, timeout_ms: 60_000 };
/** The interval while the backend loads its model. A backend that rejects the question, such as one for embeddings, has the usual one. */
const RETRY_MS = 5_000;
const LOADING = /^(backend_\w+|http_5\d\d|timeout)$/;
/** The backend does not know a parameter. */
const REJECTED = /^http_(400|422)$/;
/** The number of characters in which answers must agree. Later ones may differ, because the other requests of a batch affect the result. */
const SAME_CHARACTERS = 16;
/** Engines that know `top_k`, by the `owned_by` of their models. Others may ignore it. */
const KNOWS_TOP_K = new Set(['vllm', 'sglang', 'llamacpp']);

const modelsSchema = z.object({
  data: z.array(z.object({ id: z.string().min(1), owned_by: z.unknown().optional() })).min(1),
});
const answerSchema = z.object({
  choices: z
    .array(
      z.object({
        finish_reason: z.string().nullish(),
        token_ids: z.unknown().optional(),
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

/** The response to a request with tee while the canary is wrong at every backend that could serve it. */
export function canaryProblem(): Problem {
  return new Problem(
    'attestation_unavailable',
    'The backend answers with nonsense what any model knows, so nothing is attested: /health says what is wrong.',
    { retryAfterSeconds: RETRY_MS / 1000 },
  );
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
  let each: ReadonlyMap<string | null, CanaryResult> = new Map();
  let timer: NodeJS.Timeout | null = null;
  let closed = false;

  /** A wrong result stays until a good one: a backend that is too busy to answer has not recovered. */
  async function testOne(backend: CanaryTarget): Promise<[name: string | null, result: CanaryResult]> {
    const found = await testBackend(backend, backend_api_key, expected);
    const before = each.get(backend.name);
    const stays = found.state === 'unavailable' && before?.state === 'wrong';
    return [backend.name, stays ? before : { ...found, at: new Date().toISOString() }];
  }

  async function test(): Promise<void> {
    const tested = new Map(await Promise.all(backends().map(testOne)));
    if (closed) return;
    const found = summaryOf(tested);
    if (found.state !== result.state || found.reason !== result.reason)
      log[found.state === 'wrong' ? 'error' : 'info'](found, 'canary');
    [each, result] = [tested, found];
    const loading = found.state === 'unavailable' && LOADING.test(found.reason ?? '');
    timer = setTimeout(test, loading ? Math.min(RETRY_MS, interval_ms) : interval_ms).unref();
  }

  if (interval_ms > 0) timer = setTimeout(test, 0);
  return {
    get result() {
      return result;
    },
    isWrong: (backend) => each.get(backend)?.state === 'wrong',
    get usable() {
      return each.size === 0 || [...each.values()].some(({ state }) => state !== 'wrong');
    },
    close() {
      closed = true;
      clearTimeout(timer ?? undefined);
    },
  };
}

/** Returns `wrong` where one backend is wrong, else `good` where one is good, else the last result. */
function summaryOf(each: ReadonlyMap<string | null, CanaryResult>): CanaryResult {
  for (const [name, result] of each)
    if (result.state === 'wrong') return name === null ? result : { ...result, backend: name };
  const results = [...each.values()];
  return (
    results.find(({ state }) => state === 'good') ??
    results.at(-1) ?? { state: 'unavailable', reason: 'no_backend', at: new Date().toISOString() }
  );
}

// The test of one backend: two answers at temperature 0, then samples. vLLM under confidential computing once read the parameters of
// sampling as zeros, because its memory for copies was not pinned (vllm-project/vllm#50671): answers make sense then, and never vary.

interface Said {
  readonly text: string;
  readonly cut: boolean;
  readonly has_ids: boolean;
}

type Ask = (content: string, parameters: object) => Promise<Said>;

async function testBackend(backend: CanaryTarget, key: string | null, expected: string): Promise<CanaryResult> {
  const headers: Record<string, string> = { accept: 'application/json', 'content-type': 'application/json' };
  if (key !== null) headers.authorization = `Bearer ${key}`;
  try {
    const models = modelsSchema.safeParse(await fetchJson(backend, { path: '/models', headers, body: null }));
    if (!models.success) throw new Unavailable('no_model');
    const model = models.data.data.find(({ id }) => backend.serves?.(id) ?? true);
    if (model === undefined) throw new Unavailable('no_model');
    return await judge(
      async (content, parameters) => {
        const body = JSON.stringify({ model: model.id, messages: [{ role: 'user', content }], ...parameters });
        return answerOf(await fetchJson(backend, { path: '/chat/completions', headers, body }));
      },
      { expected, knows_top_k: KNOWS_TOP_K.has(String(model.owned_by)) },
    );
  } catch (error) {
    return { state: 'unavailable', reason: error instanceof Unavailable ? error.reason : asProblem(error).code };
  }
}

/** @throws {Unavailable} */
async function judge(
  ask: Ask,
  { expected, knows_top_k }: { readonly expected: string; readonly knows_top_k: boolean },
): Promise<CanaryResult> {
  const checks = { sense: 'unknown', repeats: 'unknown', sampling: 'unknown', top_k: 'unknown' } as CanaryChecks;
  const wrong = (check: keyof CanaryChecks, reason: string) =>
    ({ state: 'wrong', reason, checks: { ...checks, [check]: 'wrong' } }) as const;
  const greedy = { temperature: 0, max_tokens: MAX_TOKENS };
  const [first, second] = [await ask(QUESTION, greedy), await ask(QUESTION, greedy)];
  let cut = false;
  for (const answer of [first, second]) {
    const reason = faultIn(answer.text, expected);
    // Reasoning that was cut off may not have reached the name.
    if (answer.cut && (reason === 'empty' || reason === 'unexpected')) cut = true;
    else if (reason !== null) return wrong('sense', reason);
  }
  checks.sense = cut ? 'unknown' : 'good';
  if (first.text.slice(0, SAME_CHARACTERS) !== second.text.slice(0, SAME_CHARACTERS))
    return wrong('repeats', 'changed');
  checks.repeats = 'good';
  checks.sampling = await confirmed(async (seed) => {
    const one = await ask(SAMPLED, { ...HOT, seed });
    const two = await ask(SAMPLED, { ...HOT, seed: seed + 1 });
    if (one.text === '' || two.text === '') return 'unknown';
    return one.text === two.text ? 'wrong' : 'good';
  });
  if (checks.sampling === 'wrong') return wrong('sampling', 'same_samples');
  checks.top_k = await confirmed(async (seed) => {
    const start = (await ask(QUESTION, { ...HOT, seed, top_k: 1 })).text.slice(0, SAME_CHARACTERS);
    if (start !== '' && first.text.startsWith(start)) return 'good';
    return start !== '' && knows_top_k ? 'wrong' : 'unknown';
  });
  if (checks.top_k === 'wrong') return wrong('top_k', 'top_k_ignored');
  if (cut) return { state: 'unavailable', reason: 'cut', checks };
  return { state: 'good', checks, token_ids: await givesIds(ask) };
}

async function givesIds(ask: Ask): Promise<boolean> {
  try {
    return (await ask(QUESTION, { temperature: 0, max_tokens: 1, return_token_ids: true })).has_ids;
  } catch (error) {
    if (error instanceof Unavailable) return false;
    throw error;
  }
}

/** Makes a check that failed again with other seeds, because chance can fail it once. */
async function confirmed(check: (seed: number) => Promise<CanaryVerdict>): Promise<CanaryVerdict> {
  try {
    const verdict = await check(1);
    return verdict === 'wrong' ? await check(3) : verdict;
  } catch (error) {
    if (error instanceof Unavailable && REJECTED.test(error.reason)) return 'unknown';
    throw error;
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
function answerOf(value: unknown): Said {
  const parsed = answerSchema.safeParse(value);
  if (!parsed.success) throw new Unavailable('no_answer');
  const [choice] = parsed.data.choices;
  const { content, reasoning_content, reasoning } = choice?.message ?? {};
  return {
    text: `${reasoning_content ?? reasoning ?? ''}${content ?? ''}`,
    cut: choice?.finish_reason === 'length',
    has_ids: Array.isArray(choice?.token_ids),
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
