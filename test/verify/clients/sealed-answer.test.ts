// An answer to a sealed fetch: cut, changed, in the clear, under a verifying fetch, and whatever stands in between.
import { describe, expect, it } from 'vitest';
import { withLastMember } from '../../../proto/json.ts';
import { type VerifyingFetchOptions, verifyingFetch } from '../../../verify/clients/fetch.ts';
import type { SealedFetchError } from '../../../verify/clients/sealed.ts';
import { verifySession } from '../../../verify/cpu.ts';
import {
  bytesOf,
  makeOrigin,
  type Opened,
  type Origin,
  type Plain,
  sealedResponse,
} from '../../support/sealed-origin.ts';
import { readProven } from '../attacks/refusal.ts';
import { AT, attest, SECONDS } from '../maker.ts';
import { answerIn, type MadeSession, makeSession, signAnswer, statementDigest } from '../session-maker.ts';
import { answering, asked, client, own, refusal, SIMULATED } from './sealed-client.ts';

describe('an answer', () => {
  /** What the client reads, or the code of what it ends with. */
  async function read(response: Promise<Response>): Promise<{ text: string; end: unknown }> {
    const given = await response;
    if (given.status === 400) return { text: '', end: (await refusal(given)).code };
    let text = '';
    try {
      for await (const chunk of given.body as unknown as AsyncIterable<Uint8Array>)
        text += Buffer.from(chunk).toString();
      return { text, end: null };
    } catch (error) {
      return { text, end: (error as SealedFetchError).code };
    }
  }

  it('that is cut at any byte never ends well', async () => {
    const origin = await makeOrigin();
    origin.answer = { chunks: ['one', 'two'] };
    let length = 0;
    let cut = Number.POSITIVE_INFINITY;
    const { chat } = client(
      origin,
      SIMULATED,
      answering(async (response) => {
        const bytes = await bytesOf(response);
        length = bytes.length;
        return sealedResponse([bytes.subarray(0, cut)]);
      }),
    );
    expect(await read(chat())).toEqual({ text: 'onetwo', end: null });
    expect(length).toBeGreaterThan(90);
    for (cut = 0; cut < length; cut++) {
      const { text, end } = await read(chat());
      expect({ cut, end, prefix: 'onetwo'.startsWith(text) }).toEqual({
        cut,
        end: expect.stringMatching(/^sealed_(truncated|not_opened)$/),
        prefix: true,
      });
    }
  });

  it('whose bytes were changed anywhere never ends well', async () => {
    const origin = await makeOrigin();
    origin.answer = { chunks: ['one', 'two'] };
    let at = 0;
    const { chat } = client(
      origin,
      SIMULATED,
      answering(async (response) => {
        const bytes = await bytesOf(response);
        bytes[at] = (bytes[at] as number) ^ 1;
        at += 3;
        return sealedResponse([bytes]);
      }),
    );
    for (let i = 0; i < 32; i++) {
      const { text, end } = await read(chat());
      expect({ i, end, prefix: 'onetwo'.startsWith(text) }).toEqual({
        i,
        end: expect.stringMatching(/^sealed_/),
        prefix: true,
      });
    }
  });

  it.each<[string, (chunks: Uint8Array[]) => Uint8Array[], string]>([
    ['dropped', ([a, b, _c, d]) => [a, b, d] as Uint8Array[], 'one'],
    ['doubled', ([a, b, c, d]) => [a, b, b, c, d] as Uint8Array[], 'one'],
    ['swapped', ([a, b, c, d]) => [a, c, b, d] as Uint8Array[], ''],
    ['more', (chunks) => [...chunks, chunks[1] as Uint8Array], 'onetwo'],
  ])('with a chunk %s does not end well', async (_what, change, text) => {
    const origin = await makeOrigin();
    origin.answer = { chunks: ['one', 'two'] };
    const plain = { chunks: ['one', 'two'] };
    const { chat } = client(
      origin,
      SIMULATED,
      answering(async (_response, body) => sealedResponse(change(await origin.seal(body, plain)))),
    );
    expect(await read(chat())).toEqual({ text, end: 'sealed_not_opened' });
  });

  it('to another request cannot be opened', async () => {
    const origin = await makeOrigin();
    let first: Uint8Array | null = null;
    const { chat } = client(
      origin,
      SIMULATED,
      answering(async (response) => {
        const bytes = await bytesOf(response);
        first ??= bytes;
        return sealedResponse([first]);
      }),
    );
    expect((await read(chat())).end).toBeNull();
    expect(await read(chat())).toEqual({ text: '', end: 'sealed_not_opened' });
  });

  it('in the clear is never handed over', async () => {
    const origin = await makeOrigin();
    const plain = '{"choices":[{"message":{"content":"forged"}}]}';
    for (const response of [
      Response.json(JSON.parse(plain)),
      new Response(plain, { headers: { 'content-type': 'message/ohttp-res' } }),
      new Response(null, { status: 204 }),
      new Response(plain, { status: 201, headers: { 'content-type': 'message/ohttp-chunked-res' } }),
      new Response(null, { status: 307, headers: { location: 'https://evil.example/' } }),
    ]) {
      const { chat, refused } = client(
        origin,
        SIMULATED,
        answering(async () => response),
      );
      const given = await chat();
      expect(await given.clone().text()).not.toContain('forged');
      expect(await refusal(given)).toEqual(own('answer_not_sealed'));
      expect(refused).toHaveLength(1);
    }
    const pretended = sealedResponse([Buffer.from(plain)]);
    expect(
      (
        await read(
          client(
            origin,
            SIMULATED,
            answering(async () => pretended),
          ).chat(),
        )
      ).end,
    ).toMatch(/^sealed_/);
  });

  it.each([
    [401, {}, { status: 401, retry: null, type: 'edge_refused', code: 'edge_refused' }],
    [403, {}, { status: 403, retry: null, type: 'edge_refused', code: 'edge_refused' }],
    [429, { 'retry-after': '3' }, { status: 429, retry: null, type: 'edge_refused', code: 'edge_refused' }],
    [503, {}, { status: 503, retry: null, type: 'edge_refused', code: 'edge_refused' }],
    [404, {}, { status: 400, retry: 'false', type: 'edge_refused', code: 'edge_refused' }],
    [409, { code: 'sealed_replayed' }, { status: 400, retry: 'false', type: 'edge_refused', code: 'sealed_replayed' }],
    [421, { code: 'sealed_required' }, { status: 400, retry: 'false', type: 'edge_refused', code: 'sealed_required' }],
    [503, { code: 'overloaded' }, { status: 503, retry: null, type: 'edge_refused', code: 'overloaded' }],
    [422, { code: 'constructor' }, { status: 400, retry: 'false', type: 'edge_refused', code: 'edge_refused' }],
  ])('of the edge alone, %i, becomes an error that is marked as its own: %j', async (status, more, expected) => {
    const origin = await makeOrigin();
    const { code, ...headers } = more as Record<string, string>;
    const body = JSON.stringify({ error: { code, message: 'words that the edge wrote' } });
    const { chat } = client(
      origin,
      SIMULATED,
      answering(async () => new Response(body, { status, headers })),
    );
    const given = await chat();
    expect(given.headers.get('retry-after')).toBe(headers['retry-after'] ?? null);
    expect(await given.clone().text()).not.toContain('words that the edge wrote');
    expect(await refusal(given)).toEqual(expected);
  });

  it('is handed on as it comes', async () => {
    const origin = await makeOrigin();
    const { chat } = client(
      origin,
      SIMULATED,
      answering(async (_response, body) => {
        const chunks = await origin.seal(body, { chunks: ['one', 'two'] });
        const stream = new ReadableStream<Uint8Array>({
          async pull(controller) {
            const next = chunks.shift();
            if (next === undefined) return controller.close();
            await written[2 - chunks.length];
            controller.enqueue(next);
          },
        });
        return new Response(stream, { headers: { 'content-type': 'message/ohttp-chunked-res' } });
      }),
    );
    const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const written = [undefined, gates[0]?.promise, gates[1]?.promise];
    const reader = (await chat()).body?.getReader();
    gates[0]?.resolve();
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe('one');
    gates[1]?.resolve();
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe('two');
    expect((await reader?.read())?.done).toBe(true);
  });

  it('errors as the network does, where that fails in the middle', async () => {
    const origin = await makeOrigin();
    const { chat } = client(
      origin,
      SIMULATED,
      answering(async (_response, body) => {
        const chunks = await origin.seal(body, { chunks: ['one', 'two'] });
        let i = 0;
        const stream = new ReadableStream<Uint8Array>({
          pull(controller) {
            if (i < 2) controller.enqueue(chunks[i++] as Uint8Array);
            else controller.error(new TypeError('terminated'));
          },
        });
        return new Response(stream, { headers: { 'content-type': 'message/ohttp-chunked-res' } });
      }),
    );
    const response = await chat();
    await expect(response.text()).rejects.toThrow('terminated');
  });
});

describe('under a verifying fetch', () => {
  const RESPONSE = '{"id":"c1","choices":[{"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}]}';
  const attested = (attestation: object): Plain => ({
    fields: [['content-type', 'application/json']],
    chunks: [withLastMember(RESPONSE, 'attestation', JSON.stringify(attestation))],
  });
  const chatOf = ({ body }: Opened) => ({ request: body, response: RESPONSE, timestamp: SECONDS - 10 });

  async function ask(
    answerOf: (origin: Origin, opened: Opened) => Promise<object>,
    options: VerifyingFetchOptions = {},
    wrap: (response: Response) => Response | Promise<Response> = (response) => response,
  ) {
    const origin = await makeOrigin();
    origin.answer = async (opened) => attested(await answerOf(origin, opened));
    const sealed = client(origin);
    const fetch: typeof globalThis.fetch = async (input, init) => wrap(await sealed.fetch(input, init));
    const { simulatedRoot } = SIMULATED;
    const send = verifyingFetch({ simulatedRoot, policy: { minLevel: 'none' }, at: AT, fetch, ...options });
    const headers = { 'content-type': 'application/json' };
    const init = { method: 'POST', headers, body: '{"model":"m"}' };
    return { ...(await readProven(send(`${origin.url}/v1/chat/completions`, init))), asked: asked(origin).length };
  }

  it('an answer of the session that was sealed to is proven', async () => {
    const got = await ask((origin, opened) => answerIn(origin.session(), chatOf(opened)));
    expect(got).toMatchObject({ text: expect.stringContaining('Hello.'), refused: null, asked: 1 });
  });

  it('one of another session, however genuine, is refused after a look at the newest session', async () => {
    const other = await makeSession();
    const got = await ask((_origin, opened) => answerIn(other, chatOf(opened)));
    expect(got).toEqual({ text: '', refused: 'session_mismatch', asked: 2 });
  });

  it.each([
    ['makes it anew', (response: Response) => new Response(response.body, response)],
    ['clones it', (response: Response) => response.clone()],
    ['reads it', async (response: Response) => new Response(await response.text(), response)],
  ])('is held to its session by a wrapper that %s too', async (_how, wrap) => {
    const other = await makeSession();
    const good = await ask((origin, opened) => answerIn(origin.session(), chatOf(opened)), {}, wrap);
    expect(good).toMatchObject({ text: expect.stringContaining('Hello.'), refused: null });
    const got = await ask((_origin, opened) => answerIn(other, chatOf(opened)), {}, wrap);
    expect(got).toMatchObject({ text: '', refused: 'session_mismatch' });
  });

  it('one that no processor signed is refused', async () => {
    const got = await ask((_origin, opened) => attest(chatOf(opened)));
    expect(got).toEqual({ text: '', refused: 'session_mismatch', asked: 1 });
  });

  it('one in the short form is proven beside its session, and no other', async () => {
    const short = async (session: MadeSession, opened: Opened) => {
      const made = await attest({ session: statementDigest(session), ...chatOf(opened) });
      return { ...made, cpu: { statement_sha256: statementDigest(session), signature: signAnswer(session, made) } };
    };
    const other = await makeSession();
    const { session } = await verifySession(
      { ...other.cpu, gpu: other.gpu },
      { simulatedRoot: SIMULATED.simulatedRoot, at: AT },
    );
    const got = await ask((_origin, opened) => short(other, opened), { session });
    expect(got).toEqual({ text: '', refused: 'session_mismatch', asked: 2 });
    const unknown = await ask((origin, opened) => short(origin.session(), opened));
    expect(unknown.refused).toBe('cpu_missing');
  });

  it('a refusal of the sealed fetch is handed on as it is', async () => {
    const origin = await makeOrigin();
    const send = verifyingFetch({ fetch: client(origin, { ...SIMULATED, policy: {} }).fetch });
    const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{}' };
    expect(await refusal(await send(`${origin.url}/v1/chat/completions`, init))).toEqual(own('level_too_low'));
  });
});
