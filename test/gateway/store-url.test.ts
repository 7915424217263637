// The forms of ATTESTATION_STORE_URL.
import { describe, expect, it } from 'vitest';
import { ConfigError, loadConfig } from '../../gateway/base/config.ts';
import { storeAddress } from '../../gateway/base/store-url.ts';

const single = { kind: 'single', tls: false, database: 0, password_file: null, ca_file: null };

describe('ATTESTATION_STORE_URL', () => {
  it.each([
    ['redis://h', { ...single, nodes: [{ host: 'h', port: 6379 }], username: undefined, password: undefined }],
    ['valkey://:p%40ss@127.0.0.1:7/3', { nodes: [{ host: '127.0.0.1', port: 7 }], password: 'p@ss', database: 3 }],
    ['redis://user:a:b@[::1]:7/', { nodes: [{ host: '::1', port: 7 }], username: 'user', password: 'a:b' }],
    [
      'valkeys://user@h?password_file=/p&ca_file=/c',
      { tls: true, username: 'user', password_file: '/p', ca_file: '/c' },
    ],
    [
      'rediss://:p@a:1,b,c:3?cluster',
      {
        kind: 'cluster',
        nodes: [
          { host: 'a', port: 1 },
          { host: 'b', port: 6379 },
          { host: 'c', port: 3 },
        ],
      },
    ],
    [
      'redis://:p@a,b:2/1?sentinel=mine&sentinel_password_file=/s',
      {
        kind: 'sentinel',
        name: 'mine',
        nodes: [
          { host: 'a', port: 26_379 },
          { host: 'b', port: 2 },
        ],
        sentinel_password_file: '/s',
        database: 1,
      },
    ],
  ])('is %s', (url, address) => {
    expect(storeAddress(url)).toMatchObject(address);
    expect(loadConfig({ BACKEND_URL: 'http://b/v1', ATTESTATION_STORE_URL: url }).attestation_store_url).toBe(url);
  });

  it.each([
    'http://h',
    'redis://',
    'redis://a,b',
    'redis://a,,b?cluster',
    'redis://a:99999',
    'redis://a:x',
    'redis://a/x',
    'redis://%zz@a',
    'redis://a?tls',
    'redis://a?cluster=1',
    'redis://a?cluster&cluster',
    'redis://a/2?cluster',
    'redis://a?cluster&sentinel=x',
    'redis://a?sentinel=',
    'redis://a?sentinel_password_file=/s',
    'redis://a?ca_file=/c',
    'redis://:p@a?password_file=/p',
    'redis://a#b',
  ])('is not %s, and the message does not repeat it', (url) => {
    expect(storeAddress(url)).toBeNull();
    const load = () => loadConfig({ BACKEND_URL: 'http://b/v1', ATTESTATION_STORE_URL: url });
    expect(load).toThrow(ConfigError);
    expect(load).toThrow(/ATTESTATION_STORE_URL must be a URL such as redis:\/\/127\.0\.0\.1:6379/);
    expect(load).not.toThrow(/%zz|99999/);
  });
});
