// The audit over vLLM with a real model: honest answers, a hidden prompt, another temperature, and 8-bit weights beside a named alternative.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Engine, openEngine } from '../../auditor/audit/engine.ts';
import { auditableOf } from '../../auditor/audit/ids.ts';
import { newTally, scoreAnswer } from '../../auditor/audit/score.ts';
import { randomFrom } from '../../demo/engine/random.ts';
import type { Exchange } from '../../verify/index.ts';
import { auditAll, exchangeOf, question, withoutIds, withoutPromptIds } from '../auditor/trial.ts';
import { MissingPart } from './build.ts';
import { installVllm, startVllm, type Vllm } from './vllm.ts';

const START_MS = 1_800_000;
const TEST_MS = 900_000;
const ANSWERS = 48;
const AT_ONCE = 16;
const RESAMPLES = 200;
const TOKENS = 1_000;

let missing: string | null = null;
try {
  installVllm();
} catch (error) {
  if (!(error instanceof MissingPart)) throw error;
  missing = error.message;
  console.warn(`SKIPPED: the audit over vLLM: this machine lacks ${missing}`);
}

const requestOf = (seed: number, more: object = {}) => ({
  model: 'smollm2',
  messages: [{ role: 'user', content: `Tell me about ${question(seed)}` }],
  temperature: 0,
  top_p: 1,
  max_tokens: 100,
  return_token_ids: true,
  seed,
  ...more,
});

async function answers(url: string, asked: object = {}, serves: (seed: number) => object = () => ({})) {
  const all: Exchange[] = [];
  for (let from = 1; from <= ANSWERS; from += AT_ONCE)
    all.push(
      ...(await Promise.all(
        Array.from({ length: AT_ONCE }, (_, i) => exchangeOf(url, requestOf(from + i, asked), serves(from + i))),
      )),
    );
  return all;
}

describe.skipIf(missing !== null)(`the audit over vLLM${missing === null ? '' : `, SKIPPED: ${missing}`}`, () => {
  let served: Vllm;
  let rounded: Vllm;
  let engine: Engine;
  beforeAll(async () => {
    served = await startVllm('bf16');
    rounded = await startVllm('int8');
    engine = await openEngine('--engine', served.url, null);
  }, START_MS);
  afterAll(async () => {
    await served?.close();
    await rounded?.close();
  });

  it(
    'finds honest answers consistent, at temperature 0 and sampled, by ids and by text',
    async () => {
      const greedy = await answers(served.url);
      const { tally, decision, account } = await auditAll(greedy, engine);
      console.log('honest', tally.greedy);
      expect([decision.verdict, account.findings]).toEqual(['CONSISTENT', []]);
      expect(tally.greedy.tokens).toBeGreaterThan(TOKENS);
      const text = await auditAll(greedy.map(withoutIds), engine);
      console.log('text alone', text.tally.text);
      expect(text.decision.verdict).toBe('CONSISTENT');
      const sampled = await auditAll(await answers(served.url, { temperature: 1 }), engine);
      expect([sampled.decision.verdict, sampled.account.findings]).toEqual(['CONSISTENT', []]);
    },
    TEST_MS,
  );

  it(
    'finds a hidden system prompt by ids and by gaps, and another temperature',
    async () => {
      const hidden = (seed: number) => ({
        messages: [
          { role: 'system', content: 'You are a helpful assistant. Be brief and polite.' },
          ...requestOf(seed).messages,
        ],
      });
      const swapped = await answers(served.url, {}, hidden);
      expect((await auditAll(swapped.slice(0, 1), engine)).decision.verdict).toBe('NOT CONSISTENT');
      const { decision } = await auditAll(swapped.map(withoutPromptIds), engine, { tokens: TOKENS });
      expect(decision.verdict).toBe('NOT CONSISTENT');
      for (const temperature of [0, 1]) {
        const cool = await answers(served.url, { temperature }, () => ({ temperature: 0.7 }));
        expect((await auditAll(cool, engine, { tokens: 400 })).decision.verdict).toBe('NOT CONSISTENT');
      }
    },
    TEST_MS,
  );

  it.each([0, 1])(
    'tells 8-bit weights by a named alternative, at temperature %i, in 9 of 10 resamples of 1,000 tokens',
    async (temperature) => {
      const against = await openEngine('--against', rounded.url, null);
      const share = async (url: string): Promise<number> => {
        const parts: { tokens: number; logRatio: number }[] = [];
        for (const exchange of await answers(url, { temperature })) {
          const tally = newTally(true);
          const auditable = auditableOf(exchange);
          if ('reason' in auditable) throw new Error(auditable.reason);
          await scoreAnswer('answer.json', auditable, tally, engine, against);
          if (tally.against !== null) parts.push(tally.against);
        }
        const random = randomFrom(1);
        let alarms = 0;
        for (let i = 0; i < RESAMPLES; i++) {
          let [tokens, logRatio] = [0, 0];
          while (tokens < TOKENS) {
            const part = parts[Math.floor(random() * parts.length)];
            tokens += part?.tokens ?? TOKENS;
            logRatio += part?.logRatio ?? 0;
          }
          // As one of two tests at 1 % in all.
          if (logRatio > Math.log(2 / 0.01)) alarms++;
        }
        return alarms / RESAMPLES;
      };
      const [found, honest] = [await share(rounded.url), await share(served.url)];
      console.log(`temperature ${temperature}: 8-bit weights found in ${found}, honest ones accused in ${honest}`);
      expect(found).toBeGreaterThanOrEqual(0.9);
      expect(honest).toBeLessThanOrEqual(0.01);
    },
    TEST_MS,
  );
});
