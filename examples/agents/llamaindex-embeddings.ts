// LlamaIndex TS: embeddings with `x-tee: 1` in every request. LlamaIndex hands out the vectors alone, so a fetch keeps the id of each
// answer, and the attestation is asked for by it.
//
//   cd examples/agents && npm install
//   export OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=any OPENAI_MODEL=…     # a model that embeds; the demo's does not
//   node llamaindex-embeddings.ts
//
// Prints how many vectors came, and the nonce that the GPU signed over each answer.
import { OpenAIEmbedding } from '@llamaindex/openai';

const baseURL = process.env.OPENAI_BASE_URL ?? 'http://127.0.0.1:8080/v1';
const apiKey = process.env.OPENAI_API_KEY ?? 'any';
const ids: string[] = [];

const keepingIds: typeof fetch = async (input, init) => {
  const response = await fetch(input, init);
  ids.push(response.headers.get('x-attestation-id') ?? '');
  return response;
};

const embedding = new OpenAIEmbedding({
  model: process.env.OPENAI_MODEL ?? 'countersign-demo',
  baseURL,
  apiKey,
  additionalSessionOptions: { defaultHeaders: { 'x-tee': '1' }, fetch: keepingIds },
});

const vectors = await embedding.getTextEmbeddings(['Paris', 'Vienna']);
console.log('vectors:', vectors.length, 'of', vectors[0]?.length, 'numbers');

for (const id of ids) {
  const response = await fetch(`${baseURL}/embeddings/${id}/attestation`, {
    headers: { authorization: `Bearer ${apiKey}` },
  });
  if (!response.ok) throw new Error(`no attestation: ${response.status} ${await response.text()}`);
  const { nonce } = (await response.json()) as { nonce: string };
  console.log('  nonce:', nonce);
}
