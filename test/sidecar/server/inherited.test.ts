import { spawnSync } from 'node:child_process';
import { lstatSync } from 'node:fs';
import { createServer, type RequestOptions, request } from 'node:http';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { ConfigError, inheritedSocket, loadConfig } from '../../../sidecar/common/config.ts';
import { listenOnInherited, SocketError } from '../../../sidecar/server/server.ts';
import { eventually, freePort, temporaryFolder } from '../../support/harness.ts';
import { type RunningProcess, startCommand } from '../../support/process.ts';

describe('a socket that a service manager hands over', () => {
  it('is descriptor 3 when there is one and it is meant for this process', () => {
    expect(inheritedSocket({ LISTEN_PID: '17', LISTEN_FDS: '1' }, 17)).toBe(3);
    expect(loadConfig({ LISTEN_PID: '17', LISTEN_FDS: '1' }, 17).inherited_fd).toBe(3);
  });

  it('is left alone when it was meant for another process, such as our parent', () => {
    expect(inheritedSocket({ LISTEN_PID: '16', LISTEN_FDS: '1' }, 17)).toBeNull();
    expect(inheritedSocket({ LISTEN_FDS: '1' }, 17)).toBeNull();
    expect(inheritedSocket({ LISTEN_PID: '17' }, 17)).toBeNull();
    expect(inheritedSocket({}, 17)).toBeNull();
  });

  it('must be one: with two the start ends with a line that names the variable', () => {
    for (const LISTEN_FDS of ['2', '-1', 'one'])
      expect(() => loadConfig({ LISTEN_PID: '17', LISTEN_FDS }, 17)).toThrow(
        new ConfigError(`LISTEN_FDS is ${LISTEN_FDS}: one socket is expected`),
      );
  });

  it('must be there', async () => {
    const error = await listenOnInherited(createServer(), 9_999).catch((one) => one);
    expect([error instanceof SocketError, error.code]).toEqual([true, 'listen_failed']);
  });
});

const ACTIVATE = 'systemd-socket-activate';
const missing = spawnSync(ACTIVATE, ['--version']).error !== undefined;
if (missing) console.warn(`SKIPPED: the sidecar under ${ACTIVATE}, which is not installed (Debian: systemd)`);

describe.skipIf(missing)('started by systemd-socket-activate', () => {
  const node = process.execPath;
  const script = fileURLToPath(new URL('../../../demo/twin/main.ts', import.meta.url));

  function activate(address: string, folder: string): RunningProcess {
    const env = ['SIDECAR_SOCKET=/nowhere/at/all.sock'];
    return startCommand(ACTIVATE, [
      '-l',
      address,
      ...env.flatMap((one) => ['-E', one]),
      node,
      script,
      `--root-dir=${folder}/root`,
    ]);
  }

  it('answers anybody who connected before it ran, and leaves the socket where it is when it stops', async () => {
    const folder = temporaryFolder();
    const socket = join(folder.path, 'sidecar.sock');
    const sidecar = activate(socket, folder.path);
    await eventually(() => sidecar.output().includes('Listening on'));
    expect(await get({ socketPath: socket })).toBe('This socket speaks WebSocket.\n');
    expect(sidecar.output()).toContain('"socket":"inherited"');
    expect((await sidecar.kill('SIGTERM')).code).toBe(0);
    expect(lstatSync(socket).isSocket()).toBe(true);
    folder.remove();
  });

  it('refuses a network socket: anybody who reaches the sidecar can have the GPU sign', async () => {
    const folder = temporaryFolder();
    const port = await freePort();
    const sidecar = activate(`127.0.0.1:${port}`, folder.path);
    await eventually(() => sidecar.output().includes('Listening on'));
    await expect(get({ port, host: '127.0.0.1' })).rejects.toMatchObject({ code: 'ECONNRESET' });
    expect((await sidecar.exited).code).toBe(1);
    expect(sidecar.output()).toContain('sidecar: the inherited socket is not a Unix socket');
    folder.remove();
  });
});

function get(options: RequestOptions): Promise<string> {
  return new Promise((resolve, reject) => {
    request({ ...options, timeout: 15_000 }, (response) => {
      let body = '';
      response.on('data', (data) => {
        body += data;
      });
      response.on('end', () => resolve(body));
    })
      .on('error', reject)
      .end();
  });
}
