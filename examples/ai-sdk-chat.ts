// Vercel AI SDK: generateText and streamText, each with its attestation as provider metadata (the extractor is ai-sdk.ts).
//
//   export OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=any
//   npx node examples/ai-sdk-chat.ts
//
// Prints each answer and the nonce that the GPU signed.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, streamText } from 'ai';
import { attestationExtractor } from './ai-sdk.ts';

const countersign = createOpenAICompatible({
  name: 'countersign',
  baseURL: process.env.OPENAI_BASE_URL ?? 'http://127.0.0.1:8080/v1',
  apiKey: process.env.OPENAI_API_KEY ?? 'any',
  metadataExtractor: attestationExtractor,
});
const question = {
  model: countersign(process.env.OPENAI_MODEL ?? 'countersign-demo'),
  prompt: 'Hello',
  maxOutputTokens: 40,
  providerOptions: { countersign: { tee: true } }, // goes into the request's body
};

const answer = await generateText(question);
console.log('whole:', answer.text);
console.log('  nonce:', nonceOf(answer.providerMetadata));

const stream = streamText({ ...question, onError: ({ error }) => console.error(error) });
process.stdout.write('stream: ');
for await (const text of stream.textStream) process.stdout.write(text);
console.log();
// streamText does not throw: an answer that could not be proven says 'error' here.
if ((await stream.finishReason) === 'error') throw new Error('the stream ended unproven');
console.log('  nonce:', nonceOf(await stream.providerMetadata));

function nonceOf(metadata: Record<string, Record<string, unknown>> | undefined): string {
  const attestation = metadata?.countersign?.attestation as { nonce: string } | undefined;
  if (attestation === undefined) throw new Error('the answer carries no attestation');
  return attestation.nonce;
}
