// LangChain (npm): an agent with a tool. Every answer of the model has its own attestation: the tool call, and the words after it.
//
//   cd examples/agents && npm install
//   export OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=any OPENAI_MODEL=…     # a model that can call tools
//   node langchain.ts
//
// Prints the conversation, then the same question streamed, with the nonce that the GPU signed beside each of the model's answers.
import { ChatOpenAI } from '@langchain/openai';
import { AIMessageChunk, createAgent, tool } from 'langchain';
import * as z from 'zod';
import { attestationOf } from '../langchain.ts';

const model = new ChatOpenAI({
  model: process.env.OPENAI_MODEL ?? 'countersign-demo',
  modelKwargs: { tee: true },
  __includeRawResponse: true, // without it LangChain drops what it does not know
});
const weather = tool(({ city }) => `18 degrees in ${city}`, {
  name: 'get_weather',
  description: 'The weather of a city.',
  schema: z.object({ city: z.string() }),
});
const agent = createAgent({ model, tools: [weather] });
const question = { messages: [{ role: 'user', content: 'How is the weather in Paris?' }] };
const limits = { recursionLimit: 8 };

const { messages } = await agent.invoke(question, limits);
for (const message of messages) {
  console.log(`${message.type}: ${message.text || JSON.stringify((message as AIMessageChunk).tool_calls)}`);
  if (message.type === 'ai') console.log('  nonce:', nonceOf(message));
}

for await (const [chunk] of await agent.stream(question, { ...limits, streamMode: 'messages' })) {
  if (!AIMessageChunk.isInstance(chunk)) continue;
  process.stdout.write(chunk.text);
  if (attestationOf(chunk) !== undefined) console.log('\n  nonce:', nonceOf(chunk));
}

function nonceOf(message: Parameters<typeof attestationOf>[0]): string {
  const attestation = attestationOf(message) as { nonce: string } | undefined;
  if (attestation === undefined) throw new Error('the answer carries no attestation');
  return attestation.nonce;
}
