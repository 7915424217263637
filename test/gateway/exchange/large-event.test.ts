// A single event may be as large as the answer: an image comes whole in one.
import { describe, expect, it } from 'vitest';
import { splitRaw } from '../../../proto/attestation/raw.ts';
import { answer, chatStream, DONE, event, finish, role, stream } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { messageEvents, namedStream, responseEvents } from '../../support/named-streams.ts';
import { useService } from '../../support/service.ts';

const MIB = 1024 * 1024;
const service = useService();
const image = (bytes: number) =>
  event({
    id: 'chatcmpl-1',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'scripted',
    choices: [{ index: 0, delta: { images: [{ index: 0, image_url: { url: 'A'.repeat(bytes) } }] } }],
  });

const REQUESTS = {
  'chat/completions': { ...CHAT, stream: true, tee: true },
  responses: { input: 'Hi', stream: true, tee: true },
  messages: { max_tokens: 9, messages: [], stream: true, tee: true },
};
const ofText = {
  'chat/completions': (text: string) => chatStream([text]),
  responses: (text: string) => namedStream(responseEvents([text])),
  messages: (text: string) => namedStream(messageEvents([text])),
};

describe('an event', () => {
  it('of 15 MiB is attested, and a GPU signs all of it', async () => {
    service.backend.script = stream([role(), image(15 * MIB), finish(), DONE]);
    const got = await chat(service.url, REQUESTS['chat/completions']);
    const chunk = got.payloads().find((payload) => payload.includes('"attestation"')) ?? '{}';
    const { response } = splitRaw(JSON.parse(chunk).attestation.raw);
    expect(JSON.parse(response).choices[0].message.images[0].image_url.url).toHaveLength(15 * MIB);
    expect(got.text.endsWith(DONE)).toBe(true);
  });

  it.each(['chat/completions', 'responses', 'messages'] as const)(
    'over the limit ends a stream of /v1/%s with an error that names the setting, and the next one is attested',
    async (path) => {
      const body = JSON.stringify(REQUESTS[path]);
      service.backend.script = ofText[path]('A'.repeat(16 * MIB));
      const got = await ask(`${service.url}/v1/${path}`, { body });
      expect(got.text).not.toContain('"attestation":');
      expect(got.text.slice(-600)).toContain(
        'The answer is larger than 16777216 bytes, the most that is attested (MAX_ANSWER_BYTES).',
      );
      service.backend.script = ofText[path]('fine');
      expect((await ask(`${service.url}/v1/${path}`, { body })).text).toContain('"attestation":');
    },
  );
});

it('a whole answer over the limit is an error that names the setting, and the next one is attested', async () => {
  service.backend.script = answer(JSON.stringify({ text: 'A'.repeat(16 * MIB) }));
  const body = JSON.stringify({ input: 'a', tee: true });
  const { error } = (await ask(`${service.url}/v1/embeddings`, { body })).json();
  expect([error.code, error.message]).toEqual(['answer_too_large', expect.stringContaining('MAX_ANSWER_BYTES')]);
  service.backend.script = answer(JSON.stringify({ text: 'A'.repeat(9 * MIB) }));
  expect((await ask(`${service.url}/v1/embeddings`, { body })).json().attestation.nonce).toMatch(/^[0-9a-f]{64}$/);
});
