// A run of ten calls by agents that the project does not install: LangGraph of npm and of PyPI, and openai-agents. Each transcript is an
// unbroken chain, whole and with older history left out, and a changed line breaks it.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { planned, TEN_CALLS } from '../support/agent-model.ts';
import { type Folder, type Service, startService, temporaryFolder } from '../support/harness.ts';
import { makeVenv } from '../support/venv.ts';
import { installAgents } from './agents.ts';
import { python } from './python.ts';
import { ROOT, run } from './run.ts';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const agents = installAgents();
const openaiAgents = makeVenv(here('transcript-requirements.txt'), 'transcript-venv');
const DRIVER = here('transcript_agents.py');

/** LangGraph's agent of npm, beside which its packages stand. */
const LANGGRAPH = `
import { readFileSync } from 'node:fs';
import { createAgent, createMiddleware, HumanMessage, tool } from 'langchain';
import { RemoveMessage } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';
import * as z from 'zod';
import { transcriptFile } from '${ROOT}/auditor/transcript/file.ts';
import { verifyingFetch } from '${ROOT}/verify/clients/fetch.ts';

const [, , run, root, compact] = process.argv;
const fetch = verifyingFetch({ transcript: transcriptFile(run), simulatedRoot: readFileSync(root, 'utf8') });
const model = new ChatOpenAI({ model: 'm', apiKey: 'any', maxRetries: 0, configuration: { fetch } });
const tools = [['get_weather', (city) => '18 degrees in ' + city], ['get_time', (city) => 'It is noon in ' + city + '.']].map(
  ([name, told]) => tool(({ city }) => told(city), { name, description: name, schema: z.looseObject({ city: z.string() }) }),
);
const compacted = createMiddleware({
  name: 'compacted',
  beforeModel: ({ messages }) =>
    compact === undefined || messages.length < 12
      ? undefined
      : { messages: [new RemoveMessage({ id: '__remove_all__' }), new HumanMessage('Until now: 18 degrees.'), ...messages.slice(-2)] },
});
const agent = createAgent({ model, tools, systemPrompt: 'You know the weather.', middleware: [compacted] });
await agent.invoke({ messages: [{ role: 'user', content: 'Which city is the warmest?' }] }, { recursionLimit: 60 });
`;

const SUBJECTS = [
  {
    name: 'LangGraph (npm)',
    there: agents !== null,
    command: () => {
      writeFileSync(join(agents?.folder ?? '', 'transcript.ts'), LANGGRAPH);
      return [process.execPath, 'transcript.ts'];
    },
  },
  { name: 'LangGraph (PyPI)', there: python !== null, command: () => [python ?? '', DRIVER, 'langgraph'] },
  {
    name: 'openai-agents (PyPI)',
    there: openaiAgents !== null,
    command: () => [openaiAgents ?? '', DRIVER, 'openai-agents'],
  },
];

describe('a transcript of', () => {
  let service: Service;
  let folder: Folder;
  let root: string;
  beforeAll(async () => {
    service = await startService();
    folder = temporaryFolder();
    root = join(folder.path, 'root.pem');
    writeFileSync(root, service.sidecar.attester.simulated?.root ?? '');
  });
  afterAll(async () => {
    await service?.close();
    folder?.remove();
    agents?.remove();
  });

  const judged = (file: string) =>
    run([process.execPath, 'bin/countersign.js', 'transcript', file, '--allow-simulated', root]);

  it.each(SUBJECTS)('$name', async ({ name, there, command }) => {
    if (!there) return console.warn(`\n!!! ${name} SKIPPED: a registry cannot be reached !!!\n`);
    const environment = {
      OPENAI_BASE_URL: `${service.gateway.url}/v1`,
      OPENAI_API_KEY: 'any',
      PYTHONPATH: join(ROOT, 'python/src'),
      LANGCHAIN_TRACING_V2: 'false',
    };
    for (const compact of [[], ['compact']]) {
      service.backend.script = planned(TEN_CALLS, `x${compact.length}`);
      const file = join(folder.path, `${name.replace(/\W/g, '')}-${compact.length}.jsonl`);
      const ran = await run([...command(), file, root, ...compact], environment, agents?.folder);
      expect([ran.code, ran.errors]).toEqual([0, expect.anything()]);
      const { code, output } = await judged(file);
      expect([code, output]).toEqual([0, expect.stringContaining('9 turns in 1 run, 9 valid')]);
      expect(output.includes('history_shortened')).toBe(compact.length > 0);
      expect(output).toContain(
        compact.length > 0 ? 'UNBROKEN (level: none); history was edited' : 'UNBROKEN (level: none)\n',
      );
      const lines = readFileSync(file, 'utf8').split('\n');
      writeFileSync(file, [...lines.slice(0, 2), ...lines.slice(3)].join('\n'));
      expect(await judged(file)).toMatchObject({ code: 1, output: expect.stringContaining('call_invented in turn 3') });
    }
  });
});
