import { type AddressInfo, connect } from 'node:net';
import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { createDrain, createHttpServer } from '../../../gateway/http/server.ts';
import { eventually } from '../../support/harness.ts';

const OPTIONS = { headers_timeout_ms: 5_000, request_timeout_ms: 5_000, max_connections: 10, tls: null };
const REQUEST = 'GET / HTTP/1.1\r\nhost: h\r\n\r\n';

describe('what runs, as the drain counts it', () => {
  it('forgets requests that nobody answers, because they came behind another, when their connection ended', async () => {
    const server = createHttpServer(() => new Promise<Response>(() => {}), OPTIONS, pino({ level: 'silent' }));
    const drain = createDrain(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1', () => socket.write(REQUEST.repeat(20)));
    await eventually(() => drain.running === 20);
    socket.destroy();
    await eventually(() => drain.running === 0);
    expect(await drain.begin(1_000)).toBe(true);
  });
});
