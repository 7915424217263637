import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { ConfigError, LIMITS, loadConfig, REMOVED, withServiceKey } from '../../../sidecar/common/config.ts';

describe("the sidecar's configuration", () => {
  it.each(['RIM_URL', 'OCSP_URL', 'NRAS_URL'])(
    'stops the start for a password in %s, and does not repeat it',
    (name) => {
      for (const url of ['https://me:secret@mirror', 'https://me@mirror/a', 'https://:x@mirror?a'])
        expect(() => loadConfig({ [name]: url })).toThrow(
          new ConfigError(`${name} must have no user name and no password`),
        );
      // Without the slashes a URL is read as with them.
      for (const url of ['https:me:secret@mirror', 'https:/me:secret@mirror', 'https:\\\\me:secret@mirror'])
        expect(() => loadConfig({ [name]: url })).toThrow(/^[A-Z_]+ must (?!.*secret)/);
      for (const url of ['https://mirror/a@b', 'https://mirror/a//b@c', 'https://mirror/?x=//u@h'])
        expect(loadConfig({ [name]: url })).toBeDefined();
    },
  );

  it('measures the path of the socket as it will be used: in full', () => {
    const cwd = vi.spyOn(process, 'cwd').mockReturnValue(`/${'x'.repeat(95)}`);
    try {
      for (const env of [{}, { SIDECAR_SOCKET: 'a/s.sock' }] as const)
        expect(() => loadConfig(env)).toThrow(/^SIDECAR_SOCKET must be 100 bytes or fewer/);
      expect(loadConfig({ SIDECAR_SOCKET: '../s.sock' }).sidecar_socket).toBe('/s.sock');
    } finally {
      cwd.mockRestore();
    }
  });

  it('counts an empty variable as unset', () => {
    expect(loadConfig({ ATTESTER: '', LAUNCH_FILE: '' }).attester).toBe('auto');
  });

  it.each([...REMOVED.keys()])(
    'does not start with %s, which is no setting any more, and says what replaces it',
    (name) => {
      const line = new ConfigError(`${name} is no longer a setting: ${REMOVED.get(name)}`);
      expect(() => loadConfig({ [name]: '1' })).toThrow(line);
      expect(loadConfig({ [name]: '' })).toMatchObject(LIMITS);
    },
  );

  it('hands the service key to a program, and says of a file that holds none which it is', () => {
    const file = join(mkdtempSync(join(tmpdir(), 'countersign-')), 'key');
    const environment = () => withServiceKey({ PATH: '/bin' }, 'NV_KEY', file);
    expect(environment).toThrow(new ConfigError(`NRAS_SERVICE_KEY_FILE ${file} cannot be read (ENOENT)`));
    writeFileSync(file, 'two\nlines\n');
    expect(environment).toThrow(new ConfigError(`NRAS_SERVICE_KEY_FILE ${file} must hold one line, the key`));
    writeFileSync(file, 'nvapi-1\n');
    expect(environment()).toEqual({ PATH: '/bin', NV_KEY: 'nvapi-1' });
    expect(withServiceKey({ PATH: '/bin' }, 'NV_KEY', null)).toEqual({ PATH: '/bin' });
    rmSync(dirname(file), { recursive: true });
  });

  it('does not read the DRAIN_MS of a gateway that has the same environment', () => {
    expect(loadConfig({ DRAIN_MS: '1' }).drain_ms).toBe(5_000);
  });
});
