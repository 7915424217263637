import { accessSync, constants, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { schema } from '../../gateway/base/config.ts';
import { FAILURE_CODES } from '../../proto/attestation/frames.ts';

const at = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url));
const read = (path: string) => readFileSync(at(path), 'utf8');
const found = (text: string, ...patterns: RegExp[]) =>
  patterns.flatMap((pattern) => [...text.matchAll(pattern)].map(([, name]) => name as string));

const page = read('docs/operate.md');
const part = (heading: string) => page.split(`### ${heading}\n`)[1]?.split(/^#+ /m)[0] ?? '';
const reasons = part('Why the sidecar cannot attest');
const explained = new Set(found(reasons, /`([a-z_]+)`/g));
const unexplained = (names: readonly string[]) => [...new Set(names)].filter((name) => !explained.has(name));

describe('the operations guide says what to do for', () => {
  it('every code that the sidecar gives', () => {
    expect(unexplained(FAILURE_CODES)).toEqual([]);
  });

  it('every reason that an attester gives', () => {
    const union = /export type Reason =(?<members>[^;]*);/.exec(read('sidecar/common/attester.ts'));
    const given = found(union?.groups?.members ?? '', /^ {2}\| '([a-z_]+)'/gm);
    expect(given).toEqual(
      expect.arrayContaining(['cc_off', 'gpu_busy', 'rim_forbidden', 'nras_error', 'no_ffi', 'nras_busy']),
    );
    expect(unexplained(given)).toEqual([]);
  });
});

it('settings that it names for the service key reach the sidecar under compose', () => {
  const compose = parse(read('compose.yaml'), { merge: true });
  const named = found(reasons, /`((?:NVIDIA|NRAS)_[A-Z_]*KEY(?:_FILE)?)`/g);
  expect(named).toHaveLength(1);
  expect(Object.keys(compose.services.sidecar.environment)).toEqual(expect.arrayContaining(named));
});

it('every setting reaches the gateway under compose, except for those that are not for .env', () => {
  const { services } = parse(read('compose.yaml'), { merge: true });
  const elsewhere = ['HOST', 'PORT', 'SIDECAR_SOCKET', 'SIDECAR_UID', 'BACKEND_API_KEY', 'ALLOW_SIMULATED', 'DRAIN_MS'];
  const wanted = Object.keys(schema.shape).filter((name) => !elsewhere.includes(name));
  for (const name of ['gateway', 'demo-gateway'])
    expect(Object.keys(services[name].environment)).toEqual(expect.arrayContaining(wanted));
  for (const name of elsewhere) expect(read('.env.example')).toContain(name);
});

it('every code with which the gateway refuses the sidecar has what to do', () => {
  const codes = found(read('gateway/attestation/sidecar-link.ts'), /readonly code: ('socket_[^;]*);/g);
  const named = found(codes.join(), /'([a-z_]+)'/g);
  expect(named).toContain('socket_owner');
  expect(found(part('Why the gateway refuses the sidecar'), /`([a-z_]+)`/g)).toEqual(
    expect.arrayContaining([...named, 'simulated', 'batch_refused']),
  );
});

describe('the steps for systemd', () => {
  const steps = part('systemd').split('```')[1] ?? '';

  it('copy every room that the gateway and the sidecar import', () => {
    const [, copied = ''] = /^cp -r (.*) \/opt\/countersign\/$/m.exec(steps) ?? [];
    expect(copied.split(' ')).toEqual(
      expect.arrayContaining(['gateway', 'sidecar', 'proto', 'node', 'sealed', 'verify']),
    );
  });

  it('install the page too, built where its sources and esbuild are', () => {
    expect(steps).toMatch(/^npm ci && npm run make page && cp -r build \/opt\/countersign\//m);
  });

  it('make the first key with a command that can be run where it was copied to', () => {
    expect(steps).toMatch(/^\/opt\/countersign\/bin\/countersign\.js keys add /m);
    expect(() => accessSync(at('bin/countersign.js'), constants.X_OK)).not.toThrow();
  });
});
