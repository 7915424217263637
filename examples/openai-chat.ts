// openai (npm): a chat, whole and streamed, each with its attestation. openai.ts beside this tells TypeScript of `tee`.
//
//   export OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=any
//   npx node examples/openai-chat.ts
//
// Prints each answer, the nonce that the GPU signed, and what the gateway's verify endpoint says of it.
import OpenAI from 'openai';
import type { Attestation } from './openai.ts';

const client = new OpenAI(); // OPENAI_BASE_URL, OPENAI_API_KEY
const question = {
  model: process.env.OPENAI_MODEL ?? 'countersign-demo',
  messages: [{ role: 'user' as const, content: 'Hello' }],
  max_tokens: 40,
  tee: true,
};

const answer = await client.chat.completions.create(question);
console.log('whole:', answer.choices[0]?.message.content);
await show(answer.attestation);

process.stdout.write('stream: ');
let attestation: Attestation | undefined;
for await (const chunk of await client.chat.completions.create({ ...question, stream: true })) {
  process.stdout.write(chunk.choices[0]?.delta.content ?? '');
  attestation ??= chunk.attestation; // on the chunk that has finish_reason
}
console.log();
await show(attestation);

async function show(proof: Attestation | undefined): Promise<void> {
  if (proof === undefined) throw new Error('the answer carries no attestation');
  console.log('  nonce:', proof.nonce);
  const verdict = await fetch(new URL('/~sev_gpu@1.0/verify', client.baseURL), {
    method: 'POST',
    body: JSON.stringify(proof),
  });
  console.log('  verified by the gateway:', await verdict.text()); // verifying-fetch.ts trusts nobody
}
