// Answers of a demo engine as exchanges, and their audit without a proof: what the figures are counted from.

import type { Engine } from '../../auditor/audit/engine.ts';
import { auditableOf } from '../../auditor/audit/ids.ts';
import { type Account, leaveOut, newAccount } from '../../auditor/audit/report.ts';
import { type Decision, decide, UNCALIBRATED } from '../../auditor/audit/rule.ts';
import { newTally, scoreAnswer, type Tally } from '../../auditor/audit/score.ts';
import { NOUNS } from '../../demo/engine/words.ts';
import type { Exchange } from '../../verify/index.ts';

const ENDPOINT = '/v1/chat/completions';

export const question = (seed: number): string =>
  `the ${NOUNS[seed % NOUNS.length]} and the ${NOUNS[(seed * 7 + 3) % NOUNS.length]}?`;

/** The request that a client signs. */
export const requestOf = (seed: number, more: object = {}) => ({
  model: 'countersign-demo',
  messages: [{ role: 'user', content: question(seed) }],
  temperature: 0,
  top_p: 1,
  max_tokens: 200,
  return_token_ids: true,
  seed,
  ...more,
});

/** What a service answered that `served` something else than was asked, where it is given. */
export async function exchangeOf(url: string, request: object, served: object = {}): Promise<Exchange> {
  const response = await fetch(url + ENDPOINT, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ...request, ...served }),
  });
  const text = await response.text();
  return {
    endpoint: ENDPOINT,
    request: JSON.stringify(request),
    response: text,
    stream: null,
    timestamp: 1_700_000_000,
  };
}

export interface Audited {
  readonly tally: Tally;
  readonly account: Account;
  readonly decision: Decision;
}

/** Answers until they have so many tokens, audited together. */
export async function auditAll(
  exchanges: Iterable<Exchange> | AsyncIterable<Exchange>,
  engine: Engine,
  { against = null as Engine | null, tokens = Number.POSITIVE_INFINITY, bound = UNCALIBRATED } = {},
): Promise<Audited> {
  const tally = newTally(against !== null);
  const account = newAccount();
  for await (const exchange of exchanges) {
    const auditable = auditableOf(exchange);
    if ('reason' in auditable) leaveOut(account, auditable.reason, auditable.tokens);
    else {
      const { findings, choices } = await scoreAnswer('answer.json', auditable, tally, engine, against);
      account.findings.push(...findings.map((finding) => ({ file: 'answer.json', ...finding })));
      if (choices > 0) account.answers++;
    }
    if (tally.greedy.tokens + tally.text.tokens + tally.sampled.tokens >= tokens) break;
  }
  return { tally, account, decision: decide(tally, bound, 0.01, account) };
}

const changed = (exchange: Exchange, change: (response: Record<string, unknown>) => void): Exchange => {
  const response = JSON.parse(exchange.response) as Record<string, unknown>;
  change(response);
  return { ...exchange, response: JSON.stringify(response) };
};

export const withoutPromptIds = (exchange: Exchange): Exchange =>
  changed(exchange, (response) => {
    delete response.prompt_token_ids;
  });

export const withoutIds = (exchange: Exchange): Exchange =>
  changed(withoutPromptIds(exchange), ({ choices }) => {
    for (const choice of choices as Record<string, unknown>[]) delete choice.token_ids;
  });
