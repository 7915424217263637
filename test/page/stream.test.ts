// What the page shows of a streamed answer.
import { expect, it } from 'vitest';
import { type Listener, readAnswer } from '../../page/base/stream.ts';

it('shows the parts of a content that is a list: text, and reasoning in the forms of Magistral and Databricks', async () => {
  const deltas = [
    { content: [{ type: 'thinking', thinking: [{ type: 'text', text: 'Hm' }] }] },
    { content: [{ type: 'reasoning', summary: [{ type: 'summary_text', text: '.' }] }] },
    { content: [{ type: 'text', text: 'Hel' }, { type: 'reference' }, null] },
    { content: 'lo' },
  ];
  const chunks = deltas.map((delta) => `data: ${JSON.stringify({ choices: [{ index: 0, delta }] })}\n\n`);
  const shown = { content: '', reasoning: '' };
  const listener: Listener = {
    content(text) {
      shown.content += text;
    },
    reasoning(text) {
      shown.reasoning += text;
    },
    refusal() {},
    toolCall() {},
    signing() {},
  };
  const headers = { 'content-type': 'text/event-stream' };
  await readAnswer(new Response(`${chunks.join('')}data: [DONE]\n\n`, { headers }), listener);
  expect(shown).toEqual({ content: 'Hello', reasoning: 'Hm.' });
});
