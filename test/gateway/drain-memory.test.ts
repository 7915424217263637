import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { describe, expect, it } from 'vitest';
import { createDrain } from '../../gateway/drain.ts';
import { eventually } from '../harness.ts';

describe('what runs, as the drain counts it', () => {
  it('forgets requests that waited behind another when their connection ended', async () => {
    const server = createServer(() => {});
    const drain = createDrain(server, { running: 0, stop: () => {}, destroy: () => {} });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1', () =>
      socket.write('GET / HTTP/1.1\r\nhost: h\r\n\r\n'.repeat(20)),
    );
    await eventually(() => drain.running === 20);
    socket.destroy();
    await eventually(() => drain.running === 0);
    expect(await drain.begin(1_000)).toBe(true);
  });
});
