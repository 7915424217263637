// The doctor's last look: one attestation from the sidecar that runs, verified. And a whole report of this machine.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterAll, describe, expect, test } from 'vitest';
import { createSimulatedAttester } from '../../../demo/twin/gpu.ts';
import { PROTOCOL } from '../../../proto/attestation/frames.ts';
import { type Nonce, nonceOf } from '../../../proto/attestation/raw.ts';
import { makeToken, makeTokenKey } from '../../../sidecar/attesters/native/token.ts';
import { loadConfig } from '../../../sidecar/common/config.ts';
import { examine } from '../../../sidecar/doctor/examine.ts';
import { exitCode } from '../../../sidecar/doctor/finding.ts';
import { type DraftRaw, type Trial, thisHost, trialAttestation } from '../../../sidecar/doctor/host.ts';
import { startServer } from '../../../sidecar/server/server.ts';
import { appraiseAttestation } from '../../../verify/index.ts';
import { answering, config, look, NOW } from './doctor-node.ts';

const parent = mkdtempSync(join(tmpdir(), 'doctor-'));
afterAll(() => rmSync(parent, { recursive: true, force: true }));

describe('one trial attestation', () => {
  const attested = async (raw: string): Promise<Trial> => {
    const attester = await createSimulatedAttester({ rootDir: join(parent, 'root') });
    const nonce = await nonceOf(raw);
    const { token, evidence } = await attester.attest(nonce, new AbortController().signal);
    const hello: Trial['hello'] = {
      type: 'hello',
      protocol: PROTOCOL,
      attester: 'simulated',
      devices: [...attester.devices],
      simulated: attester.simulated,
      cpu: null,
      trouble: null,
    };
    return {
      hello,
      raw,
      result: { type: 'attested', id: 'doctor', nonce, token, evidence: [...evidence] },
      session: null,
    };
  };
  // The report's certificates begin now.
  const now = () => new Date();
  const fetch: typeof globalThis.fetch = async () =>
    new Response('{}', { headers: { date: new Date().toUTCString() } });

  test('a simulated one verifies, and is called what it is', async () => {
    const { of } = await look({ now, fetch, trialAttestation: (_, draft) => attested(draft(undefined)) });
    expect(of('trial')).toMatchObject({
      status: 'warn',
      seen: expect.stringContaining('it verifies; its GPU is simulated'),
    });
    const chosen = await look(
      { now, fetch, trialAttestation: (_, draft) => attested(draft(undefined)) },
      { ...config, attester: 'simulated' },
    );
    expect(chosen.of('trial').status).toBe('ok');
  });

  test('one that is about something else does not verify', async () => {
    const { findings, of } = await look({
      now,
      fetch,
      trialAttestation: async (_, draft) => ({
        ...(await attested(draft(undefined).replace('trial', 'other'))),
        raw: draft(undefined),
      }),
    });
    expect(of('trial')).toMatchObject({ status: 'fail', seen: expect.stringContaining('raw_hash_mismatch') });
    expect(exitCode(findings)).toBe(1);
  });

  test("a token that the sidecar signs itself is checked under hello's keys", async () => {
    const [key, other] = [makeTokenKey(), makeTokenKey()];
    const ours = async (raw: string, keys: { readonly keys: readonly object[] }): Promise<Trial> => {
      const { hello, result } = await attested(raw);
      if ('failure' in result || hello.simulated === null) throw new Error(raw);
      const { nonce, token: local, evidence } = result;
      const { claims } = await appraiseAttestation(JSON.stringify({ raw, nonce, token: local, evidence }), {
        simulatedRoot: hello.simulated.root,
      });
      const end = { device: NOW, driver: NOW, vbios: NOW };
      const devices = claims.devices.map((device) => ({ claims: device, expires: end, fwid_checked: true }));
      const token = await makeToken(result.nonce as Nonce, devices, new Date(), key);
      return {
        raw,
        hello: { ...hello, token_keys: JSON.parse(JSON.stringify(keys)) },
        result: { ...result, token },
        session: null,
      };
    };
    const under = (keys: { readonly keys: readonly object[] }) =>
      look({ now, fetch, trialAttestation: (_, draft) => ours(draft(undefined), keys) });
    expect((await under({ keys: [key.public] })).of('trial').seen).toContain('it verifies');
    const wrong = await under({ keys: [other.public] });
    expect(wrong.of('trial')).toMatchObject({ status: 'fail', seen: expect.stringContaining('token_key_unavailable') });
  });

  test("a refusal is told in the sidecar's words", async () => {
    const askOne = async (_: string, draft: DraftRaw) => ({
      ...(await attested(draft(undefined))),
      result: { failure: 'collection_failed: cc_off' },
    });
    expect((await look({ trialAttestation: askOne })).of('trial')).toMatchObject({
      status: 'fail',
      seen: expect.stringContaining('cc_off'),
    });
  });

  test('over a real socket, from a real sidecar', async () => {
    const settings = loadConfig({ SIDECAR_SOCKET: join(parent, 'a b', 'sidecar.sock'), ATTESTER: 'simulated' });
    const attester = await createSimulatedAttester({ rootDir: join(parent, 'root') });
    const server = await startServer(attester, settings, pino({ level: 'silent' }));
    const { of } = await look({ now, fetch, trialAttestation }, { ...config, sidecar_socket: settings.sidecar_socket });
    await server.close();
    expect(of('trial').seen).toContain('it verifies');
    const gone = await look({ trialAttestation }, { ...config, sidecar_socket: settings.sidecar_socket });
    expect(gone.of('trial').status).toBe('skip');
  });
});

test('this machine, whatever it is, gets a whole report', async () => {
  const host = { ...thisHost({ PATH: process.env.PATH ?? '' }), fetch: answering(200) };
  const findings = await examine(host, { ...config, sidecar_socket: join(parent, 'none.sock') });
  expect(findings.length).toBeGreaterThan(10);
  for (const { status, seen, todo } of findings) {
    expect(seen).not.toBe('');
    expect(todo !== undefined).toBe(status === 'warn' || status === 'fail');
  }
});
