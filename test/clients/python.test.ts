// openai and langchain-openai (PyPI), each in a Python process of its own that asks one question a line.
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe } from 'vitest';
import type { Client, Outcome } from './driver.ts';
import { createMatrix } from './matrix.ts';
import { type Service, startService } from './service.ts';
import { suite } from './suite.ts';
import { makeVenv, pinned } from './venv.ts';

const python = makeVenv();
const skipped = python === null ? ' SKIPPED: PyPI cannot be reached' : '';
const names = { openai: pinned('openai'), langchain: pinned('langchain-openai') };
for (const name of Object.values(names)) if (skipped !== '') console.warn(`\n!!! ${name}${skipped} !!!\n`);

/** Importing the clients takes a busy machine seconds. */
const START_TIMEOUT_MS = 60_000;

let service: Service;
const conversations: Conversation[] = [];
const matrix = createMatrix('python');
if (python === null) matrix.print(); // with nothing to run, nothing runs after it
beforeAll(async () => {
  [service] = await Promise.all([startService(), ...conversations.map((one) => one.start())]);
}, START_TIMEOUT_MS);
afterAll(async () => {
  for (const one of conversations) one.end();
  matrix.print();
  await service.close();
});

interface Conversation {
  start(): Promise<void>;
  /** One line in, one line out. */
  say(line: object): Promise<unknown>;
  end(): void;
}

function conversation(script: string): Conversation {
  let child: ChildProcessWithoutNullStreams | null = null;
  let lines: AsyncIterator<string> | undefined;
  let errors = '';
  const hear = async (): Promise<unknown> => {
    const line = await lines?.next();
    if (line === undefined || line.done) throw new Error(`${script} ended:\n${errors}`);
    return JSON.parse(line.value);
  };
  return {
    async start() {
      child = spawn(python ?? '', [fileURLToPath(new URL(script, import.meta.url))], {
        env: { PATH: process.env.PATH, LANGSMITH_TRACING: 'false', PYTHONDONTWRITEBYTECODE: '1' },
      });
      child.stderr.on('data', (data) => {
        errors += data;
      });
      lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
      await hear(); // "ready"
    },
    say(line) {
      child?.stdin.write(`${JSON.stringify(line)}\n`);
      return hear();
    },
    end: () => void child?.kill(),
  };
}

function client(name: string, script: string, rest: Omit<Client, 'name' | 'ask' | 'models'>, lists = false): Client {
  const talk = conversation(script);
  conversations.push(talk);
  return {
    name,
    ...rest,
    // null is Python's word for what is not there.
    async ask(question) {
      const outcome = (await talk.say(question)) as Outcome;
      const found = Object.fromEntries(Object.entries(outcome.found).map(([where, one]) => [where, one ?? undefined]));
      return { ...outcome, found };
    },
    ...(lists
      ? { models: async (baseURL, apiKey) => (await talk.say({ models: true, baseURL, apiKey })) as string[] }
      : {}),
  };
}

const asks = { body: 'extra_body={"tee": True}', header: 'default_headers' };
const clients = [
  client(
    names.openai,
    'openai_client.py',
    {
      asks,
      errors: {
        400: 'BadRequestError',
        401: 'AuthenticationError',
        429: 'RateLimitError',
        503: 'InternalServerError',
      },
      endpoints: ['chat', 'text'],
    },
    true,
  ),
  client(names.langchain, 'langchain_client.py', {
    asks,
    errors: {
      400: 'OpenAIInvalidRequestError',
      401: 'OpenAIAuthenticationError',
      429: 'OpenAIRateLimitError',
      503: 'OpenAIAPIError',
    },
    endpoints: ['chat'],
  }),
];

for (const one of clients)
  describe.skipIf(python === null)(`${one.name}${skipped}`, () => suite(one, matrix, () => service));
