// Some backends name another id in each chunk. The proof is found by each of the first ones and by the last.
import { expect, it } from 'vitest';
import { answer, DONE, delta, finish, role, stream } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually } from '../../support/harness.ts';
import { useService } from '../../support/service.ts';

const service = useService();
const kept = (id: string) => ask(`${service.url}/v1/chat/completions/${id}/attestation`, { method: 'GET' });
const withId = (event: string, id: string) => event.replace(/"id":"[^"]*"/, `"id":"${id}"`);

it('a stream whose chunks have different ids is pending and then found under each of them', async () => {
  let goOn = () => {};
  const held = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  service.backend.script = async (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(withId(role(), 'first') + withId(delta('Hel'), 'second') + withId(delta('lo'), ''));
    await held;
    response.end(withId(finish(), 'last') + DONE);
  };
  const asked = chat(service.url, { ...CHAT, stream: true, tee: true });
  for (const id of ['first', 'second']) await eventually(async () => (await kept(id)).status === 425);
  expect((await kept('last')).status).toBe(404);
  goOn();
  const { payloads, headers } = await asked;
  const chunk = payloads().find((payload) => payload.includes('"attestation"')) ?? '{}';
  const { attestation } = JSON.parse(chunk);
  const signed = JSON.parse(JSON.stringify(JSON.parse(attestation.raw).response)).id;
  for (const id of ['first', 'second', 'last', signed, String(headers['x-attestation-id'])]) {
    const found = await kept(id);
    expect([id, found.status]).toEqual([id, 200]);
    expect(found.json()).toEqual(attestation);
  }
});

it('a stream of many ids is found under the first sixteen and the last, and costs no more', async () => {
  const pieces = Array.from({ length: 40 }, (_, i) => withId(delta('a'), `many-${i}`));
  service.backend.script = stream([...pieces, withId(finish(), 'many-last'), DONE]);
  await chat(service.url, { ...CHAT, stream: true, tee: true });
  const found = await Promise.all(Array.from({ length: 40 }, async (_, i) => (await kept(`many-${i}`)).status));
  expect(found).toEqual(Array.from({ length: 40 }, (_, i) => (i < 16 ? 200 : 404)));
  expect((await kept('many-last')).status).toBe(200);
});

it('a stream that fails is found under none of its ids, and the next one is', async () => {
  service.backend.script = stream([withId(role(), 'lost-1'), withId(delta('a'), 'lost-2'), null]);
  await chat(service.url, { ...CHAT, stream: true, tee: true });
  for (const id of ['lost-1', 'lost-2']) expect((await kept(id)).status).toBe(404);
  service.backend.script = stream([withId(role(), 'lost-1'), withId(finish(), 'lost-1'), DONE]);
  await chat(service.url, { ...CHAT, stream: true, tee: true });
  expect((await kept('lost-1')).status).toBe(200);
});

it('an id that a URL must encode is found on every route', async () => {
  service.backend.script = answer('{"id":"a/b: c%","choices":[]}');
  for (const path of ['chat/completions', 'responses']) {
    const got = await ask(`${service.url}/v1/${path}`, { body: JSON.stringify({ ...CHAT, input: 'Hi', tee: true }) });
    const found = await ask(`${service.url}/v1/${path}/${encodeURIComponent('a/b: c%')}/attestation`, {
      method: 'GET',
    });
    expect([path, found.json()]).toEqual([path, got.json().attestation]);
  }
});
