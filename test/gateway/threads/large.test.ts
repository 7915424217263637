import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Draft, type DraftInput, draft } from '../../../gateway/threads/jobs.ts';
import { createOffload } from '../../../gateway/threads/offload.ts';
import { CHAT_ENDPOINT, MAX_RAW_LENGTH, splitRaw } from '../../../proto/attestation/raw.ts';
import { topLevelMembers, withoutMember } from '../../../proto/json.ts';
import { answer, DONE, delta, finish, role, stream } from '../../support/backend.ts';
import { ask, chat } from '../../support/client.ts';
import { type Service, startService } from '../../support/harness.ts';
import { expectError } from '../expect-error.ts';
import { CLIENT } from './here.ts';

/** Half a megabyte, with characters of one to four bytes. */
const TEXT = 'the Danube fließt – 東京 \\u0041\\n 😀; '.repeat(14_000);
const REQUEST = '{"messages":[{"role":"user","content":"é"}], "tee" : true}';

describe('a draft of a large answer, made on a thread,', () => {
  const offload = createOffload();
  afterAll(() => offload.close());
  const parts = (body: string | Buffer): DraftInput => ({
    endpoint: CHAT_ENDPOINT,
    request: REQUEST,
    response: { body: Buffer.from(body) },
    timestamp: 1_700_000_000,
  });
  const resultOf = async (make: () => Draft | Promise<Draft>) => {
    try {
      const { raw, start, ...rest } = await make();
      return { ...rest, raw: Buffer.from(raw).toString('utf8'), start: Buffer.from(start).toString('utf8') };
    } catch (error) {
      const { name, message, code } = error as { name: string; message: string; code?: string };
      return { name, message, code };
    }
  };

  it.each([
    ['plain', `{"id":"c-1","n":1.0,"text":"${TEXT}"}`, 'c-1'],
    ['with space around it', ` \n{ "text" : "${TEXT}" , "id" : "c-2" }\r\n\t`, 'c-2'],
    ['without an id', `{"text":"${TEXT}"}`, null],
    ['with an empty id', `{"id":"","text":"${TEXT}"}`, null],
    ['with an id that is no text', `{"id":7,"text":"${TEXT}"}`, null],
    ['with an error that is null', `{"id":"c","error":null,"text":"${TEXT}"}`, 'c'],
    ['with an attestation further in', `{"id":"c","x":{"attestation":1},"text":"${TEXT}"}`, 'c'],
  ])('is the same as one made at once: %s', async (_name, body, id) => {
    const onThread = await resultOf(() => offload.draft(parts(body), CLIENT));
    expect(onThread).toEqual(await resultOf(() => draft(parts(body))));
    expect(onThread).toMatchObject({ completionId: id });
    const { raw, start, digest } = onThread as { raw: string; start: string; digest: string };
    expect(raw).toBe(`{"request":${REQUEST},"response":${body},"timestamp":1700000000}`);
    expect(digest).toBe(createHash('sha256').update(raw).digest('hex'));
    expect(JSON.parse(`${start}"token":""}`)).toEqual({ raw, token: '' });
  });

  it.each([
    ['not UTF-8', Buffer.concat([Buffer.from(`{"text":"${TEXT}`), Buffer.from([0xff]), Buffer.from('"}')]), 'UTF-8'],
    ['not JSON', `{"text":"${TEXT}"`, 'not JSON'],
    ['JSON and more', `{"text":"${TEXT}"}{}`, 'not JSON'],
    ['an array', `["${TEXT}"]`, 'not a JSON object'],
    ['an object with a member twice further in', `{"x":{"id":1,"id":2},"text":"${TEXT}"}`, 'a member twice'],
    ['an object with a member twice', `{"id":"first","text":"${TEXT}","id":"last"}`, 'a member twice'],
    ['null with much space', `null${' '.repeat(300_000)}`, 'not a JSON object'],
    ['attested', `{"text":"${TEXT}","attestation":null}`, 'attestation of its own'],
    ['attested in other letters', `{"\\u0061ttestation":1,"text":"${TEXT}"}`, 'attestation of its own'],
    ['an error', `{"text":"${TEXT}","error":{}}`, 'as if it were an answer'],
    ['an error after none', `{"text":"${TEXT}","error":null,"error":false}`, 'as if it were an answer'],
    ['too large', `{"text":"${'a'.repeat(MAX_RAW_LENGTH - 80)}"}`, `more than ${MAX_RAW_LENGTH} characters`],
  ])('is refused for the same reason as one made at once: %s', async (_name, body, reason) => {
    const onThread = await resultOf(() => offload.draft(parts(body), CLIENT));
    expect(onThread).toEqual(await resultOf(() => draft(parts(body))));
    expect(onThread).toMatchObject({ name: 'Problem', code: 'backend_bad_response' });
    expect((onThread as { message: string }).message).toContain(reason);
  });

  it('of a folded stream is the same too, and a small one is made at once', async () => {
    const digest = { events: 3, sha256: 'ab'.repeat(32) };
    for (const text of ['small', TEXT]) {
      const folded = { completion: JSON.stringify({ text }), stream: digest, completionId: 'c-3' };
      const given: DraftInput = {
        endpoint: '/v1/responses',
        request: REQUEST,
        response: folded,
        timestamp: 1_700_000_000,
      };
      const made = offload.draft(given, CLIENT);
      expect(made instanceof Promise).toBe(text === TEXT);
      expect(await resultOf(() => made)).toEqual(await resultOf(() => draft(given)));
    }
  });

  it('leaves the body as it was, and takes next to nothing of the thread that chats', async () => {
    const item = { token: ' the', logprob: -0.123456, bytes: [32, 116, 104, 101], top_logprobs: [] };
    const given = parts(JSON.stringify({ id: 'c', logprobs: Array(60_000).fill(item) }));
    await offload.draft(given, CLIENT);
    const { body } = given.response as { body: Buffer };
    const before = createHash('sha256').update(body).digest('hex');
    const [all, own] = [process.cpuUsage(), process.threadCpuUsage()];
    for (let i = 0; i < 5; i++) await offload.draft(given, CLIENT);
    expect(sum(process.threadCpuUsage(own)) / sum(process.cpuUsage(all))).toBeLessThan(0.4);
    expect(createHash('sha256').update(body).digest('hex')).toBe(before);
  });

  it('fails as an attestation that is not to be had when the thread ends, and the next one is made', async () => {
    const given = parts(`{"id":"c","text":"${TEXT}"}`);
    const lost = resultOf(() => offload.draft(given, CLIENT));
    await offload.close();
    expect(await lost).toMatchObject({ name: 'Problem', code: 'attestation_unavailable' });
    expect(await resultOf(() => offload.draft(given, CLIENT))).toMatchObject({ completionId: 'c' });
  });
});

const sum = ({ user, system }: { user: number; system: number }) => user + system;

describe('a large exchange with tee', () => {
  let service: Service;
  beforeAll(async () => {
    service = await startService();
  });
  afterAll(() => service.close());

  it.each([
    ['plain', `{"id":"l-1","object":"chat.completion","text":"${TEXT}"}`, false],
    ['asked for in chunks, with space before its end', `{"id":"l-2","text":"${TEXT}" \n }`, true],
  ])("carries the attestation as its last member, every other byte the backend's: %s", async (_name, body, chunked) => {
    service.backend.script = answer(body);
    // A chunked request goes by Node's own server, the other by the plain path.
    const got = await ask(`${service.gateway.url}/v1/chat/completions`, { body: REQUEST, chunked });
    expect([got.status, Number(got.headers['content-length'])]).toEqual([200, got.body.length]);
    const members = topLevelMembers(got.text);
    expect(members.at(-1)?.key).toBe('attestation');
    expect(withoutMember(got.text, members, members.length - 1)).toBe(body);
    const { attestation, id } = got.json();
    expect(attestation.raw).toContain(`"response":${body},"timestamp":`);
    expect(attestation.nonce).toBe(createHash('sha256').update(attestation.raw).digest('hex'));
    const again = await ask(`${service.gateway.url}/v1/chat/completions/${id}/attestation`, { method: 'GET' });
    expect(again.json()).toEqual(attestation);
    const verdict = await ask(`${service.gateway.url}/~sev_gpu@1.0/verify`, { body: got.text });
    expect([verdict.status, verdict.text]).toEqual([200, 'true']);
  });

  it('is refused like a small one, and the next is answered', async () => {
    service.backend.script = answer(`{"text":"${TEXT}","attestation":{}}`);
    expectError(await chat(service.gateway.url, REQUEST), 502, 'backend_bad_response');
    service.backend.script = answer(`{"id":"l-3","text":"${TEXT}"}`);
    expect((await chat(service.gateway.url, REQUEST)).status).toBe(200);
  });

  it('may be large on the side of the request', async () => {
    const request = `{"messages":[{"role":"user","content":"${TEXT}"}], "tee" : true ,"seed":1.0}`;
    service.backend.script = answer('{"id":"l-4"}');
    service.backend.seen.length = 0;
    const got = await chat(service.gateway.url, request);
    expect(service.backend.seen[0]?.body).toBe(request.replace(' "tee" : true ,', ' '));
    expect(splitRaw(got.json().attestation.raw).request).toBe(request);
  });

  it('may be a stream', async () => {
    const words = Array.from({ length: 16 }, (_, i) => `${i} ${'Wien – 東京 😀 '.repeat(2_000)}`);
    service.backend.script = stream([role(), ...words.map((word) => delta(word)), finish(), DONE]);
    const got = await chat(service.gateway.url, REQUEST.replace('}]', '}],"stream":true'));
    const { attestation } = JSON.parse(got.payloads().at(-2) as string);
    const { response } = splitRaw(attestation.raw);
    expect(response.length).toBeGreaterThan(256 * 1024);
    expect(JSON.parse(response).choices[0].message.content).toBe(words.join(''));
    expect(attestation.nonce).toBe(createHash('sha256').update(attestation.raw).digest('hex'));
  });
});
