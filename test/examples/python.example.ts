// examples/python and the filter for Open WebUI, each run as its first lines say.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { python, SKIPPED } from './python.ts';
import { nonces, run } from './run.ts';
import { SAID, type Service, startService } from './service.ts';

describe.skipIf(python === null)(`Python${SKIPPED}`, () => {
  let service: Service;
  beforeAll(async () => {
    service = await startService();
  });
  afterAll(() => service.close());
  const execute = (...args: string[]) => run([python ?? '', ...args], service.demo);

  it('openai_chat.py: two answers, each with a nonce', async () => {
    const ran = await execute('examples/python/openai_chat.py');
    expect([ran.code, ran.errors]).toEqual([0, '']);
    expect(nonces(ran.output)).toHaveLength(2);
  });

  it('langchain_agent.py: a tool is called and its answer said, whole and streamed, each answer with its own nonce', async () => {
    const ran = await run([python ?? '', 'examples/python/langchain_agent.py'], service.agent);
    expect(ran.code, ran.errors).toBe(0);
    expect(ran.output).toContain('tool: 18 degrees in Paris');
    expect(ran.output.split(SAID)).toHaveLength(3);
    expect(nonces(ran.output)).toHaveLength(4);
  });

  it('verify.py: a saved answer and a saved stream are valid, byte for byte what was sent; changed, they are not', async () => {
    const file = (name: string, text: string) => {
      const path = join(service.folder, name);
      writeFileSync(path, text);
      return path;
    };
    for (const stream of [false, true]) {
      const request = `{"model":"countersign-demo","messages":[{"role":"user","content":"Hello"}],"max_tokens":20,"stream":${stream},"tee":true}`;
      const saved = await post(service, request);
      const verify = (text: string, sent = request) =>
        execute(
          ...['examples/python/verify.py', file('saved', text), '--request', file('request', sent)],
          ...['--simulated-root', service.root],
        );
      const ran = await verify(saved);
      expect([ran.code, ran.errors]).toEqual([0, '']);
      expect(ran.output).toContain('pass  expected_exchange');
      expect(ran.output).toContain('SIMULATED: this proves nothing about hardware.\nVALID as far as');

      for (const [text, sent, check] of [
        [saved.replace('Hello', 'Jello'), request, 'raw_hash'],
        [saved, request.replace('Hello', 'Jello'), 'expected_exchange'],
        [saved.replace(/("(?:finish_reason)":)"/, '$1"x'), request, 'expected_exchange'],
      ] as const) {
        const changed = await verify(text, sent);
        expect([changed.code, changed.output.split('\n').findLast((line) => line.startsWith('FAIL'))]).toEqual([
          1,
          expect.stringContaining(`${check}: `),
        ]);
      }
    }
    const unnamed = await execute('examples/python/verify.py', join(service.folder, 'saved'));
    expect([unnamed.code, unnamed.output]).toEqual([1, expect.stringContaining('FAIL  ')]);
    expect((await execute('examples/python/verify.py', 'no-such-file')).code).toBe(2);
  });

  it('verify.py: a saved stream is valid in whatever lines the backend wrote it', async () => {
    const request =
      '{"model":"countersign-demo","messages":[{"role":"user","content":"Hi"}],"max_tokens":5,"stream":true,"tee":true}';
    const saved = await post(service, request);
    const path = join(service.folder, 'lines');
    for (const [name, text] of Object.entries({
      'CR LF': saved.replaceAll('\n', '\r\n'),
      CR: saved.replaceAll('\n', '\r'),
      'a mark in front': `\ufeff${saved}`,
      names: saved.replaceAll('data:', 'event: message\ndata:'),
      ids: saved.replaceAll('data:', 'id: 1\nretry: 3000\ndata:'),
      'no space': saved.replaceAll('data: ', 'data:'),
    })) {
      writeFileSync(path, text);
      const ran = await execute('examples/python/verify.py', path, '--simulated-root', service.root);
      expect([name, ran.code, ran.output]).toEqual([name, 0, expect.stringContaining('pass  expected_exchange')]);
    }
    writeFileSync(path, saved.replace('data: {', 'data: {\r\ndata: '));
    const cut = await execute('examples/python/verify.py', path, '--simulated-root', service.root);
    expect([cut.code, cut.output]).toEqual([1, expect.stringContaining('FAIL  expected_exchange')]);
  });
});

async function post({ demo }: Service, body: string): Promise<string> {
  const response = await fetch(`${demo.OPENAI_BASE_URL}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${demo.OPENAI_API_KEY}`, 'content-type': 'application/json' },
    body,
  });
  return response.text();
}
