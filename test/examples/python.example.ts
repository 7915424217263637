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

  it('verify.py: a saved stream is valid in the lines of the profile, and refused in any other', async () => {
    const request =
      '{"model":"countersign-demo","messages":[{"role":"user","content":"Hi"}],"max_tokens":5,"stream":true,"tee":true}';
    const saved = await post(service, request);
    const path = join(service.folder, 'lines');
    const verified = async (text: string) => {
      writeFileSync(path, text);
      const { code, output } = await execute('examples/python/verify.py', path, '--simulated-root', service.root);
      return [code, output];
    };
    for (const text of [
      saved,
      saved.replaceAll('\n', '\r\n'),
      saved.replaceAll('data: ', 'data:'),
      `: a comment\n${saved}`,
    ])
      expect(await verified(text)).toEqual([0, expect.stringContaining('pass  expected_exchange')]);
    for (const text of [
      saved.replaceAll('\n', '\r'),
      `\ufeff${saved}`,
      saved.replaceAll('data:', 'id: 1\nretry: 3000\ndata:'),
    ])
      expect(await verified(text)).toEqual([1, expect.stringContaining('FAIL  form')]);
    // Its lines are those of an endpoint whose events have names, or of one payload that was cut.
    for (const text of [
      saved.replaceAll('data:', 'event: message\ndata:'),
      saved.replace('data: {', 'data: {\r\ndata: '),
    ])
      expect(await verified(text)).toEqual([1, expect.stringContaining('FAIL  expected_exchange')]);
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
