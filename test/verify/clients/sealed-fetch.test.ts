// The sealed fetch before an origin that a test bends: what is sealed to whom, and under which session.
import { describe, expect, it } from 'vitest';
import { MEANING, sealedFetch } from '../../../verify/clients/sealed.ts';
import type { CpuReference } from '../../../verify/index.ts';
import { KEM } from '../../sealed/suites.ts';
import { LAUNCH_SHA256 } from '../../support/launch-file.ts';
import { makeOrigin, now_ms } from '../../support/sealed-origin.ts';
import {
  answering,
  asked,
  type Between,
  CHAT,
  client,
  OWN_ROOTS,
  ohttp,
  own,
  refusal,
  SIMULATED,
} from './sealed-client.ts';

describe('a sealed fetch', () => {
  it('verifies the session first, and then seals method, path, headers and body', async () => {
    const origin = await makeOrigin();
    const { fetch, sessions } = client(origin);
    const response = await fetch(`${origin.url}/v1/chat/completions?a=b`, CHAT);
    expect([response.status, response.headers.get('content-type')]).toEqual([200, 'application/json']);
    expect(await response.json()).toEqual({ ok: true });
    expect(origin.opened).toHaveLength(1);
    expect(origin.opened[0]).toMatchObject({
      method: 'POST',
      scheme: 'https',
      authority: 'gateway.example',
      path: '/v1/chat/completions?a=b',
      body: CHAT.body,
    });
    expect(Object.fromEntries(origin.opened[0]?.fields ?? [])).toEqual({
      authorization: 'Bearer inner-key',
      'content-type': 'text/plain;charset=UTF-8',
      date: new Date(now_ms()).toUTCString(),
    });
    expect(origin.sent.map(({ url }) => url)).toEqual([
      expect.stringMatching(/^https:\/\/gateway\.example\/v1\/attestation\/session\?challenge=[0-9a-f]{64}$/),
      'https://gateway.example/ohttp',
    ]);
    expect(sessions).toHaveLength(1);
    expect(sessions[0]).toMatchObject({ level: 'none', statement: origin.session().statement });
  });

  it('shows whatever is in between nothing of what it seals', async () => {
    const origin = await makeOrigin();
    const { chat } = client(origin, { ...SIMULATED, edgeHeaders: { authorization: 'Bearer edge-key' } });
    await (await chat()).text();
    for (const { url, headers, body } of origin.sent) {
      const seen = url + JSON.stringify([...headers]) + Buffer.from(body).toString('latin1');
      for (const canary of ['inner-key', 'canary', 'secret', 'chat']) expect(seen).not.toContain(canary);
      expect(headers.get('authorization')).toBe('Bearer edge-key');
    }
    expect(Object.fromEntries(ohttp(origin)[0]?.headers ?? [])).toEqual({
      authorization: 'Bearer edge-key',
      'content-type': 'message/ohttp-chunked-req',
      incremental: '?1',
    });
  });

  it('seals to the hybrid key where the runtime has it, and to no key twice the same', async () => {
    const origin = await makeOrigin();
    const { chat } = client(origin);
    await Promise.all([chat(), chat(), chat()]);
    expect(asked(origin)).toHaveLength(1);
    const bodies = ohttp(origin).map(({ body }) => Buffer.from(body));
    for (const body of bodies) expect(body.readUInt16BE(1)).toBe(KEM.mlkem768_x25519);
    expect(new Set(bodies.map((body) => body.subarray(7, 107).toString('hex'))).size).toBe(3);
  });

  it('verifies anew before the session ends, and no earlier', async () => {
    const origin = await makeOrigin();
    let now = now_ms();
    const { chat } = client(origin, { ...SIMULATED, now_ms: () => now });
    await chat();
    now += 2_900_000; // its last minute begins at 2,940 s
    expect((await chat()).status).toBe(200);
    expect(asked(origin)).toHaveLength(1);
    now += 60_000;
    expect((await chat()).status).toBe(200);
    expect(asked(origin)).toHaveLength(2);
  });

  it('gives back what fetch would: status, headers, no body where none may be', async () => {
    const origin = await makeOrigin();
    const { fetch } = client(origin);
    origin.answer = {
      status: 418,
      fields: [
        ['x-a', 'b'],
        ['x-a', 'c'],
      ],
      chunks: ['tea', 'pot'],
    };
    const teapot = await fetch(new Request(`${origin.url}/v1/models`));
    expect([teapot.status, teapot.headers.get('x-a'), await teapot.text()]).toEqual([418, 'b, c', 'teapot']);
    expect(origin.opened.at(-1)).toMatchObject({ method: 'GET', path: '/v1/models', body: '' });
    origin.answer = { status: 204 };
    const empty = await fetch(`${origin.url}/v1/files/f`, { method: 'DELETE' });
    expect([empty.status, empty.body]).toEqual([204, null]);
    origin.answer = { fields: [['content-length', '11']] };
    const head = await fetch(`${origin.url}/v1/models`, { method: 'HEAD' });
    expect([head.status, await head.text(), head.headers.get('content-length')]).toEqual([200, '', '11']);
  });

  it('takes a base URL with a path, with or without /v1', async () => {
    const origin = await makeOrigin();
    for (const url of ['https://edge.example/team/v1', 'https://edge.example/team/', 'https://edge.example/team']) {
      const paths: string[] = [];
      const fetch = sealedFetch({
        ...SIMULATED,
        url,
        fetch: (input, init) => {
          paths.push(new URL(String(input)).pathname);
          return origin.fetch(String(input).replace('https://edge.example/team', origin.url), init);
        },
      });
      expect((await fetch('https://edge.example/team/v1/models')).status).toBe(200);
      expect(paths).toEqual(['/team/v1/attestation/session', '/team/ohttp']);
      expect(origin.opened.at(-1)).toMatchObject({ path: '/v1/models', authority: 'edge.example' });
    }
    for (const url of ['', 'gateway', 'ftp://a', 'https://a/?b=c', 'https://a/#b'])
      expect(() => sealedFetch({ url })).toThrow(TypeError);
  });

  it('sends nothing to another address', async () => {
    const origin = await makeOrigin();
    const { fetch, refused } = client(origin);
    for (const url of [
      'https://other.example/v1/models',
      'http://gateway.example/v1/models',
      'https://gateway.example.evil/v1',
    ])
      expect(await refusal(await fetch(url))).toEqual(own('other_gateway'));
    expect(origin.sent).toEqual([]);
    expect(refused).toHaveLength(3);
  });

  it('pads to sizes that say less, where it is told to', async () => {
    const origin = await makeOrigin();
    const { chat } = client(origin, { ...SIMULATED, padding: true });
    for (const [length, size] of [
      [1, 1_024],
      [900, 4_096],
      [5_000, 16_384],
      [20_000, 65_536],
      [70_000, 131_072],
    ] as const) {
      expect((await chat({ ...CHAT, body: 'x'.repeat(length) })).status).toBe(200);
      expect(origin.opened.at(-1)?.length).toBe(size);
      expect(origin.opened.at(-1)?.body).toHaveLength(length);
    }
  });
});

describe('the level', () => {
  const reference: CpuReference = {
    version: 1,
    cpu: [{ type: 'SEV_SNP', measurement: ['a1'.repeat(48)], launch_in: 'measurement' }],
    launch: [LAUNCH_SHA256],
  };
  const KNOWN = { ...OWN_ROOTS, cpu: { ...OWN_ROOTS.cpu, reference } };

  it('must be measured unless the caller says less: nothing is sent, and the words say why', async () => {
    for (const [options, level] of [
      [{ ...SIMULATED, policy: {} }, 'none'],
      [OWN_ROOTS, 'gpu+cpu'],
    ] as const) {
      const origin = await makeOrigin();
      const { chat, refused } = client(origin, options);
      expect(await refusal(await chat())).toEqual(own('level_too_low'));
      expect(ohttp(origin)).toEqual([]);
      expect(refused[0]?.message).toContain(`of level ${level}, and policy.minLevel is measured`);
      expect(refused[0]?.message).toContain(MEANING[level]);
    }
    expect(MEANING['gpu+cpu']).toContain('not from anybody who runs that machine');
  });

  it('is measured where the software is one that the caller knows', async () => {
    const origin = await makeOrigin({ statement: { launch: LAUNCH_SHA256 } });
    const { chat, sessions } = client(origin, KNOWN);
    expect((await chat()).status).toBe(200);
    expect(sessions.map(({ level }) => level)).toEqual(['measured']);
    const other = await makeOrigin({ statement: { launch: 'ee'.repeat(32) } });
    const { chat: refuses } = client(other, KNOWN);
    expect(await refusal(await refuses())).toEqual(own('software_mismatch'));
    expect(ohttp(other)).toEqual([]);
  });

  it('may be less where the caller says so', async () => {
    const origin = await makeOrigin();
    expect((await client(origin, { ...OWN_ROOTS, policy: { minLevel: 'gpu+cpu' } }).chat()).status).toBe(200);
  });

  it('does not matter where the session does not verify', async () => {
    const origin = await makeOrigin();
    const { chat, refused } = client(origin, { policy: { minLevel: 'none' }, now_ms });
    expect(await refusal(await chat())).toEqual(own('simulated_root_refused'));
    expect(refused[0]?.cause).toMatchObject({ name: 'VerificationError' });
    expect(refused[0]?.message).toContain('the GPU is simulated: pass its root (simulatedRoot)');
    expect(ohttp(origin)).toEqual([]);
  });

  it('may stand beside checks that the session must pass', async () => {
    const origin = await makeOrigin();
    const policy = { minLevel: 'none', requiredChecks: ['cpu_measurement'] } as const;
    expect(await refusal(await client(origin, { ...SIMULATED, policy }).chat())).toEqual(own('policy_refused'));
  });
});

describe('the session', () => {
  const sessionIs =
    (change: (text: string) => Response | string): Between =>
    async (response, { url }) => {
      if (url.endsWith('/ohttp')) return response;
      const changed = change(await response.text());
      return typeof changed === 'string' ? new Response(changed) : changed;
    };

  it('holds a fresh challenge: an older one, or one without, is refused', async () => {
    const origin = await makeOrigin();
    let first = '';
    const replayed = sessionIs((text) => {
      first ||= text;
      return first;
    });
    expect((await client(origin, SIMULATED, replayed).chat()).status).toBe(200);
    expect(await refusal(await client(origin, SIMULATED, replayed).chat())).toEqual(own('cpu_binding_mismatch'));
    const unchallenged = await makeOrigin({ statement: { challenge: null } });
    expect(await refusal(await client(unchallenged).chat())).toEqual(own('cpu_binding_mismatch'));
    const { chat } = client(unchallenged, { ...SIMULATED, challenge: false });
    expect((await chat()).status).toBe(200);
    expect(asked(unchallenged).at(-1)?.url).toBe('https://gateway.example/v1/attestation/session');
  });

  it("with another's key in it does not verify, and nothing is sealed to that key", async () => {
    const origin = await makeOrigin();
    const other = await makeOrigin();
    await other.fetch(`${other.url}/v1/attestation/session`);
    const { hpke } = JSON.parse(other.session().statement) as { hpke: string };
    const swapped = sessionIs((text) => {
      const session = JSON.parse(text) as { statement: string };
      const statement = JSON.stringify({ ...JSON.parse(session.statement), hpke });
      return JSON.stringify({ ...session, statement });
    });
    const { chat, refused } = client(origin, SIMULATED, swapped);
    expect(await refusal(await chat())).toMatchObject({ status: 400, code: 'report_nonce_mismatch' });
    expect(refused).toHaveLength(1);
    expect(ohttp(origin)).toEqual([]);
  });

  it.each([
    ['names no key', { hpke: null }, 'session_without_key'],
    [
      'names a key of algorithms that nobody has',
      { hpke: Buffer.from('000705777701020304', 'hex').toString('base64') },
      'sealed_unsupported',
    ],
    ['names what is no key', { hpke: 'AAAA' }, 'session_without_key'],
  ])('that %s is refused', async (_what, statement, code) => {
    const origin = await makeOrigin({ statement });
    expect(await refusal(await client(origin).chat())).toEqual(own(code));
    expect(ohttp(origin)).toEqual([]);
  });

  it.each([
    ['is over', 404, null, own('session_missing')],
    ['asks for a key', 401, null, { status: 401, retry: null, type: 'edge_refused', code: 'session_unavailable' }],
    ['is too busy', 429, '7', { status: 429, retry: null, type: 'edge_refused', code: 'session_unavailable' }],
    ['redirects', 302, null, { status: 400, retry: 'false', type: 'edge_refused', code: 'session_unavailable' }],
    ['does not exist', 422, null, { status: 400, retry: 'false', type: 'edge_refused', code: 'session_unavailable' }],
  ])('of a gateway that %s is refused, with what a client needs to go on', async (_what, status, after, expected) => {
    const origin = await makeOrigin();
    const headers: Record<string, string> = after === null ? {} : { 'retry-after': after };
    const { chat } = client(
      origin,
      SIMULATED,
      sessionIs(() => new Response('secret words of the edge', { status, headers })),
    );
    const response = await chat();
    expect(response.headers.get('retry-after')).toBe(status === 429 ? after : null);
    expect(await response.clone().text()).not.toContain('secret words');
    expect(await refusal(response)).toEqual(expected);
    expect(ohttp(origin)).toEqual([]);
  });

  it.each([401, 403, 503])('is never taken without a challenge because of an error, such as %i', async (status) => {
    const origin = await makeOrigin({ statement: { challenge: null } });
    const between: Between = async (response, { url }) =>
      url.includes('challenge=') ? new Response('', { status, headers: { 'retry-after': '0' } }) : response;
    const demanding = client(origin, SIMULATED, between);
    expect(await refusal(await demanding.chat())).toMatchObject({ status, code: 'session_unavailable' });
    expect(ohttp(origin)).toEqual([]);
    expect(asked(origin).every(({ url }) => url.includes('challenge='))).toBe(true);
    const { chat } = client(origin, { ...SIMULATED, challenge: false }, between);
    expect((await chat()).status).toBe(200);
  });

  it('is asked for again while the gateway makes one for somebody else', async () => {
    const origin = await makeOrigin();
    let busy = 2;
    const { chat } = client(
      origin,
      SIMULATED,
      sessionIs((text) => (busy-- > 0 ? new Response('', { status: 503, headers: { 'retry-after': '0' } }) : text)),
    );
    expect((await chat()).status).toBe(200);
    expect(asked(origin)).toHaveLength(3);
    busy = Number.POSITIVE_INFINITY;
    await origin.renew();
    const refused = { status: 503, retry: null, type: 'edge_refused', code: 'session_unavailable' };
    expect(await refusal(await chat())).toEqual(refused);
    expect(asked(origin)).toHaveLength(3 + 5);
  });

  it('that is no session, or endless, is refused', async () => {
    const origin = await makeOrigin();
    expect(
      await refusal(
        await client(
          origin,
          SIMULATED,
          sessionIs(() => 'nothing'),
        ).chat(),
      ),
    ).toEqual(own('cpu_malformed'));
    const endless = sessionIs(() => new Response('x'.repeat(5 * 1024 * 1024)));
    expect(await refusal(await client(origin, SIMULATED, endless).chat())).toEqual(own('session_unavailable'));
  });

  it('is not kept where it was refused', async () => {
    const origin = await makeOrigin();
    let wrong = true;
    const { chat } = client(
      origin,
      SIMULATED,
      sessionIs((text) => (wrong ? '{}' : text)),
    );
    expect((await chat()).status).toBe(400);
    wrong = false;
    expect((await chat()).status).toBe(200);
  });
});

describe('a key that the gateway no longer has', () => {
  it('has a new session verified once for all requests, and the request sealed again', async () => {
    const origin = await makeOrigin();
    const { chat, sessions } = client(origin);
    await chat();
    await origin.renew();
    const statuses = (await Promise.all([chat(), chat(), chat()])).map(({ status }) => status);
    expect(statuses).toEqual([200, 200, 200]);
    expect(sessions).toHaveLength(2);
    expect(origin.opened).toHaveLength(4);
  });

  it('is asked for once more alone, and the request never goes out in the clear', async () => {
    const origin = await makeOrigin();
    const unknown = answering(async () => Response.json({ error: { code: 'sealed_key_unknown' } }, { status: 422 }));
    const { chat } = client(origin, SIMULATED, unknown);
    const given = await chat();
    expect(given.headers.get('retry-after')).toBe('2');
    expect(await refusal(given)).toEqual({
      status: 503,
      retry: null,
      type: 'edge_refused',
      code: 'sealed_key_unknown',
    });
    expect([asked(origin).length, ohttp(origin).length, origin.sent.length]).toEqual([2, 2, 4]);
  });

  it('is refused where the new session is of a lower level', async () => {
    const origin = await makeOrigin({ statement: { launch: LAUNCH_SHA256 } });
    const reference = {
      version: 1,
      cpu: [{ type: 'SEV_SNP', measurement: ['a1'.repeat(48)], launch_in: 'measurement' }],
      launch: [LAUNCH_SHA256],
    } as const;
    const { chat } = client(origin, { ...OWN_ROOTS, cpu: { ...OWN_ROOTS.cpu, reference } });
    expect((await chat()).status).toBe(200);
    await origin.renew({ statement: { launch: 'ee'.repeat(32) } });
    expect(await refusal(await chat())).toEqual(own('software_mismatch'));
    expect(origin.opened).toHaveLength(1);
  });
});

describe('a caller that leaves', () => {
  it('ends the request, and not the session that others wait for', async () => {
    const origin = await makeOrigin();
    const gate = Promise.withResolvers<void>();
    const between: Between = async (response, { url }) => {
      if (!url.endsWith('/ohttp')) await gate.promise;
      return response;
    };
    const { chat } = client(origin, SIMULATED, between);
    const leaving = new AbortController();
    const left = chat({ ...CHAT, signal: leaving.signal });
    const stays = chat();
    leaving.abort();
    await expect(left).rejects.toMatchObject({ name: 'AbortError' });
    gate.resolve();
    expect((await stays).status).toBe(200);
    expect(asked(origin)).toHaveLength(1);
    await expect(chat({ ...CHAT, signal: leaving.signal })).rejects.toMatchObject({ name: 'AbortError' });
  });

  it('ends what carries its answer, by its signal or by cancelling the body', async () => {
    const origin = await makeOrigin();
    const signals: AbortSignal[] = [];
    const fetch = sealedFetch({
      ...SIMULATED,
      url: origin.url,
      fetch: (input, init) => {
        if (String(input).endsWith('/ohttp') && init?.signal) signals.push(init.signal);
        return origin.fetch(input, init);
      },
    });
    const leaving = new AbortController();
    const first = await fetch(`${origin.url}/v1/models`, { signal: leaving.signal });
    leaving.abort();
    expect(signals[0]?.aborted).toBe(true);
    await first.body?.cancel();
    const second = await fetch(`${origin.url}/v1/models`);
    expect(signals[1]?.aborted).toBe(false);
    await second.body?.cancel();
    expect(signals[1]?.aborted).toBe(true);
  });
});
