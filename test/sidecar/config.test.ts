import { describe, expect, it } from 'vitest';
import { ConfigError, loadConfig } from '../../sidecar/config.ts';

describe("the sidecar's configuration", () => {
  it.each([' ', '0x10', '1e3', '-1', '1.5', 'many'])('stops the start for a number that is written %j', (value) => {
    expect(() => loadConfig({ ATTEST_QUEUE_MAX: value })).toThrow(ConfigError);
    expect(() => loadConfig({ ATTEST_QUEUE_MAX: value })).toThrow(
      /^ATTEST_QUEUE_MAX must be a whole number in decimal digits$/,
    );
  });

  it('counts an empty variable as unset', () => {
    expect(loadConfig({ ATTEST_QUEUE_MAX: '' }).attest_queue_max).toBe(1024);
  });
});
