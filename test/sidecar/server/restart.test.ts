import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ask, chat } from '../../support/client.ts';
import { startGateway } from '../../support/harness.ts';
import { type Restartable, startRestartable } from '../../support/sidecar-process.ts';

let service: Restartable;

beforeEach(async () => {
  service = await startRestartable();
});
afterEach(() => service.close());

describe('no sidecar at all', () => {
  it('refuses tee with 503 and retry-after before the backend is asked, and serves the rest', async () => {
    const alone = await startGateway({
      BACKEND_URL: service.backend.url,
      SIDECAR_SOCKET: join(service.folder.path, 'nobody.sock'),
      limits: { sidecar_wait_ms: 100 },
    });
    const refused = await chat(alone.url, { messages: [{ role: 'user' }], tee: true });
    expect([refused.status, refused.json().error.code]).toEqual([503, 'attestation_unavailable']);
    expect(refused.headers['retry-after']).toMatch(/^\d+$/);
    expect(service.backend.seen).toHaveLength(0);
    expect((await chat(alone.url, { messages: [{ role: 'user' }] })).status).toBe(200);
    const state = await ask(`${alone.url}/health`, { method: 'GET' });
    expect([state.status, state.json().status]).toEqual([200, 'degraded']);
    await alone.close();
  });

  it('waits for one that is on its way', async () => {
    const waiting = chat(service.gateway.url, { messages: [{ role: 'user' }], tee: true });
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(service.backend.seen).toHaveLength(0);
    service.startSidecar();
    const got = await waiting;
    expect([got.status, typeof got.json().attestation.nonce]).toEqual([200, 'string']);
  });

  it('costs the backend nothing when the client leaves before one comes', async () => {
    const waiting = ask(`${service.gateway.url}/v1/chat/completions`, {
      body: '{"messages":[{"role":"user"}],"tee":true}',
      signal: AbortSignal.timeout(200),
    });
    await expect(waiting).rejects.toMatchObject({ name: 'AbortError' });
    service.startSidecar();
    await service.healthy();
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(service.backend.seen).toHaveLength(0);
  });

  it('is what a simulated one is to a gateway that does not allow it', async () => {
    service.startSidecar();
    await service.healthy();
    const strict = await startGateway({
      BACKEND_URL: service.backend.url,
      SIDECAR_SOCKET: service.socket,
      limits: { sidecar_wait_ms: 300 },
      ALLOW_SIMULATED: '0',
    });
    const refused = await chat(strict.url, { messages: [{ role: 'user' }], tee: true });
    expect([refused.status, refused.json().error.code]).toEqual([503, 'attestation_unavailable']);
    expect((await ask(`${strict.url}/health`, { method: 'GET' })).json().sidecar.status).toBe('refused');
    await strict.close();
  });
});
