// examples/open-webui.md: the requests that Open WebUI sends, and its filter function. Open WebUI itself is not run.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { verifyAttestation } from '../../verify/index.ts';
import { python, SKIPPED } from './python.ts';
import { run } from './run.ts';
import { type Service, startService } from './service.ts';

let service: Service;
beforeAll(async () => {
  service = await startService();
});
afterAll(() => service.close());

const MESSAGES = [{ role: 'user', content: 'Hello' }];

function send(path: string, body: object | null, headers: Record<string, string> = {}): Promise<Response> {
  const { OPENAI_BASE_URL, OPENAI_API_KEY } = service.demo;
  return fetch(`${OPENAI_BASE_URL}${path}`, {
    headers: { Authorization: `Bearer ${OPENAI_API_KEY}`, 'Content-Type': 'application/json', ...headers },
    ...(body === null ? {} : { method: 'POST', body: JSON.stringify(body) }),
  });
}

const verify = (text: string) => verifyAttestation(text, { simulatedRoot: readFileSync(service.root, 'utf8') });

describe('what Open WebUI sends', () => {
  it('the list of models', async () => {
    const { data } = (await (await send('/models', null)).json()) as { data: { id: string }[] };
    expect(data.map(({ id }) => id)).toEqual(['countersign-demo']);
  });

  it('a chat, streamed, with the header of the connection and those of its users', async () => {
    const body = {
      model: 'countersign-demo',
      messages: MESSAGES,
      stream: true,
      stream_options: { include_usage: true },
      max_tokens: 20,
    };
    const user = { 'X-OpenWebUI-User-Name': 'A%20User', 'X-OpenWebUI-User-Email': 'user@example.org' };
    const response = await send('/chat/completions', body, { 'x-tee': '1', ...user });
    const payloads = (await response.text()).split('\n').filter((line) => line.startsWith('data: {'));
    const chunks = payloads.map((line) => JSON.parse(line.slice(6)) as { attestation?: unknown; usage?: unknown });
    expect(chunks.at(-1)?.usage).toMatchObject({ total_tokens: expect.any(Number) });
    const [carrying, ...others] = chunks.filter(({ attestation }) => attestation !== undefined);
    expect(others).toEqual([]);
    const { exchange } = await verify(JSON.stringify(carrying?.attestation));
    expect(exchange.request).toBe(JSON.stringify(body));
    expect(exchange.request).not.toContain('example.org');
  });

  it('a title, whole, through the same connection', async () => {
    const body = { model: 'countersign-demo', messages: MESSAGES, stream: false, max_completion_tokens: 20 };
    const response = await send('/chat/completions', body, { 'x-tee': '1' });
    const { exchange } = await verify(await response.text());
    expect(exchange.request).toBe(JSON.stringify(body));
  });
});

describe.skipIf(python === null)(`open_webui_filter.py${SKIPPED}`, () => {
  it('asks for the attestation, keeps it as a file that verifies, says so, and takes it from the chunk', async () => {
    const kept = join(service.folder, 'kept');
    const driver = fileURLToPath(new URL('open_webui_driver.py', import.meta.url));
    const ran = await run([python ?? '', driver, kept], service.demo);
    expect(ran.code, ran.errors).toBe(0);
    const { emitted, chunks } = JSON.parse(ran.output) as { emitted: unknown[]; chunks: object[] };
    expect(chunks.length).toBeGreaterThan(2);
    expect(chunks.filter((chunk) => 'attestation' in chunk)).toEqual([]);

    const [file, ...others] = readdirSync(kept);
    expect(others).toEqual([]);
    const { attestation } = await verify(readFileSync(join(kept, file ?? ''), 'utf8'));
    expect(file).toBe(`${attestation.nonce}.json`);
    expect(emitted).toEqual([
      { type: 'status', data: { description: `Attested, not yet verified: ${attestation.nonce}`, done: true } },
    ]);
  });
});
