import { describe, expect, it, vi } from 'vitest';
import { ConfigError, loadConfig } from '../../../sidecar/common/config.ts';

describe("the sidecar's configuration", () => {
  it.each([' ', '0x10', '1e3', '-1', '1.5', 'many'])('stops the start for a number that is written %j', (value) => {
    expect(() => loadConfig({ ATTEST_QUEUE_MAX: value })).toThrow(ConfigError);
    expect(() => loadConfig({ ATTEST_QUEUE_MAX: value })).toThrow(
      /^ATTEST_QUEUE_MAX must be a whole number in decimal digits$/,
    );
  });

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
    expect(loadConfig({ ATTEST_QUEUE_MAX: '' }).attest_queue_max).toBe(1024);
  });
});
