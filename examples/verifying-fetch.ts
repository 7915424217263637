// The verifying fetch, in an OpenAI client: `tee` is added with a fresh challenge, every answer is checked here, and none ends unproven.
// Answers may share a signature, under load they come sooner so; `strict: true` asks for one that is an answer's alone.
//
//   export OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=any
//   npx node examples/verifying-fetch.ts run/simulated-root/root.pem     # the demo's simulated GPU
//   npx node examples/verifying-fetch.ts                                 # a real GPU
//
// Prints two answers, and of each proof its level and what it proves. Whatever is changed on the way throws.
import { readFileSync } from 'node:fs';
import OpenAI from 'openai';
import { verifyingFetch } from '../verify/clients/fetch.ts';
import { createCollateral, type Verified } from '../verify/index.ts';

const [root] = process.argv.slice(2);
const client = new OpenAI({
  fetch: verifyingFetch({
    collateral: createCollateral({ fetch }), // reference values and revocation answers, from NVIDIA
    ...(root === undefined ? {} : { simulatedRoot: readFileSync(root, 'utf8') }),
    onVerified: show,
  }),
});
const question = {
  model: process.env.OPENAI_MODEL ?? 'countersign-demo',
  messages: [{ role: 'user' as const, content: 'Hello' }],
  max_tokens: 40,
};

const answer = await client.chat.completions.create(question);
console.log('whole:', answer.choices[0]?.message.content);

let text = '';
for await (const chunk of await client.chat.completions.create({ ...question, stream: true }))
  text += chunk.choices[0]?.delta.content ?? '';
console.log('stream:', text);

/** Called before the answer is handed over; `verified.attestation` is what to keep. */
function show(verified: Verified): void {
  console.log(`proof of level ${verified.level}: ${verified.proven.join(' ')}`);
}
