// `countersign replay`: the signed request is asked again, byte for byte, and the responses are compared.

import { writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { firstDifference } from '../../auditor/replay.ts';
import { answer, chatAnswer, chatBody, chatStream, type Script } from '../support/backend.ts';
import { ask } from '../support/client.ts';
import { type Folder, temporaryFolder } from '../support/harness.ts';
import { startProcess } from '../support/process.ts';
import { useService } from '../support/service.ts';

const service = useService();
let folder: Folder;
let root: string;
beforeAll(() => {
  folder = temporaryFolder();
  root = join(folder.path, 'root.pem');
  writeFileSync(root, service.sidecar.attester.simulated?.root ?? '');
});
afterAll(() => folder.remove());

const BODY = '{"model": "m", "messages": [{"role": "user", "content": "Hi"}], "seed": 1, "tee": true}';

/** An answer as `curl > file` keeps it. */
async function saved(body = BODY, path = '/v1/chat/completions', headers = {}): Promise<string> {
  const { text } = await ask(`${service.url}${path}`, { body, headers });
  const file = join(folder.path, 'saved.json');
  writeFileSync(file, text);
  return file;
}

async function replay(file: string, ...args: string[]) {
  const url = args.includes('--base-url') ? [] : ['--base-url', `${service.url}/v1`];
  const child = startProcess('bin/countersign.js', ['replay', file, '--allow-simulated', root, ...url, ...args]);
  return { code: (await child.exited).code, output: child.output() };
}

/** Scripts one after the other, the last one again and again. */
const inTurn = (...scripts: Script[]): Script => {
  const left = [...scripts];
  return (request, response) => (left.length > 1 ? left.shift() : left[0])?.(request, response);
};

describe('countersign replay', () => {
  it('finds a deterministic service identical as often as it asks, with the very bytes of the request', async () => {
    service.backend.script = chatAnswer('Hello.');
    const file = await saved();
    const first = service.backend.seen.at(-1)?.body;
    const { code, output } = await replay(file, '--times', '3');
    expect([code, output]).toEqual([
      0,
      expect.stringMatching(/^1: proven, identical\n2: .*\n3: .*\n\n3 of 3 identical\n$/),
    ]);
    expect(service.backend.seen.slice(-3).map(({ body }) => body)).toEqual([first, first, first]);
  });

  it('says where responses part, and none of their text', async () => {
    service.backend.script = inTurn(
      chatAnswer('The sky is blue.'),
      chatAnswer('The sky is blue.'),
      chatAnswer('The sea.'),
    );
    const { code, output } = await replay(await saved(), '--times', '2');
    expect(code).toBe(1);
    expect(output).toContain('2: different: parts at choices[0].message.content, character 6\n\n1 of 2 identical');
    expect(output).not.toMatch(/sky|sea/);
    const json = JSON.parse((await replay(await saved(), '--json')).output);
    expect(json).toEqual({
      endpoint: '/v1/chat/completions',
      identical: 1,
      ties: 0,
      outcomes: [{ outcome: 'identical' }],
    });
  });

  it('tells a tie at temperature 0 from another answer, by the log-probabilities of both', async () => {
    const said = (tokens: readonly (readonly [string, number])[]): Script =>
      answer(
        chatBody(tokens.map(([token]) => token).join('')).replace(
          '"logprobs":null',
          `"logprobs":${JSON.stringify({ content: tokens.map(([token, logprob]) => ({ token, logprob })) })}`,
        ),
      );
    const greedy = BODY.replace('"seed"', '"temperature": 0, "logprobs": true, "seed"');
    const replayed = async (again: readonly (readonly [string, number])[], body = greedy) => {
      const first = said([
        ['Hel', -0.1],
        ['lo', -0.701],
      ]);
      service.backend.script = inTurn(first, said(again));
      return replay(await saved(body));
    };
    const tie = [
      ['Hel', -0.102],
      ['p', -0.704],
    ] as const;
    expect(await replayed(tie)).toMatchObject({
      code: 0,
      output: expect.stringContaining(
        '1: proven, identical up to token 1, then a tie (0.003 apart)\n\n0 of 1 identical, 1 identical up to a tie',
      ),
    });
    expect(await replayed(tie, greedy.replace('"temperature": 0', '"temperature": 1'))).toMatchObject({ code: 1 });
    expect(
      await replayed([
        ['Hel', -0.1],
        ['p', -3.8],
      ]),
    ).toMatchObject({ code: 1, output: expect.stringContaining('character 4: token 2 differs by 3.1 nats') });
    expect(
      await replayed([
        ['Hel', -2.1],
        ['lo', -0.701],
      ]),
    ).toMatchObject({ code: 1, output: expect.stringContaining('log-probabilities: token 1 differs by 2.0 nats') });
  });

  it('replays streams, and requests whose attestation was asked for by a header', async () => {
    service.backend.script = chatStream(['Hel', 'lo']);
    expect(await replay(await saved(BODY.replace('"seed"', '"stream": true, "seed"')))).toMatchObject({ code: 0 });
    service.backend.script = chatAnswer('Hello.');
    const file = await saved(BODY.replace(', "tee": true', ''), '/v1/chat/completions', { 'x-tee': '1' });
    expect(await replay(file)).toMatchObject({ code: 0 });
  });

  it('takes no older answer for a new one, and no answer without a proof', async () => {
    service.backend.script = chatAnswer('Hello.');
    const old = (await ask(`${service.url}/v1/chat/completions`, { body: BODY })).text;
    const file = join(folder.path, 'old.json');
    writeFileSync(file, old);
    let answer = old;
    const server: Server = createServer((_request, response) =>
      response.setHeader('content-type', 'application/json').end(answer),
    );
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const asked = () => replay(file, '--base-url', url);
    expect(await asked()).toMatchObject({ code: 1, output: expect.stringContaining('not proven: attestation_seen') });
    answer = old.replace('Hello.', 'Hullo.');
    expect(await asked()).toMatchObject({ code: 1, output: expect.stringContaining('not proven: response_mismatch') });
    answer = '{"choices":[]}';
    expect(await asked()).toMatchObject({ code: 1, output: expect.stringContaining('not proven: not_an_attestation') });
    server.close();
    expect(await asked()).toMatchObject({ code: 2, output: expect.stringContaining('cannot be reached') });
  });

  it('asks nothing where the proof in the file does not verify, and says what a service answered', async () => {
    service.backend.script = chatAnswer('Hello.');
    const file = await saved();
    const before = service.backend.seen.length;
    const refused = await replay(file, '--at', 'x');
    expect([refused.code, service.backend.seen.length]).toEqual([2, before]);
    const other = join(folder.path, 'other.json');
    writeFileSync(
      other,
      (await ask(`${service.url}/v1/chat/completions`, { body: BODY })).text.replace('Hello.', 'Hallo.'),
    );
    const seen = service.backend.seen.length;
    expect(await replay(other)).toMatchObject({ code: 1, output: expect.stringContaining('response_mismatch') });
    expect(service.backend.seen).toHaveLength(seen);
    service.backend.script = (_request, response) => void response.writeHead(429).end('{}');
    expect(await replay(file)).toMatchObject({ code: 1, output: expect.stringContaining('the service answered 429') });
  });
});

describe('the first difference of two responses', () => {
  it.each([
    [{ id: 'a', created: 1, usage: { total_tokens: 3 }, choices: [] }, { id: 'b', created: 2, choices: [] }, null],
    [{ choices: [{ text: 'aé😀b' }] }, { choices: [{ text: 'aé😀c' }] }, 'choices[0].text, character 4'],
    [{ choices: [{ text: 'ab' }] }, { choices: [{ text: 'abc' }] }, 'choices[0].text, character 3'],
    [{ choices: [{}] }, { choices: [{}, {}] }, 'choices[1]'],
    [{ output: [{ id: 'x', content: null }] }, { output: [{ id: 'y', content: [] }] }, 'output[0].content'],
    [{ data: [{ embedding: [0.5, 0.25] }] }, { data: [{ embedding: [0.5, 0.125] }] }, 'data[0].embedding[1]'],
    [{ choices: { 0: 1 } }, { choices: [1] }, 'choices'],
  ])('of %j and %j is %j', (a, b, place) => {
    expect(firstDifference(a, b)).toBe(place);
  });
});
