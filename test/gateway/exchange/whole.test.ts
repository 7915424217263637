import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { splitRaw } from '../../../proto/attestation/raw.ts';
import { topLevelMembers, withoutMember } from '../../../proto/json.ts';
import { answer, chatBody } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { useService } from '../../support/service.ts';

const service = useService();

describe('a whole answer without tee', () => {
  it("is the backend's, byte for byte", async () => {
    const body = '{"id":"x", "n":1.0,"big":12345678901234567890,\n "2":0,"1":0,"a":1,"a":2}\n';
    service.backend.script = answer(body);
    const got = await chat(service.url, CHAT);
    expect(got.text).toBe(body);
    expect(got.headers['x-request-id']).toMatch(/^req-/);
    expect(got.headers['x-attestation-id']).toBeUndefined();
  });

  it("reaches the backend with the client's body, byte for byte, unknown members included", async () => {
    const body =
      '{"model":"m","messages":[{"role":"user","content":"\\u00e9é"}],"top_k":1.0,"x":12345678901234567890,"x":2}';
    await chat(service.url, body);
    expect(service.backend.seen[0]?.body).toBe(body);
    expect(service.backend.seen[0]?.url).toBe('/v1/chat/completions');
  });

  it("keeps the client's key, cookies and encodings from the backend", async () => {
    await chat(service.url, CHAT, {
      authorization: 'Bearer secret',
      cookie: 'a=b',
      'accept-encoding': 'gzip',
      traceparent: '00-abc-def-01',
    });
    const headers = service.backend.seen[0]?.headers;
    expect(headers?.authorization).toBeUndefined();
    expect(headers?.cookie).toBeUndefined();
    expect(headers?.['accept-encoding']).toBe('identity');
    expect(headers?.traceparent).toBe('00-abc-def-01');
  });
});

describe('a whole answer with tee', () => {
  it.each([
    '{"id":"c-1","object":"chat.completion","choices":[],"score":1.0,"big":12345678901234567890}',
    '{ "2":"b","1":"a", "id":"c-2", "choices":[{"x":"}"}] }\n',
    '{"id":"c-3","one":{"same":1},"two":{"same":2},"text":"\\u00e9é\\ud83d\\ude00😀"}',
  ])("carries the attestation as its last member, every other byte the backend's: %s", async (body) => {
    service.backend.script = answer(body);
    const request =
      '{"messages":[{"role":"user","content":"\\u0041é"}], "tee" : true,"seed":1.0,"big":98765432109876543210,"7":0,"k":1,"k":2}';
    const got = await chat(service.url, request);
    expect(got.status).toBe(200);
    const members = topLevelMembers(got.text);
    expect(members.at(-1)?.key).toBe('attestation');
    expect(withoutMember(got.text, members, members.length - 1)).toBe(body);

    const { attestation } = got.json();
    const parts = splitRaw(attestation.raw);
    expect(parts.request).toBe(request);
    expect(parts.response).toBe(body.trim());
    expect(attestation.raw).toContain(`"response":${body},"timestamp":`);
    expect(Math.abs(parts.timestamp - Date.now() / 1000)).toBeLessThan(5);
    expect(attestation.nonce).toBe(createHash('sha256').update(attestation.raw).digest('hex'));
    expect(attestation.token).toContain('JWT');
    expect(attestation.evidence).toHaveLength(1);
  });

  it('takes tee alone out of the body, and leaves every other byte', async () => {
    for (const [given, forwarded] of [
      ['{"tee":true,"model":"m","messages":[{"role":"user"}]}', '{"model":"m","messages":[{"role":"user"}]}'],
      ['{"model":"m", "tee" : true , "messages":[{"role":"user"}]}', '{"model":"m", "messages":[{"role":"user"}]}'],
      ['{"messages":[{"role":"user","tee":1}],"\\u0074ee":true }', '{"messages":[{"role":"user","tee":1}] }'],
    ] as const) {
      service.backend.seen.length = 0;
      const got = await chat(service.url, given);
      expect(got.status).toBe(200);
      expect(service.backend.seen[0]?.body).toBe(forwarded);
      expect(splitRaw(got.json().attestation.raw).request).toBe(given);
    }
  });

  it("can be asked for by header, and found again by our id and by the completion's", async () => {
    service.backend.script = answer(chatBody('kept', 'chatcmpl-kept'));
    const got = await chat(service.url, CHAT, { 'x-tee': '1' });
    const id = got.headers['x-attestation-id'];
    expect(id).toBe(got.headers['x-request-id']);
    expect(service.backend.seen[0]?.headers['x-tee']).toBeUndefined();
    for (const key of [id, 'chatcmpl-kept']) {
      const again = await ask(`${service.url}/v1/chat/completions/${key}/attestation`, { method: 'GET' });
      expect(again.status).toBe(200);
      expect(again.json()).toEqual(got.json().attestation);
    }
    const unknown = await ask(`${service.url}/v1/chat/completions/nobody/attestation`, { method: 'GET' });
    expect([unknown.status, unknown.json().error.code]).toEqual([404, 'not_found']);
  });

  it('works on /v1/completions', async () => {
    const body = '{"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":"b","finish_reason":"stop"}]}';
    service.backend.script = answer(body);
    const got = await ask(`${service.url}/v1/completions`, { body: '{"model":"m","prompt":"a","tee":true}' });
    expect(splitRaw(got.json().attestation.raw).response).toBe(body);
    const verdict = await ask(`${service.url}/~sev_gpu@1.0/verify`, { body: got.text });
    expect([verdict.status, verdict.text]).toEqual([200, 'true']);
  });

  it.each([
    ['an attestation of its own', answer('{"id":"x","attestation":{"raw":"","nonce":"","token":""}}')],
    ['an escaped attestation of its own', answer('{"id":"x","attestati\\u006fn":1}')],
    ['a member twice', answer('{"id":"c-3","choices":[],"text":"a","text":"b"}')],
    ['a member twice further in', answer('{"choices":[{"message":{"content":"a","content":"b"}}]}')],
    ['a member twice, once escaped', answer('{"choices":[],"text":"a","t\\u0065xt":"b"}')],
    ['half a JSON', answer('{"id":"x"')],
    ['no object', answer('[1]')],
    ['bytes that are not UTF-8', answer(Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]))],
    ['an error as an answer', answer('{"error":{"message":"no"}}')],
    ['HTML', answer('<html>', 200, { 'content-type': 'text/html' })],
  ])('is a 502 when the backend sends %s', async (_name, script) => {
    service.backend.script = script;
    const got = await chat(service.url, { ...CHAT, tee: true });
    expect([got.status, got.json().error.code]).toEqual([502, 'backend_bad_response']);
    expect(Object.keys(got.json().error)).toEqual(['message', 'type', 'param', 'code']);
  });
});
