import { Agent, request as httpRequest } from 'node:http';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { HeadCache, type ReadResult, readRequest } from '../../../gateway/http/plain-path/request.ts';
import { startBackend } from '../../support/backend.ts';
import { startGateway } from '../../support/harness.ts';

describe('a head that a connection says again', () => {
  const lines = ['Host: a', 'Accept: */*', 'X-Stainless-Lang: js', 'Authorization: Bearer b', 'X: 1234567'];
  const request = (headers: readonly string[], length: string, body: string) =>
    Buffer.from(['POST /v1/chat/completions HTTP/1.1', ...headers, `content-length: ${length}`, '', body].join('\r\n'));
  const plainly = (result: ReadResult) => (typeof result === 'object' ? { ...result, made: null } : result);
  const madeOf = (result: ReadResult) => (typeof result === 'object' ? result.made : null);

  it('shares what was made of it, and nothing else', () => {
    const cache = new HeadCache();
    const first = readRequest(request(lines, '2', '{}'), cache);
    const second = readRequest(request(lines, '11', '{"a":"bcd"}'), cache);
    const other = readRequest(request([...lines, 'Y: 1'], '2', '{}'), cache);
    expect(second).toMatchObject({ headers: { authorization: 'Bearer b', 'content-length': '11' } });
    expect(first).toMatchObject({ headers: { 'content-length': '2' } });
    expect(madeOf(second)).toBe(madeOf(first));
    expect(madeOf(other)).not.toBe(madeOf(first));
    expect(madeOf(readRequest(request(lines, '2', '{}')))).not.toBe(madeOf(first));
  });

  it('is remembered until a connection has said too many different ones', () => {
    const cache = new HeadCache();
    const again = (i: number) => madeOf(readRequest(request([...lines, `Y: ${i}`], '2', '{}'), cache));
    for (let i = 0; i < 8; i++) expect(again(i)).toBe(again(i));
    expect(again(8)).not.toBe(again(8));
    expect(cache.head).toBeNull();
  });

  it('is read as if it were the first, whatever changed in it', () => {
    let again = 0;
    const change = fc.oneof(
      fc.record({ kind: fc.constant('length' as const), text: fc.stringMatching(/^(0?[0-9]{1,7}| 2|2 |)$/) }),
      fc.record({ kind: fc.constant('byte' as const), at: fc.nat(400), byte: fc.nat(255) }),
      fc.record({ kind: fc.constant('cut' as const), at: fc.nat(400) }),
      fc.record({ kind: fc.constant('order' as const), lines: fc.shuffledSubarray(lines) }),
    );
    const body = '{"a":1}';
    const changed = (by: typeof change extends fc.Arbitrary<infer Change> ? Change : never): Buffer => {
      if (by.kind === 'length') return request(lines, by.text, ' '.repeat(Math.min(Number(by.text) || 0, 70_000)));
      if (by.kind === 'order') return request(by.lines, '7', body);
      const bytes = request(lines, '7', body);
      if (by.kind === 'cut') return bytes.subarray(0, by.at);
      if (by.at < bytes.length) bytes[by.at] = by.byte;
      return bytes;
    };
    fc.assert(
      fc.property(fc.array(change, { minLength: 1, maxLength: 5 }), (changes) => {
        const cache = new HeadCache();
        let before = readRequest(request(lines, '7', body), cache);
        for (const by of changes) {
          const bytes = changed(by);
          const reading = readRequest(bytes, cache);
          expect(plainly(reading)).toEqual(plainly(readRequest(bytes)));
          if (madeOf(reading) !== null && madeOf(reading) === madeOf(before)) again++;
          before = reading;
        }
      }),
      { numRuns: 1_500 },
    );
    expect(again).toBeGreaterThan(50);
  });
});

describe('one connection, request after request', () => {
  it('reaches the backend with what each of them said', async () => {
    const backend = await startBackend();
    const gateway = await startGateway({ BACKEND_URL: backend.url, BACKEND_API_KEY: 'ours', SIDECAR_SOCKET: '/none' });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    let reused = 0;
    const send = (content: string, headers: Record<string, string>) =>
      new Promise<void>((resolve, reject) => {
        const body = JSON.stringify({ model: 'm', messages: [{ role: 'user', content }] });
        const all = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body), ...headers };
        const options = { agent, method: 'POST', headers: all };
        const outgoing = httpRequest(`${gateway.url}/v1/chat/completions`, options, (response) => {
          if (outgoing.reusedSocket) reused++;
          response.resume().on('end', resolve);
        });
        outgoing.on('error', reject).end(body);
      });
    try {
      const own = [{ 'x-a': '1' }, { 'x-a': '1' }, { 'x-a': '2' }, { 'x-a': '2', authorization: 'Bearer k' }, {}];
      for (const [i, headers] of own.entries()) await send('long'.repeat(i * 40), headers as Record<string, string>);
      expect(reused).toBe(4);
      expect(backend.seen.map(({ headers }) => headers['x-a'])).toEqual(['1', '1', '2', '2', undefined]);
      for (const [i, { headers, body }] of backend.seen.entries()) {
        expect(headers).toMatchObject({ authorization: 'Bearer ours', 'accept-encoding': 'identity' });
        expect(headers['content-length']).toBe(String(Buffer.byteLength(body)));
        expect(JSON.parse(body).messages[0].content).toBe('long'.repeat(i * 40));
      }
    } finally {
      agent.destroy();
      await gateway.close();
      await backend.close();
    }
  });
});
