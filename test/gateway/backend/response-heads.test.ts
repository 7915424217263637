import { describe, expect, it } from 'vitest';
import { answer, startBackend } from '../../support/backend.ts';
import { startGateway } from '../../support/harness.ts';

describe('one backend, answer after answer', () => {
  it('is passed on with what each of them said', async () => {
    const backend = await startBackend();
    const gateway = await startGateway({ BACKEND_URL: backend.url, SIDECAR_SOCKET: '/none' });
    try {
      for (const [mark, body] of [
        ['a', '{"a":"one"}'],
        ['a', '{"a":"a longer one"}'],
        ['b', '{}'],
        ['a', '[]'],
      ] as const) {
        backend.script = answer(body, 200, { 'x-mark': mark });
        const request = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'hi' }] });
        const got = await fetch(`${gateway.url}/v1/chat/completions`, { method: 'POST', body: request });
        expect(got.headers.get('x-mark')).toBe(mark);
        expect(got.headers.get('content-length')).toBe(String(body.length));
        expect(await got.text()).toBe(body);
      }
    } finally {
      await gateway.close();
      await backend.close();
    }
  });
});
