// examples/agents: LangChain and LlamaIndex with a tool, each with the packages that it names, compiled and run.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
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
});
