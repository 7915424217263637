// The audit's figures on the demo engine: what honest answers are called, and how many tokens show other weights and settings. Seeds are
// taken as they come. figures.long.ts counts false alarms over whole answers.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Engine, openEngine } from '../../auditor/audit/engine.ts';
import { decide } from '../../auditor/audit/rule.ts';
import type { Exchange } from '../../verify/index.ts';
import { startDemo, type Weights } from './demo.ts';
import { auditAll, exchangeOf, question, requestOf, withoutIds, withoutPromptIds } from './trial.ts';

let engine: Engine;
const running = new Map<Weights, ReturnType<typeof startDemo>>();
const served = (weights: Weights) => {
  const started = running.get(weights) ?? startDemo(weights);
  running.set(weights, started);
  return started;
};
beforeAll(async () => {
  engine = await openEngine('--engine', (await served(7)).url, null);
});
afterAll(async () => {
  for (const started of running.values()) await (await started).close();
});

interface Trial {
  readonly weights?: Weights;
  readonly asked?: object;
  /** What the service does in place of what was asked. */
  readonly serves?: (seed: number) => object;
  readonly signs?: (exchange: Exchange) => Exchange;
}

async function* answers({ weights = 7, asked = {}, serves = () => ({}), signs = (one) => one }: Trial) {
  const { url } = await served(weights);
  for (let seed = 1; ; seed++) yield signs(await exchangeOf(url, requestOf(seed, asked), serves(seed)));
}

const hidden = (seed: number) => ({
  messages: [
    { role: 'system', content: 'You are a helpful assistant. Be brief.' },
    { role: 'user', content: question(seed) },
  ],
});
const SAMPLED = { temperature: 1 };
const COOL = () => ({ temperature: 0.7 });

describe('an audit on the demo engine', () => {
  it('calls at most 6 of 200 honest answers, of weights rounded to bf16, not consistent', async () => {
    const { url } = await served('bf16');
    let alarms = 0;
    for (let seed = 1; seed <= 200; seed++) {
      const asked = { temperature: seed % 2, max_tokens: 30 };
      const { decision } = await auditAll([await exchangeOf(url, requestOf(seed, asked))], engine);
      if (decision.verdict === 'NOT CONSISTENT') alarms++;
    }
    expect(alarms).toBeLessThanOrEqual(6);
  }, 120_000);

  const found: [string, number, Trial][] = [
    ['other weights at temperature 0', 50, { weights: 8 }],
    ['other weights, sampled', 50, { weights: 8, asked: SAMPLED }],
    ['4-bit weights at temperature 0', 200, { weights: 'int4' }],
    ['4-bit weights, sampled', 1_000, { weights: 'int4', asked: SAMPLED }],
    ['temperature 0.7 in place of 0', 400, { serves: COOL }],
    ['temperature 0.7 in place of 1', 400, { asked: SAMPLED, serves: COOL }],
    ['a hidden system prompt, by its ids', 1, { serves: hidden }],
    ['a hidden system prompt whose ids are not given', 1_000, { serves: hidden, signs: withoutPromptIds }],
  ];
  it.each(found)(
    'finds %s in %i tokens',
    async (_what, tokens, trial) => {
      const { decision, account } = await auditAll(answers(trial), engine, { tokens });
      expect(decision.verdict).toBe('NOT CONSISTENT');
      expect(account.findings.length > 0).toBe(trial.serves === hidden && trial.signs === undefined);
    },
    60_000,
  );

  it('finds 8-bit weights by a named alternative, which says nothing against the right weights', async () => {
    const against = await openEngine('--against', (await served('int8')).url, null);
    const swapped = await auditAll(answers({ weights: 'int8', asked: SAMPLED }), engine, { tokens: 400, against });
    expect(swapped.decision.tests.find(({ test }) => test === 'against')).toMatchObject({ alarm: true });
    const honest = await auditAll(answers({ asked: SAMPLED }), engine, { tokens: 300, against });
    expect(honest.decision.tests.filter(({ alarm }) => alarm)).toEqual([]);
  }, 60_000);

  it('finds one answer of other weights among so many honest ones that its tokens alone do not show', async () => {
    const { url } = await served(8);
    const swapped = await exchangeOf(url, requestOf(1, { max_tokens: 12 }));
    const { tally } = await auditAll([swapped], engine);
    const [one] = tally.greedy.missing;
    expect(one).toBeDefined();
    // 20,000 tokens of 400 answers, of which no other misses.
    const many = { ...tally, greedy: { ...tally.greedy, tokens: 20_000, answers: 400 } };
    const seen = { answers: 400, findings: [] };
    const alarms = (of: typeof many) => decide(of, 0.001, 0.01, seen).tests.filter(({ alarm }) => alarm);
    expect(alarms(many).map(({ test }) => test)).toEqual(['answer']);
    expect(alarms({ ...many, greedy: { ...many.greedy, misses: 0, missing: [] } })).toEqual([]);
  });

  it('says too little of 50 honest tokens, and consistent of 200', async () => {
    const few = answers({ asked: { max_tokens: 25 } });
    expect((await auditAll(few, engine, { tokens: 50 })).decision.verdict).toBe('TOO LITTLE');
    expect((await auditAll(answers({}), engine, { tokens: 200 })).decision.verdict).toBe('CONSISTENT');
  });

  it('gives no alarm for text alone, where the last word of every second answer is tokenised in another way than it was said', async () => {
    let count = 0;
    const split: Engine = {
      ...engine,
      async encode(text) {
        const ids = await engine.encode(text);
        if (++count % 2 === 0) return ids;
        const word = await engine.decode(ids.slice(-2, -1));
        return [
          ...ids.slice(0, -2),
          ...(await engine.encode(word.slice(0, -2))),
          ...(await engine.encode(word.slice(-2))),
          ...ids.slice(-1),
        ];
      },
    };
    const { tally, decision } = await auditAll(answers({ signs: withoutIds }), split, { tokens: 200 });
    expect([tally.greedy.tokens, tally.text.misses > 0, decision.verdict]).toEqual([0, true, 'CONSISTENT']);
    expect(decision.tests[0]?.words).toContain('the weaker rule');
    const swapped = await auditAll(answers({ weights: 'int4', signs: withoutIds }), split, { tokens: 200 });
    expect(swapped.decision.verdict).toBe('NOT CONSISTENT');
  });
});
