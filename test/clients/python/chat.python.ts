// openai and langchain-openai (PyPI), each in a Python process of its own that asks one question a line.
import { fileURLToPath } from 'node:url';
import { describe } from 'vitest';
import { usePython } from '../../support/line-process.ts';
import { makeVenv, pinned } from '../../support/venv.ts';
import type { Client, Outcome } from '../driver.ts';
import { serviceOf } from '../service.ts';
import { suite } from '../suite.ts';

const python = makeVenv();
const skipped = python === null ? ' SKIPPED: PyPI cannot be reached' : '';
const names = { openai: pinned('openai'), langchain: pinned('langchain-openai') };
for (const name of Object.values(names)) if (skipped !== '') console.warn(`\n!!! ${name}${skipped} !!!\n`);

const { matrix, service } = serviceOf('python');
if (python === null) matrix.print(); // with nothing to run, nothing runs after it

function client(name: string, script: string, rest: Omit<Client, 'name' | 'ask' | 'models'>, lists = false): Client {
  const driver = usePython(python, [fileURLToPath(new URL(script, import.meta.url))], { LANGSMITH_TRACING: 'false' });
  return {
    name,
    ...rest,
    // null is Python's word for what is not there.
    async ask(question) {
      const outcome = await driver.ask<Outcome>(question);
      const found = Object.fromEntries(Object.entries(outcome.found).map(([where, one]) => [where, one ?? undefined]));
      return { ...outcome, found };
    },
    ...(lists ? { models: (baseURL, apiKey) => driver.ask<string[]>({ models: true, baseURL, apiKey }) } : {}),
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

for (const one of clients) describe.skipIf(python === null)(`${one.name}${skipped}`, () => suite(one, matrix, service));
