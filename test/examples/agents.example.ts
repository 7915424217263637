// examples/agents: LangChain and LlamaIndex with a tool, each with the packages that it names, compiled and run.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { vectorOf } from '../clients/form-scripts.ts';
import { installAgents } from './agents.ts';
import { nonces, ROOT, run } from './run.ts';
import { SAID, type Service, startService } from './service.ts';

const agents = installAgents();
const skipped = agents === null ? " SKIPPED: npm's registry cannot be reached" : '';
if (agents === null) console.warn(`\n!!! examples/agents${skipped} !!!\n`);

describe.skipIf(agents === null)(`agents${skipped}`, () => {
  const folder = agents?.folder ?? '';
  let service: Service;
  beforeAll(async () => {
    service = await startService();
  });
  afterAll(async () => {
    await service.close();
    agents?.remove();
  });

  it('compile', async () => {
    const extended = { extends: join(ROOT, 'tsconfig.json'), include: ['*.ts'], exclude: [] };
    // The packages' own types lean on the DOM's, and types are looked for from here up.
    const compilerOptions = { typeRoots: [join(ROOT, 'node_modules/@types')], lib: ['ES2024', 'DOM'] };
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ ...extended, compilerOptions }));
    const { code, output } = await run([join(ROOT, 'node_modules/.bin/tsc'), '-p', folder]);
    expect([code, output]).toEqual([0, '']);
  });

  it('langchain.ts: a tool is called and its answer said, whole and streamed, each answer with its own nonce', async () => {
    const ran = await run([process.execPath, 'langchain.ts'], service.agent, folder);
    expect([ran.code, ran.errors]).toEqual([0, '']);
    expect(ran.output).toContain('tool: 18 degrees in Paris');
    expect(ran.output.split(SAID)).toHaveLength(3);
    expect(nonces(ran.output)).toHaveLength(4);
  });

  it('llamaindex.ts: a chat, and an agent that calls a tool, each answer with its own nonce', async () => {
    const ran = await run([process.execPath, 'llamaindex.ts'], service.agent, folder);
    expect([ran.code, ran.errors]).toEqual([0, '']);
    expect(ran.output).toContain(SAID);
    expect(nonces(ran.output)).toHaveLength(3);
  });

  it('llamaindex-embeddings.ts: vectors, with a nonce', async () => {
    const ran = await run([process.execPath, 'llamaindex-embeddings.ts'], service.agent, folder);
    expect([ran.code, ran.errors]).toEqual([0, '']);
    expect(ran.output).toContain('vectors: 2 of 4 numbers');
    expect(nonces(ran.output)).toHaveLength(1);
  });

  it("LlamaIndex's embeddings come through a verifying fetch, and throw where the answer was changed", async () => {
    writeFileSync(join(folder, 'verifying.ts'), VERIFYING);
    const ran = await run([process.execPath, 'verifying.ts', service.root], service.agent, folder);
    expect([ran.code, ran.errors, JSON.parse(ran.output)]).toEqual([
      0,
      '',
      { vectors: [vectorOf(0), vectorOf(1)], proven: ['/v1/embeddings'], code: 'response_mismatch' },
    ]);
  });
});

/** A program beside LlamaIndex, which is not installed where this file is. */
const VERIFYING = `
import { readFileSync } from 'node:fs';
import { OpenAIEmbedding } from '@llamaindex/openai';
import { verifyingFetch } from '${join(ROOT, 'verify/clients/fetch.ts')}';

const proven = [];
const embedding = (network) => new OpenAIEmbedding({
  model: 'hello',
  maxRetries: 0,
  additionalSessionOptions: { fetch: verifyingFetch({
    fetch: network,
    simulatedRoot: readFileSync(process.argv[2], 'utf8'),
    onVerified: ({ exchange }) => proven.push(exchange.endpoint),
  }) },
});
const changing = async (input, init) => {
  const response = await fetch(input, init);
  const text = (await response.text()).replace('"scripted"', '"other"');
  return new Response(text, { headers: { 'content-type': 'application/json' } });
};
const vectors = await embedding(fetch).getTextEmbeddings(['a', 'b']);
const error = await embedding(changing).getTextEmbeddings(['a']).catch((cause) => cause);
console.log(JSON.stringify({ vectors, proven, code: error.code ?? error.cause?.code }));
`;
