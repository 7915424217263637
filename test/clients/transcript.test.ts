// A run of ten calls by each agent that is installed, kept by the verifying fetch and checked as a chain; then forged.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Anthropic from '@anthropic-ai/sdk';
import { type AIMessageChunk, HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { Agent, tool as agentTool, OpenAIProvider, Runner } from '@openai/agents';
import { generateText, jsonSchema, stepCountIs, type ToolSet, tool } from 'ai';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AUDITOR } from '../../auditor/commands.ts';
import { transcriptFile } from '../../auditor/transcript/file.ts';
import { counter, type Summary } from '../../auditor/transcript/report.ts';
import { openTranscript, type Turn } from '../../auditor/transcript/turns.ts';
import { type Arguments, readArguments } from '../../verify/cli/args.ts';
import { createPool, type Pool } from '../../verify/cli/many.ts';
import { createCountersign } from '../../verify/clients/ai-sdk.ts';
import { type VerifyingFetchOptions, verifyingFetch } from '../../verify/clients/fetch.ts';
import { ChatCountersign } from '../../verify/clients/langchain.ts';
import { PARAMETERS, planned, type Step, TEN_CALLS, TOOLS, toolResult } from '../support/agent-model.ts';
import { FORGERIES } from '../support/forgeries.ts';
import { type Folder, temporaryFolder } from '../support/harness.ts';
import { useService } from '../support/service.ts';

const service = useService();
let folder: Folder;
let number = 0;
let pool: Pool;
beforeAll(() => {
  folder = temporaryFolder();
  const root = join(folder.path, 'root.pem');
  writeFileSync(root, service.sidecar.attester.simulated?.root ?? '');
  const args = readArguments(['transcript', 'x', '--allow-simulated', root], AUDITOR) as Arguments;
  pool = createPool(1, { ...args, run: null });
});
afterAll(async () => {
  await pool.close();
  folder.remove();
});

interface Asked {
  readonly verify: VerifyingFetchOptions;
  readonly prompt: string;
  /** Whether older history is left out on the way. */
  readonly compact: boolean;
}

interface AgentUnderTest {
  readonly name: string;
  readonly path: string;
  run(asked: Asked): Promise<void>;
}

const INSTRUCTIONS = 'You know the weather.';
const SUMMARY = 'Until now: it is 18 degrees everywhere.';
/** From this request on older history is left out. */
const COMPACTED = 5;
/** So many items does it have. */
const ITEMS = 17;

const openaiTools = TOOLS.map((name) =>
  agentTool({
    name,
    description: name,
    parameters: { ...PARAMETERS, additionalProperties: true } as never,
    strict: false,
    execute: async (input) => toolResult(name, input as { city: string }),
  }),
);

const openaiAgent = (useResponses: boolean): AgentUnderTest => ({
  name: `@openai/agents, ${useResponses ? 'responses' : 'chat completions'}`,
  path: useResponses ? '/v1/responses' : '/v1/chat/completions',
  async run({ verify, prompt, compact }) {
    const client = new OpenAI({ baseURL: `${service.url}/v1`, apiKey: 'any', fetch: verifyingFetch(verify) });
    const modelProvider = new OpenAIProvider({ openAIClient: client as never, useResponses });
    const runner = new Runner({ modelProvider, tracingDisabled: true });
    const agent = new Agent({ name: 'weather', instructions: INSTRUCTIONS, model: 'm', tools: openaiTools });
    await runner.run(agent, prompt, {
      maxTurns: 12,
      callModelInputFilter: ({ modelData }) => {
        const { input } = modelData;
        const whole = !compact || input.length < ITEMS;
        const from = input.findLastIndex((one) => one.type === 'function_call');
        return whole
          ? modelData
          : { ...modelData, input: [{ role: 'user' as const, content: SUMMARY }, ...input.slice(from)] };
      },
    });
  },
});

const aiSdk: AgentUnderTest = {
  name: 'ai',
  path: '/v1/chat/completions',
  async run({ verify, prompt, compact }) {
    const countersign = createCountersign({ baseURL: `${service.url}/v1`, apiKey: 'any', verify });
    const tools = Object.fromEntries(
      TOOLS.map((name) => [
        name,
        tool({
          description: name,
          inputSchema: jsonSchema<{ city: string }>({ ...PARAMETERS, required: ['city'] } as never),
          execute: async (input) => toolResult(name, input),
        }),
      ]),
    ) as ToolSet;
    await generateText({
      model: countersign('m'),
      system: INSTRUCTIONS,
      prompt,
      tools,
      stopWhen: stepCountIs(12),
      maxRetries: 0,
      prepareStep: ({ messages, stepNumber }) =>
        compact && stepNumber >= COMPACTED
          ? { messages: [{ role: 'user' as const, content: SUMMARY }, ...messages.slice(-2)] }
          : {},
    });
  },
};

const anthropic: AgentUnderTest = {
  name: '@anthropic-ai/sdk',
  path: '/v1/messages',
  async run({ verify, prompt, compact }) {
    const client = new Anthropic({ baseURL: service.url, apiKey: 'any', fetch: verifyingFetch(verify), maxRetries: 0 });
    const tools = TOOLS.map((name) => ({ name, input_schema: { ...PARAMETERS, required: ['city'] } }));
    let messages: Anthropic.MessageParam[] = [{ role: 'user', content: prompt }];
    for (let i = 0; ; i++) {
      if (compact && i >= COMPACTED)
        messages = [{ role: 'user', content: SUMMARY }, ...messages.slice(-2)] satisfies Anthropic.MessageParam[];
      const system = [{ type: 'text' as const, text: INSTRUCTIONS, cache_control: { type: 'ephemeral' as const } }];
      const message = await client.messages.create({
        model: 'm',
        max_tokens: 50,
        system,
        messages,
        tools: tools as never,
      });
      messages.push({ role: 'assistant', content: message.content });
      const calls = message.content.filter((block) => block.type === 'tool_use');
      if (calls.length === 0) return;
      messages.push({
        role: 'user',
        content: calls.map(({ id, name, input }) => ({
          type: 'tool_result' as const,
          tool_use_id: id,
          content: toolResult(name, input as { city: string }),
        })),
      });
    }
  },
};

const langchain: AgentUnderTest = {
  name: '@langchain/openai',
  path: '/v1/chat/completions',
  async run({ verify, prompt, compact }) {
    const configuration = { baseURL: `${service.url}/v1` };
    const tools = TOOLS.map((name) => ({ type: 'function' as const, function: { name, parameters: PARAMETERS } }));
    const model = new ChatCountersign({ model: 'm', apiKey: 'any', configuration, verify, maxRetries: 0 }).withConfig({
      tools: tools as never,
    });
    const system = new SystemMessage(INSTRUCTIONS);
    let messages: Parameters<typeof model.invoke>[0] & unknown[] = [new HumanMessage(prompt)];
    for (let i = 0; ; i++) {
      if (compact && i >= COMPACTED) messages = [new HumanMessage(SUMMARY), ...messages.slice(-2)] as typeof messages;
      const chunks: AIMessageChunk[] = [];
      for await (const chunk of await model.stream([system, ...messages] as never)) chunks.push(chunk);
      const message = chunks.reduce((whole, chunk) => whole.concat(chunk));
      messages.push(message as never);
      const calls = message.tool_calls ?? [];
      if (calls.length === 0) return;
      for (const { id = '', name, args } of calls)
        messages.push(
          new ToolMessage({ tool_call_id: id, content: toolResult(name, args as { city: string }) }) as never,
        );
    }
  },
};

const OTHER: readonly Step[] = [
  { text: 'I begin in Kyiv.', calls: [['get_weather', '{"city":"Kyiv"}']] },
  ...TEN_CALLS.slice(1, 4),
  { text: 'Kyiv is the coldest.' },
];

/** What the forged transcripts have in common is checked once. */
const checked = new Map<string, ReturnType<Pool['check']>>();
function check(job: Parameters<Pool['check']>[0]) {
  const text = Buffer.from(job.line ?? []).toString();
  const line = checked.get(text) ?? pool.check(job);
  checked.set(text, line);
  return line;
}

async function judged(lines: readonly string[], end = '\n'): Promise<{ summary: Summary; turns: Turn[] }> {
  const file = join(folder.path, 'judged.jsonl');
  writeFileSync(file, lines.join('\n') + end);
  const transcript = openTranscript(file, { check });
  const counted = counter(false);
  const turns: Turn[] = [];
  for await (const turn of transcript.turns()) {
    if ('bundle' in turn) continue;
    counted.add(turn);
    turns.push(turn);
  }
  return { summary: counted.end(transcript.runs, transcript.open()), turns };
}

describe.each([openaiAgent(false), openaiAgent(true), aiSdk, anthropic, langchain])('$name', (agent) => {
  const bodies: string[] = [];
  /** Runs the agent. @returns the file's lines */
  async function ran(steps: readonly Step[], name: string, given: Partial<Asked> & { readonly wide?: boolean } = {}) {
    const path = join(folder.path, `${++number}.jsonl`);
    const transcript = transcriptFile(path);
    service.backend.script = planned(steps, name);
    bodies.length = 0;
    const send: typeof fetch = (input, init) => {
      bodies.push(String(init?.body));
      return fetch(input, init);
    };
    const verify = {
      fetch: send,
      transcript,
      simulatedRoot: service.sidecar.attester.simulated?.root,
      compact: given.wide === true,
    };
    await agent.run({ verify, prompt: `What about run ${name}?`, compact: false, ...given });
    await transcript.close();
    return readFileSync(path, 'utf8').trim().split('\n');
  }

  it('runs ten calls, and its transcript is an unbroken chain', async () => {
    const lines = await ran(TEN_CALLS, 'a');
    expect(lines).toHaveLength(TEN_CALLS.length);
    const { summary, turns } = await judged(lines);
    expect(turns.flatMap(({ findings }) => findings.filter(({ severity }) => severity !== 'note'))).toEqual([]);
    expect(summary).toMatchObject({ verdict: 'UNBROKEN', runs: 1, valid: 9, level: 'none', models: ['scripted'] });
    expect(turns.map(({ parent }) => parent)).toEqual([null, 1, 2, 3, 4, 5, 6, 7, 8]);
    const results = turns.flatMap(({ fresh }) => fresh.filter(({ kind }) => kind === 'result'));
    expect(results).toHaveLength(10);
    expect(turns.map(({ endpoint }) => endpoint)).toEqual(TEN_CALLS.map(() => agent.path));
  });

  it('is reported and not refused where it leaves older history out', async () => {
    const { summary, turns } = await judged(await ran(TEN_CALLS, 'a', { compact: true }));
    expect(summary).toMatchObject({ verdict: 'UNBROKEN', runs: 1, valid: 9 });
    expect(Object.keys(summary.found).filter((code) => !/parallel/.test(code))).toEqual(['history_shortened']);
    expect(turns[5]?.findings[0]?.text).toMatch(/^1 message, .*no longer told, 1 message in their place$/);
  });

  it('is named rightly where it is forged', { timeout: 60_000 }, async () => {
    const root = service.sidecar.attester.simulated?.root;
    const b = await ran(OTHER, 'b');
    const a = await ran(TEN_CALLS, 'a');
    const sent = [...bodies];
    const ask = async (body: string) => {
      let line = '';
      const transcript = ({ attestation }: { attestation: object }) => {
        line = JSON.stringify(attestation);
      };
      const send = verifyingFetch({ simulatedRoot: root, transcript });
      service.backend.script = planned([{ text: 'So be it.' }], 'c');
      const headers = { 'content-type': 'application/json' };
      const response = await send(service.url + agent.path, { method: 'POST', headers, body });
      await response.text();
      return line;
    };
    const outcomes: string[] = [];
    for (const { name, code, verdict, lines } of FORGERIES) {
      const forged = await lines({ a, b, bodies: sent, ask });
      const { summary, turns } = await judged(forged, code === 'line_cut' ? '' : '\n');
      const named = turns.flatMap(({ findings }) => findings).map((one) => one.code);
      if (!named.includes(code) || summary.verdict !== verdict)
        outcomes.push(`${name}: ${summary.verdict} ${named.join()} in place of ${verdict} ${code}`);
    }
    expect(outcomes).toEqual([]);
    expect((await judged([...b, ...a])).summary).toMatchObject({ verdict: 'UNBROKEN', runs: 2 });
  });
});
