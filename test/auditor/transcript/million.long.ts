// A transcript of a million turns: each takes as long as the one before, and memory stays where it is.
import { describe, expect, it } from 'vitest';
import { Chain } from '../../../auditor/transcript/chain.ts';
import { conversationOf } from '../../../auditor/transcript/items.ts';

const TURNS = 1_000_000;
const PART = TURNS / 10;
/** As many turns has a run. */
const LENGTH = 4;
const MIB = 1024 * 1024;
const MAX_MIB = 700;

const call = (id: number) => ({
  id: `call_${id}`,
  type: 'function',
  function: { name: 'f', arguments: `{"n":${id}}` },
});

/** The exchange `turn` of runs that go on at the same time. */
function exchange(turn: number) {
  const run = Math.floor(turn / LENGTH);
  const messages: object[] = [{ role: 'user', content: `Run ${run}` }];
  const first = run * LENGTH;
  for (let id = first; id < turn; id++)
    messages.push(
      { role: 'assistant', content: null, tool_calls: [call(id)] },
      { role: 'tool', tool_call_id: `call_${id}`, content: `Result ${id}` },
    );
  const message = { role: 'assistant', content: null, tool_calls: [call(turn)] };
  const response = { id: `r${turn}`, model: 'm', choices: [{ index: 0, message }] };
  return conversationOf('/v1/chat/completions', JSON.stringify({ messages }), JSON.stringify(response));
}

/** The exchange `turn` of one run whose service keeps the state. */
function hidden(turn: number) {
  const output = [{ type: 'function_call', call_id: `call_${turn}`, name: 'f', arguments: '{}' }];
  const before = { type: 'function_call_output', call_id: `call_${turn - 1}`, output: 'ok' };
  const request = turn === 0 ? { input: 'Hi' } : { previous_response_id: `r${turn - 1}`, input: [before] };
  return conversationOf(
    '/v1/responses',
    JSON.stringify(request),
    JSON.stringify({ id: `r${turn}`, model: 'm', output }),
  );
}

describe('a million turns', () => {
  it.each([
    ['of a quarter million runs', exchange, TURNS / LENGTH],
    ['of one run', hidden, 1],
  ])(
    '%s are judged in linear time and bounded memory',
    (_name, make, runs) => {
      const chain = new Chain();
      const parts_ms: number[] = [];
      let wrong = 0;
      for (let from = 0; from < TURNS; from += PART) {
        const begin_ms = performance.now();
        for (let turn = from; turn < from + PART; turn++) {
          const { findings } = chain.add(turn + 1, make(turn) as NonNullable<ReturnType<typeof make>>);
          if (findings.some(({ severity }) => severity !== 'note')) wrong++;
        }
        parts_ms.push(performance.now() - begin_ms);
      }
      const used_mib = process.memoryUsage().heapUsed / MIB;
      console.log(parts_ms.map((ms) => Math.round(ms)).join(' '), Math.round(used_mib));
      expect([wrong, chain.runs]).toEqual([0, runs]);
      expect(used_mib).toBeLessThan(MAX_MIB);
      const [second = 0, last = 0] = [parts_ms[1], parts_ms.at(-1)];
      expect(last).toBeLessThan(3 * second);
    },
    600_000,
  );
});
