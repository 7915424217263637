// LlamaIndex TS: a chat, and an agent with a tool. The attestation is in `raw`, where LlamaIndex keeps what it was answered.
//
//   cd examples/agents && npm install
//   export OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=any OPENAI_MODEL=…     # a model that can call tools
//   node llamaindex.ts
//
// Prints the answer of a chat, then the agent's steps, with the nonce that the GPU signed beside each of the model's answers.
import { OpenAI } from '@llamaindex/openai';
import { agent, agentStreamEvent } from '@llamaindex/workflow';
import { tool } from 'llamaindex';
import * as z from 'zod';

const llm = new OpenAI({
  model: process.env.OPENAI_MODEL ?? 'countersign-demo',
  additionalChatOptions: { tee: true } as object, // its types know OpenAI's own members alone
});

const answer = await llm.chat({ messages: [{ role: 'user', content: 'Hello' }] });
console.log('chat:', answer.message.content);
console.log('  nonce:', nonceOf(answer.raw));

const weather = tool({
  name: 'get_weather',
  description: 'The weather of a city.',
  parameters: z.object({ city: z.string() }),
  execute: ({ city }) => `18 degrees in ${city}`,
});
const events = agent({ llm, tools: [weather] }).runStream('How is the weather in Paris?');
for await (const event of events) {
  if (!agentStreamEvent.include(event)) continue;
  process.stdout.write(event.data.delta);
  if (nonceOf(event.data.raw) !== undefined) console.log('\n  nonce:', nonceOf(event.data.raw));
}

/** Of a whole answer, or of the chunk of a stream that carries it. */
function nonceOf(raw: unknown): string | undefined {
  return (raw as { attestation?: { nonce: string } } | null)?.attestation?.nonce;
}
