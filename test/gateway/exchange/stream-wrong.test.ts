import { request } from 'node:http';
import { describe, expect, it } from 'vitest';
import { chatStream, DONE, delta, event, finish, role, stream } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually } from '../../support/harness.ts';
import { useService } from '../../support/service.ts';

const ASK = { ...CHAT, stream: true };
const TEE = { ...ASK, tee: true };

const service = useService({ MAX_ANSWER_BYTES: '1048576', BACKEND_TIMEOUT_MS: '1500' });

describe('a stream that goes wrong', () => {
  const lastError = (text: string[]) => JSON.parse(text.at(-1) as string).error;

  it.each([
    ['breaks off in the middle', [role(), delta('x'), null]],
    ['breaks off inside an event', [role(), delta('x').slice(0, 30), null]],
    ['breaks off after the finish chunk', [role(), delta('x'), finish(), null]],
    ['ends without a finish chunk', [role(), delta('x')]],
    ['ends in a clean [DONE] without a finish chunk', [role(), delta('x'), DONE]],
    ['sends a chunk that is not JSON', [role(), 'data: {"half":\n\n', finish(), DONE]],
    ['sends an attestation of its own', [role(), event({ choices: [], attestation: {} }), finish(), DONE]],
    ['gives an event a name', [role(), `event: thread.x\n${delta('not ')}`, delta('safe'), finish(), DONE]],
    ['begins a later line with a byte order mark', [role(), `\ufeff${delta('not ')}`, delta('safe'), finish(), DONE]],
    ['hides data in a comment', [role(), `: \u2028${delta('not ')}`, delta('safe'), finish(), DONE]],
    ['sends an id', [role(), `id: 1\n${delta('x')}`, finish(), DONE]],
    ['sends a line of its own kind', [role(), `error: ${delta('x')}`, finish(), DONE]],
    ['ends a line in CR alone', [role(), delta('x').replace('\n\n', '\r\r'), finish(), DONE]],
    ['sends choices that are no list', [role(), event({ choices: { 0: { finish_reason: 'stop' } } }), finish(), DONE]],
    ['gives [DONE] a name', [role(), delta('x'), finish(), `event: x\r\n${DONE}`]],
    [
      'sends a chunk that is not UTF-8',
      [role(), Buffer.from([0x64, 0x61, 0x74, 0x61, 0x3a, 0x22, 0xff, 0x22, 0x0a, 0x0a]), finish(), DONE],
    ],
    [
      'sends more than is attested',
      [role(), ...Array.from({ length: 12 }, () => delta('y'.repeat(100_000))), finish(), DONE],
    ],
  ])('gives an error object and never a finish chunk when the backend %s', async (_name, pieces) => {
    service.backend.script = stream(pieces);
    const got = await chat(service.url, TEE);
    expect(got.text).not.toContain('"finish_reason":"stop"');
    expect(got.text).not.toContain('[DONE]');
    const error = lastError(got.payloads());
    expect(['backend_bad_response', 'stream_not_foldable', 'answer_too_large']).toContain(error.code);
    expect(error).toMatchObject({ type: 'server_error', param: null });
    const again = await ask(`${service.url}/v1/chat/completions/${got.headers['x-attestation-id']}/attestation`, {
      method: 'GET',
    });
    expect(again.status).toBe(404);
  });

  it.each([
    ['before the finish chunk', (error: string) => [role(), error, finish(), DONE]],
    ['after it', (error: string) => [role(), finish(), error, DONE]],
  ])("has no proof where vLLM's error is a chunk %s, and tells its message", async (_name, pieces) => {
    const error = { object: 'error', message: 'out of memory', type: 'InternalError', param: null, code: 500 };
    service.backend.script = stream(pieces(event(error)));
    const got = await chat(service.url, TEE);
    expect(lastError(got.payloads())).toMatchObject({ message: 'out of memory', type: 'server_error' });
    expect(got.text).not.toMatch(/"stop"|"attestation"|\[DONE\]/);
    service.backend.script = chatStream(['fine']);
    expect((await chat(service.url, TEE)).text).toContain('"attestation"');
  });

  it("passes the backend's own error chunk on in OpenAI's shape", async () => {
    service.backend.script = stream([
      role(),
      event({ error: { message: 'out of memory', code: 500 } }),
      finish(),
      DONE,
    ]);
    const got = await chat(service.url, TEE);
    expect(lastError(got.payloads())).toEqual({
      message: 'out of memory',
      type: 'server_error',
      param: null,
      code: 'backend_error',
    });
    expect(got.text).not.toContain('"stop"');
  });

  it('says without tee too that the backend broke off between two events, and breaks the connection inside one', async () => {
    service.backend.script = stream([role(), delta('x'), null], 20);
    const between = await chat(service.url, ASK);
    expect(lastError(between.payloads()).code).toBe('backend_bad_response');
    service.backend.script = stream([role(), delta('x').slice(0, 30), null], 20);
    const inside = await chat(service.url, ASK);
    expect(inside.complete).toBe(false);
  });

  it('ends a stream that stays silent for too long', async () => {
    service.backend.script = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(role());
    };
    const got = await chat(service.url, TEE);
    expect(lastError(got.payloads()).code).toBe('backend_timeout');
  });

  it('cancels the backend within a second when the client leaves, and makes no attestation', async () => {
    for (const body of [ASK, TEE]) {
      service.backend.seen.length = 0;
      service.backend.script = chatStream(
        Array.from({ length: 200 }, (_, i) => `w${i}`),
        20,
      );
      let left = 0;
      const got = await chat(service.url, body, {}, (_chunk, ms) => {
        left = ms;
        return false;
      });
      await eventually(() => service.backend.seen[0]?.aborted_ms != null, 1_000);
      expect((service.backend.seen[0]?.aborted_ms ?? Infinity) - left).toBeLessThan(1_000);
      const again = await ask(
        `${service.url}/v1/chat/completions/${got.headers['x-attestation-id'] ?? 'none'}/attestation`,
        { method: 'GET' },
      );
      expect(again.status).toBe(404);
    }
  });

  it('makes a backend wait for a client that does not read', async () => {
    for (const body of [ASK, { ...TEE }]) {
      let written = 0;
      service.backend.script = async (_request, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.setMaxListeners(0);
        const piece = delta('x'.repeat(65_536));
        while (!response.destroyed && written < 400 * piece.length) {
          written += piece.length;
          if (!response.write(piece))
            await new Promise((resolve) => response.once('drain', resolve).once('close', resolve));
        }
      };
      const outgoing = request(`${service.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
      });
      outgoing.on('error', () => {});
      outgoing.on('response', (incoming) => incoming.pause().on('error', () => {}));
      outgoing.end(JSON.stringify(body));
      await new Promise((resolve) => setTimeout(resolve, 700));
      // Kernel buffers on both connections take some; 26 MB were there to be sent.
      expect(written).toBeLessThan(16_000_000);
      outgoing.destroy();
      written = 0;
    }
  });
});
