import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { CHAT_ENDPOINT, splitRaw } from '../../../proto/attestation/raw.ts';
import { topLevelMembers, withoutMember } from '../../../proto/json.ts';
import { foldPayloads } from '../../../proto/stream/fold.ts';
import { choicesAsked } from '../../../proto/stream/forms.ts';
import { chatStream, DONE, delta, event, finish, role, stream, usage } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually } from '../../support/harness.ts';
import { useService } from '../../support/service.ts';

const ASK = { ...CHAT, stream: true };
const TEE = { ...ASK, tee: true };

const service = useService(
  { MAX_ANSWER_BYTES: '1048576', BACKEND_TIMEOUT_MS: '1500' },
  { collectionMs: 30 },
  chatStream(['Hel', 'lo']),
);

/** Takes the attestation out of the one chunk that carries it; gives the backend's payloads back. */
function unsplice(payloads: readonly string[]): {
  attestation: { raw: string; nonce: string } | null;
  payloads: string[];
  at: number;
} {
  let attestation: { raw: string; nonce: string } | null = null;
  let at = -1;
  const restored = payloads.map((payload, i) => {
    if (!payload.startsWith('{')) return payload;
    const members = topLevelMembers(payload);
    const index = members.findIndex((member) => member.key === 'attestation');
    if (index < 0) return payload;
    expect(attestation).toBeNull();
    expect(index).toBe(members.length - 1);
    attestation = JSON.parse(payload).attestation;
    at = i;
    return withoutMember(payload, members, index);
  });
  return { attestation, payloads: restored, at };
}

function sha256(payloads: readonly string[]): string {
  const hash = createHash('sha256');
  for (const payload of payloads) if (payload !== '[DONE]') hash.update(`${payload}\n`);
  return hash.digest('hex');
}

async function expectProven(pieces: readonly string[], request: object = TEE) {
  const got = await chat(service.url, request);
  const sent = pieces
    .join('')
    .split('\n\n')
    .filter((one) => one.startsWith('data:'))
    .map((one) => one.replace(/^data: ?/, ''));
  const { attestation, payloads, at } = unsplice(got.payloads());
  expect(payloads).toEqual(sent.includes('[DONE]') ? sent : [...sent, '[DONE]']);
  if (attestation === null) throw new Error('no attestation');
  const parts = splitRaw(attestation.raw);
  const chunks = sent.filter((one) => one !== '[DONE]');
  expect(parts.stream).toEqual({ events: chunks.length, sha256: sha256(chunks) });
  expect(parts.response).toBe(foldPayloads(chunks, choicesAsked(CHAT_ENDPOINT, request)));
  const verdict = await ask(`${service.url}/~sev_gpu@1.0/verify`, { method: 'GET', body: JSON.stringify(attestation) });
  expect(verdict.text).toBe('true');
  return { got, parts, at, payloads };
}

describe('a stream without tee', () => {
  it("is the backend's, byte for byte, comments and line ends included", async () => {
    const pieces = [': ping\n\n', 'data: {"a":1.0}\r\n\r\n', 'event: x\ndata: no JSON at all\n\n', 'data: [DONE]\n\n'];
    service.backend.script = stream(pieces);
    const got = await chat(service.url, ASK);
    expect(got.text).toBe(pieces.join(''));
    expect(got.headers['content-type']).toBe('text/event-stream; charset=utf-8');
  });

  it('arrives piece by piece as the backend sends it', async () => {
    service.backend.script = chatStream(['a', 'b', 'c'], 60);
    const at: number[] = [];
    await chat(service.url, ASK, {}, (_chunk, ms) => void at.push(ms));
    expect(at.length).toBeGreaterThanOrEqual(5);
  });
});

describe('a stream with tee', () => {
  it("carries the attestation on its finish chunk, the other bytes the backend's", async () => {
    const { got, at, payloads } = await expectProven([role(), delta('Hel'), delta('lo'), finish(), usage(), DONE]);
    expect(JSON.parse(payloads[at] as string).choices[0].finish_reason).toBe('stop');
    expect(got.text.endsWith('data: [DONE]\n\n')).toBe(true);
    const id = got.headers['x-attestation-id'];
    const again = await ask(`${service.url}/v1/chat/completions/${id}/attestation`, { method: 'GET' });
    expect(again.json()).toEqual(JSON.parse(got.payloads()[at] as string).attestation);
  });

  it('lets deltas go at once, and holds the finish chunk until the backend has ended', async () => {
    const read = Promise.withResolvers<void>();
    let backend_ended = false;
    service.backend.script = async (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(role() + delta('now') + finish());
      await read.promise;
      await new Promise((resolve) => setTimeout(resolve, 300));
      backend_ended = true;
      response.end(usage() + DONE);
    };
    const pieces: { text: string; backend_ended: boolean }[] = [];
    await chat(service.url, TEE, {}, (chunk) => {
      pieces.push({ text: chunk.toString(), backend_ended });
      read.resolve();
    });
    expect(pieces[0]).toMatchObject({ text: expect.stringContaining('"now"'), backend_ended: false });
    expect(pieces.find((piece) => piece.text.includes('"stop"'))?.backend_ended).toBe(true);
  });

  it('answers 425 with retry-after for its attestation while it runs', async () => {
    service.backend.script = chatStream(['a', 'b', 'c', 'd'], 50);
    const running = ask(`${service.url}/v1/chat/completions`, { body: JSON.stringify(TEE), headers: {} });
    await eventually(() => service.backend.seen.length === 1);
    let id = '';
    const probe = chat(service.url, TEE, {}, () => undefined);
    // The id is known before the first token: read it from a second stream's head.
    const { request } = await import('node:http');
    await new Promise<void>((resolve, reject) => {
      const outgoing = request(
        `${service.url}/v1/chat/completions`,
        { method: 'POST', headers: { 'content-type': 'application/json' } },
        (incoming) => {
          id = String(incoming.headers['x-attestation-id']);
          ask(`${service.url}/v1/chat/completions/${id}/attestation`, { method: 'GET' }).then((pending) => {
            expect([pending.status, pending.json().error.code, pending.headers['retry-after']]).toEqual([
              425,
              'attestation_pending',
              '1',
            ]);
            incoming.resume().on('end', resolve);
          }, reject);
        },
      );
      outgoing.end(JSON.stringify(TEE));
    });
    await Promise.all([running, probe]);
    const done = await ask(`${service.url}/v1/chat/completions/${id}/attestation`, { method: 'GET' });
    expect(done.status).toBe(200);
  });

  it("answers 425 for the completion's own id too while it runs, 404 once it has failed, and 200 when it is proven", async () => {
    const pieces = [role(), delta('a'), delta('b'), delta('c'), finish(), DONE].map((piece) =>
      piece.replace('chatcmpl-1', 'chatcmpl-own'),
    );
    const find = async () =>
      (await ask(`${service.url}/v1/chat/completions/chatcmpl-own/attestation`, { method: 'GET' })).status;
    for (const [ending, after] of [
      [null, 404],
      [DONE, 200],
    ] as const) {
      service.backend.script = stream([...pieces.slice(0, 4), ...(ending === null ? [null] : pieces.slice(4))], 60);
      const running: number[] = [];
      const asked: Promise<unknown>[] = [];
      await chat(service.url, TEE, {}, () => {
        if (asked.length === 0) asked.push(find().then((status) => running.push(status)));
      });
      await Promise.all(asked);
      expect(running).toEqual([425]);
      expect(await find()).toBe(after);
    }
  });

  it('understands CRLF, comments, multi-line data and a missing [DONE]', async () => {
    const chunk = JSON.parse(delta('x').slice(6));
    const pretty = JSON.stringify(chunk, null, 1);
    const pieces = [
      ': hi\r\n\r\n',
      `data: ${JSON.stringify(chunk)}\r\n\r\n`,
      `${pretty
        .split('\n')
        .map((line) => `data: ${line}`)
        .join('\n')}\n\n`,
      finish().replace(/\n\n$/, '\r\n\r\n'),
    ];
    service.backend.script = stream(pieces);
    const got = await chat(service.url, TEE);
    // In events of the gateway's own: no byte of the backend's framing is passed on.
    const data = got.text.replace(': waiting\n\n', '');
    expect(data.startsWith(`data: ${JSON.stringify(chunk)}\n\n${pieces[2]}data: {`)).toBe(true);
    expect(got.text.endsWith('}\n\ndata: [DONE]\n\n')).toBe(true);
    const attestation = JSON.parse(got.payloads().at(-2) as string).attestation;
    expect(splitRaw(attestation.raw).stream).toEqual({
      events: 3,
      sha256: sha256([JSON.stringify(chunk), pretty, finish().slice(6, -2)]),
    });
    expect(JSON.parse(splitRaw(attestation.raw).response).choices[0].message.content).toBe('xx');
  });

  it('proves a finish chunk that came without its empty line', async () => {
    service.backend.script = stream([role(), delta('x'), finish().trimEnd()]);
    const got = await chat(service.url, TEE);
    expect(got.payloads()).toHaveLength(4);
    expect(JSON.parse(got.payloads()[2] as string).attestation.nonce).toMatch(/^[0-9a-f]{64}$/);
  });

  it('holds a finish chunk with content whole', async () => {
    const last = event({
      id: 'c',
      object: 'chat.completion.chunk',
      choices: [{ index: 0, delta: { content: 'end' }, finish_reason: 'stop' }],
    });
    const pieces = [role(), last, DONE];
    service.backend.script = stream(pieces);
    const { parts } = await expectProven(pieces);
    expect(JSON.parse(parts.response).choices[0].message.content).toBe('end');
  });

  it('puts the attestation of several choices on the last finish chunk', async () => {
    const pieces = [
      role(0),
      role(1),
      delta('a', 0),
      finish('stop', 0),
      delta('b', 1),
      delta('c', 1),
      finish('length', 1),
      usage(),
      DONE,
    ];
    service.backend.script = stream(pieces);
    const { at, payloads } = await expectProven(pieces, { ...TEE, n: 2 });
    expect(JSON.parse(payloads[at] as string).choices[0]).toMatchObject({ index: 1, finish_reason: 'length' });
  });

  it('never lets a lone choice say stop unproven, even when the backend goes on after it', async () => {
    service.backend.script = stream([role(), finish(), delta('late', 1), null]);
    const got = await chat(service.url, TEE);
    expect(got.text).not.toContain('"stop"');
    expect(JSON.parse(got.payloads().at(-1) as string).error.code).toBe('stream_not_foldable');
  });

  it('is not fooled by a byte order mark before a finish chunk', async () => {
    service.backend.script = stream([Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), Buffer.from(finish())]), null]);
    expect((await chat(service.url, TEE)).text).not.toContain('"stop"');
    service.backend.script = stream([Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), Buffer.from(finish())]), DONE]);
    const got = await chat(service.url, TEE);
    expect(JSON.parse(got.text.split('\n')[0]?.slice(6) ?? '').attestation.nonce).toMatch(/^[0-9a-f]{64}$/);
  });

  it('puts the attestation into the data, whatever stands beside it', async () => {
    service.backend.script = stream([role(), finish().replace('\n\n', '\n: an odd comment }\ndata:\n\n'), DONE]);
    const got = await chat(service.url, TEE);
    const line = got.text.split('\n').find((one) => one.includes('"stop"')) ?? '';
    expect(JSON.parse(line.slice(6)).attestation.nonce).toMatch(/^[0-9a-f]{64}$/);
    expect(got.text).not.toContain('an odd comment');
  });

  it('takes a chunk that finishes in any way for a finish chunk', async () => {
    for (const reason of ['true', '0.0', '{}', '["stop"]', '"length"']) {
      const chunk = finish().replace('"finish_reason":"stop"', `"finish_reason":${reason}`);
      service.backend.script = stream([role(), chunk, null]);
      expect((await chat(service.url, TEE)).text).not.toContain(`"finish_reason":${reason}`);
    }
  });

  it('folds tool calls, and keeps exact numbers', async () => {
    const tool = (part: object) =>
      event({
        id: 'c',
        object: 'chat.completion.chunk',
        choices: [{ index: 0, delta: { tool_calls: [{ index: 0, ...part }] }, finish_reason: null }],
      });
    const odd =
      'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"score":1.0,"big":12345678901234567890}}]}\n\n';
    const pieces = [
      tool({ id: 't', type: 'function', function: { name: 'f', arguments: '' } }),
      tool({ function: { arguments: '{"a":1}' } }),
      odd,
      finish('tool_calls'),
      DONE,
    ];
    service.backend.script = stream(pieces);
    const { parts } = await expectProven(pieces);
    expect(parts.response).toContain('"score":1.0,"big":12345678901234567890');
    expect(JSON.parse(parts.response).choices[0].message.tool_calls[0].function).toEqual({
      name: 'f',
      arguments: '{"a":1}',
    });
  });

  it("gives the same answer wherever the network cuts the backend's bytes", async () => {
    const whole = Buffer.from([role(), delta('é😀'), finish(), DONE].join(''));
    for (const size of [1, 7, 64]) {
      const pieces = Array.from({ length: Math.ceil(whole.length / size) }, (_, i) =>
        whole.subarray(i * size, (i + 1) * size),
      );
      service.backend.script = stream(pieces);
      const { payloads } = unsplice((await chat(service.url, TEE)).payloads());
      expect(payloads).toEqual([role(), delta('é😀'), finish(), DONE].map((one) => one.slice(6, -2)));
    }
  });
});
