// From an empty folder to a verified answer, as a user gets there: packages as they are published, real clients, the service with its demo engine.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Service, startService } from '../examples/service.ts';
import { installPackages } from '../support/npm-packages.ts';
import { makeVenv } from '../support/venv.ts';
import { installPackage, run } from './installed.ts';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const REQUIREMENTS = here('../python/clients-requirements.txt');

let service: Service;
let network: Server;
let calls = 0;
let tampers = false;
let env: Record<string, string>;

/** Between client and service: counts requests, and changes a word of each answer where it is told to. */
function between(): Server {
  return createServer(async (request, response) => {
    const body: Buffer[] = [];
    for await (const chunk of request) body.push(chunk as Buffer);
    calls++;
    const answer = await fetch(`${service.demo.OPENAI_BASE_URL}${(request.url ?? '').replace('/v1', '')}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: request.headers.authorization ?? '' },
      body: Buffer.concat(body),
    });
    const text = await answer.text();
    const changed = tampers ? text.replace(/"model":"[^"]*"/, '"model":"another"') : text;
    response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type') ?? '' }).end(changed);
  });
}

beforeAll(async () => {
  service = await startService();
  network = between();
  await new Promise<void>((resolve) => network.listen(0, '127.0.0.1', resolve));
  const { port } = network.address() as AddressInfo;
  env = { ...service.demo, OPENAI_BASE_URL: `http://127.0.0.1:${port}/v1`, ROOT: service.root };
});
afterAll(async () => {
  await new Promise((resolve) => network.close(resolve));
  await service.close();
});

/** What the program prints of its answer, or of the error that its client throws. */
async function twice(program: string, args: readonly string[], folder: string) {
  tampers = false;
  calls = 0;
  const good = await run(program, args, folder, env);
  const asked = calls;
  tampers = true;
  calls = 0;
  const bad = await run(program, args, folder, env);
  return { good: [good.code, good.output], asked, bad: [bad.code, bad.output], askedAgain: calls };
}

const EXPECTED = {
  good: [0, expect.stringMatching(/^proven none\nproven none\n[^\n]+\n[^\n]+\n$/)],
  asked: 2,
  bad: [3, expect.stringMatching(/^refused response_mismatch\n$/)],
  askedAgain: 1,
};

const installed = installPackage();
const clients = installPackages(here('clients/package.json'), 'package-clients');
const noNpm = installed === null || clients === null ? ', SKIPPED: npm cannot be reached' : '';
const python = makeVenv(REQUIREMENTS, 'verifying-clients-venv');
const noPypi = python === null ? ', SKIPPED: PyPI cannot be reached' : '';

describe.skipIf(noNpm !== '')(`npm install @countersign/verify, on Node 20${noNpm}`, () => {
  if (installed === null || clients === null) return;
  const node = join(installed.tools, 'node-20/bin/node');
  const folder = mkdtempSync(join(tmpdir(), 'countersign-first-'));
  beforeAll(() => {
    writeFileSync(join(folder, 'package.json'), '{"name": "first", "private": true, "type": "module"}');
    // What `npm install openai @langchain/openai TARBALL` would put there, without asking a registry twice.
    execFileSync('cp', ['-r', join(clients, 'node_modules'), folder]);
    execFileSync('tar', ['-xzf', installed.tarball], { cwd: folder });
    execFileSync('mkdir', ['-p', join(folder, 'node_modules/@countersign')]);
    execFileSync('mv', [join(folder, 'package'), join(folder, 'node_modules/@countersign/verify')]);
  });
  afterAll(() => {
    installed.remove();
    rmSync(folder, { recursive: true, force: true });
  });

  const BEGIN = `
import { readFileSync } from 'node:fs';
const verify = { simulatedRoot: readFileSync(process.env.ROOT, 'utf8'), onVerified: ({ level }) => console.log('proven', level) };
const baseURL = process.env.OPENAI_BASE_URL;
process.on('uncaughtException', (error) => { console.log('refused', error.code); process.exit(3); });
`;
  const PROGRAMS = {
    openai: `${BEGIN}
import OpenAI from 'openai';
import { verifyingFetch } from '@countersign/verify/fetch';
const client = new OpenAI({ baseURL, fetch: verifyingFetch(verify) });
const question = { model: 'countersign-demo', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 12 };
const whole = (await client.chat.completions.create(question)).choices[0].message.content;
let text = '';
for await (const chunk of await client.chat.completions.create({ ...question, stream: true })) text += chunk.choices[0]?.delta.content ?? '';
console.log(JSON.stringify(whole));
console.log(JSON.stringify(text));
`,
    langchain: `${BEGIN}
import { ChatCountersign } from '@countersign/verify/langchain';
const model = new ChatCountersign({ model: 'countersign-demo', maxTokens: 12, configuration: { baseURL }, verify });
const whole = await model.invoke('Hello');
if (whole.response_metadata.countersign.attestation.nonce.length !== 64) throw new Error('no proof in the metadata');
let text = '';
for await (const chunk of await model.stream('Hello')) text += chunk.text;
console.log(JSON.stringify(whole.text));
console.log(JSON.stringify(text));
`,
    'the AI SDK': `${BEGIN}
import { generateText, streamText } from 'ai';
import { createCountersign } from '@countersign/verify/ai-sdk';
const model = createCountersign({ baseURL, apiKey: process.env.OPENAI_API_KEY, verify })('countersign-demo');
const refused = (error) => { throw Object.assign(error, { code: JSON.parse(error.responseBody).error.code }); };
const whole = await generateText({ model, prompt: 'Hello', maxOutputTokens: 12 }).catch(refused);
const text = await streamText({ model, prompt: 'Hello', maxOutputTokens: 12 }).text;
if (whole.providerMetadata.countersign.attestation.nonce.length !== 64) throw new Error('no proof in the metadata');
console.log(JSON.stringify(whole.text));
console.log(JSON.stringify(text));
`,
  };
  it.each(Object.entries(PROGRAMS))(
    '%s has proven answers, and throws for a changed one after one request',
    async (_name, program) => {
      writeFileSync(join(folder, 'program.js'), program);
      expect(await twice(node, ['--no-warnings', 'program.js'], folder)).toEqual(EXPECTED);
    },
  );
});

describe.skipIf(python === null)(`pip install countersign-verify${noPypi}`, () => {
  const folder = mkdtempSync(join(tmpdir(), 'countersign-first-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const site = join(folder, 'site');

  it('builds a wheel that needs cryptography and httpx alone, and installs', { timeout: 300_000 }, async () => {
    const pip = (...args: string[]) =>
      run(python ?? '', ['-m', 'pip', '--disable-pip-version-check', ...args], folder, {
        HOME: process.env.HOME ?? '',
      });
    const built = await pip('wheel', '--quiet', '--no-deps', '--wheel-dir', folder, here('../../python'));
    expect(built.code, built.output).toBe(0);
    const wheel = readdirSync(folder).find((name) => name.endsWith('.whl')) ?? '';
    expect(wheel).toMatch(/^countersign_verify-\d+\.\d+\.\d+-py3-none-any\.whl$/);
    const put = await pip('install', '--quiet', '--no-deps', '--target', site, join(folder, wheel));
    expect(put.code, put.output).toBe(0);
    const needs = await run(
      'sh',
      [
        '-c',
        'grep -h ^Requires-Dist site/countersign_verify-*.dist-info/METADATA | grep -v "extra =" | sed "s/[<>=~!; ].*//2"',
      ],
      folder,
    );
    expect(needs.output.match(/Requires-Dist: (\w+)/g)).toEqual([
      'Requires-Dist: cryptography',
      'Requires-Dist: httpx',
    ]);
  });

  const BEGIN = `
import json, os, sys
from countersign_verify import verifying_client
http = verifying_client(simulated_root=open(os.environ["ROOT"]).read(), on_verified=lambda verified, *_: print("proven", verified.level))
`;
  const END = `
except openai.APIError as error:
    print("refused", error.code)
    sys.exit(3)
print(json.dumps(whole))
print(json.dumps(text))
`;
  const PROGRAMS = {
    openai: `${BEGIN}
import openai
client = openai.OpenAI(http_client=http)
question = dict(model="countersign-demo", messages=[{"role": "user", "content": "Hello"}], max_tokens=12)
try:
    whole = client.chat.completions.create(**question).choices[0].message.content
    text = "".join(chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**question, stream=True) if chunk.choices)
${END}`,
    'langchain-openai': `${BEGIN}
import openai
from langchain_openai import ChatOpenAI
model = ChatOpenAI(model="countersign-demo", max_tokens=12, http_client=http)
try:
    whole = model.invoke("Hello").text
    text = "".join(chunk.text for chunk in model.stream("Hello"))
${END}`,
  };
  it.each(Object.entries(PROGRAMS))(
    '%s has proven answers, and raises for a changed one after one request',
    async (_name, program) => {
      writeFileSync(join(folder, 'program.py'), program);
      env = { ...env, PYTHONPATH: site, LANGSMITH_TRACING: 'false' };
      expect(await twice(python ?? '', ['program.py'], folder)).toEqual(EXPECTED);
    },
  );

  it('has the command line', async () => {
    const body = JSON.stringify({
      model: 'countersign-demo',
      messages: [{ role: 'user', content: 'Hello' }],
      max_tokens: 8,
      tee: true,
    });
    const { OPENAI_BASE_URL, OPENAI_API_KEY } = service.demo;
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${OPENAI_API_KEY}` };
    const answer = await (await fetch(`${OPENAI_BASE_URL}/chat/completions`, { method: 'POST', headers, body })).text();
    writeFileSync(join(folder, 'answer.json'), answer);
    const verify = (...args: string[]) =>
      run(python ?? '', ['-m', 'countersign_verify', 'verify', 'answer.json', '--offline', ...args], folder, {
        PYTHONPATH: site,
      });
    expect(await verify('--allow-simulated', service.root)).toMatchObject({
      code: 0,
      output: expect.stringContaining('VALID (level: none)'),
    });
    expect(await verify()).toMatchObject({ code: 1, output: expect.stringContaining('--allow-simulated') });
  });
});
