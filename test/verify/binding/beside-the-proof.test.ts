// What a client could read beside what was signed.
import { describe, expect, it } from 'vitest';
import { verifyingFetch } from '../../../verify/clients/fetch.ts';
import { verifyAttestation } from '../../../verify/index.ts';
import { event, role, stream } from '../../support/backend.ts';
import { useService } from '../../support/service.ts';
import { readProven } from '../attacks/refusal.ts';
import { AT, attest, EXCHANGE, RESPONSE, simulatedRoot } from '../maker.ts';

const ENDPOINT = 'http://127.0.0.1/v1/chat/completions';
const SENT = '{"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":true,"tee":true}';
const WHOLE = SENT.replace('"stream":true,', '');

const answering = (body: string | ReadableStream<Uint8Array>): typeof fetch =>
  (async () => new Response(body as never, { headers: { 'content-type': 'application/json' } })) as typeof fetch;
const post = (send: typeof fetch, body = SENT) =>
  send(ENDPOINT, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
const outcome = (given: Promise<unknown>) =>
  given.then(
    () => 'proven',
    (error: { code?: string }) => error.code ?? String(error),
  );
const carried = async (request: string, timestamp: number) =>
  RESPONSE.replace(
    /\}$/,
    `,"attestation":${JSON.stringify(await attest({ request, response: RESPONSE, timestamp }))}}`,
  );

describe('an answer that nobody signed', () => {
  it('is not proven by the members of an attestation in its own top level', async () => {
    const evil = { ...JSON.parse(RESPONSE.replace('Hello.', 'Goodbye.')), ...(await attest(EXCHANGE)) };
    for (const input of [JSON.stringify(evil), evil])
      expect(await outcome(verifyAttestation(input, { simulatedRoot, at: AT }))).not.toBe('proven');
  });
});

describe('a verifying fetch', () => {
  const refused = async (given: Promise<Response>) => (await readProven(given)).refused;

  it('reads no more of a whole answer than it would keep of a stream, and ends with a code', async () => {
    const piece = new Uint8Array(1 << 20).fill(0x20);
    let sent_mib = 0;
    const endless = new ReadableStream<Uint8Array>({
      pull(controller) {
        if (++sent_mib > 128) controller.close();
        else controller.enqueue(piece);
      },
    });
    const send = verifyingFetch({ simulatedRoot, max_stream_bytes: 8 << 20, fetch: answering(endless) });
    expect(await refused(post(send, WHOLE))).toBe('response_too_large');
    expect(sent_mib).toBeLessThan(16);
  });

  it('keeps its five minutes where a policy names no age', async () => {
    const seconds = Math.floor(AT.getTime() / 1000) - 9999;
    const body = await carried(WHOLE, seconds);
    for (const policy of [{}, { maxAgeSeconds: undefined }])
      expect(
        await refused(post(verifyingFetch({ simulatedRoot, at: AT, policy, fetch: answering(body) }), WHOLE)),
      ).toBe('too_old');
  });

  it('hands over no whole answer to a request for a stream, of which a client reads nothing and learns nothing', async () => {
    const body = await carried(SENT, Math.floor(AT.getTime() / 1000));
    expect(await refused(post(verifyingFetch({ simulatedRoot, at: AT, fetch: answering(body) })))).toBe(
      'response_not_provable',
    );
  });
});

describe('a gateway', () => {
  const service = useService();

  it('passes on no chunk whose finish_reason is given twice, stop first: who reads the first reads stop unproven', async () => {
    const twice = event(
      '{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop","finish_reason":null}]}',
    );
    service.backend.script = stream([role(), twice]);
    const got = await fetch(`${service.gateway.url}/v1/chat/completions`, { method: 'POST', body: SENT });
    expect(await got.text()).not.toContain('"finish_reason":"stop"');
  });
});
