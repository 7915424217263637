// What the doctor says of a processor that signs, or should.
import { hash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { createSimulatedCpu } from '../../../demo/twin/cpu.ts';
import { createSimulatedAttester } from '../../../demo/twin/gpu.ts';
import { PROTOCOL } from '../../../proto/attestation/frames.ts';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import { ConfigError, loadConfig } from '../../../sidecar/common/config.ts';
import { createSessions } from '../../../sidecar/cpu/sessions.ts';
import { exitCode } from '../../../sidecar/doctor/finding.ts';
import type { Host, Trial } from '../../../sidecar/doctor/host.ts';
import { temporaryFolder } from '../../support/harness.ts';
import { answering, config, look, names, type Ran } from './doctor-node.ts';

const REPORTS = '/sys/kernel/config/tsm/report';
const ENTRY = `${REPORTS}/countersign`;
const ran: Ran = { exit_code: 0, stdout: '' };
const settings = (choice: 'off' | 'auto' | 'required') => ({ ...config, cpu_evidence: choice });

/** A confidential VM with the entry that root makes. */
const vm = (provider: string, over: Partial<Host> = {}): Partial<Host> => ({
  kind: async (path) => {
    if (path === ENTRY || path === REPORTS || path === '/run/countersign') return 'folder';
    return path === '/dev/nvidiactl' ? 'device' : null;
  },
  readText: async (path) => {
    if (path === `${ENTRY}/provider`) return `${provider}\n`;
    return path === '/proc/driver/nvidia/version'
      ? 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Thu'
      : null;
  },
  ...over,
});

describe('the processor', () => {
  test.each([
    ['sev_guest', 'SEV-SNP', 'kds', 'https://kdsintf.amd.com'],
    ['tdx_guest', 'TDX', 'pcs', 'https://api.trustedservices.intel.com'],
  ])('that can be asked is named, and its service is looked at: %s', async (provider, words, service, origin) => {
    const { bad, of } = await look(vm(provider), settings('required'));
    expect(bad).toEqual([]);
    expect(of('cpu').seen).toBe(`countersign can ask a ${words} processor by ${ENTRY}`);
    expect(of(service).seen).toContain(`${origin} answers 200`);
  });

  test('is not looked for where none is to sign', async () => {
    const { of, findings } = await look(vm('sev_guest'), settings('off'));
    expect(of('cpu').status).toBe('skip');
    expect(names(findings).join()).not.toMatch(/kds|pcs/);
  });

  const root: Host['access'] = async () => null;
  const denied: Host['access'] = async (path) => (path.startsWith(REPORTS) ? 'EACCES' : null);
  const noEntry: Host['kind'] = async (path) =>
    path === REPORTS || path === '/run/countersign' ? 'folder' : path === '/dev/nvidiactl' ? 'device' : null;
  const nothing: Host['kind'] = async (path) => (path === REPORTS ? null : noEntry(path));
  test.each([
    ['no confidential VM', { kind: nothing }, /modprobe sev-guest/],
    ['no entry, and none can be made', { kind: noEntry, access: denied }, /countersign-tsm/],
    ['an entry of others', { access: denied }, /countersign-tsm/],
    ['another kind of processor', vm('arm_cca_guest'), /SEV-SNP .* or TDX/],
  ] as const)('%s: fails where it is required, and is a warning where it is not', async (_, over, todo) => {
    const required = await look(vm('sev_guest', over), settings('required'));
    expect(required.of('cpu')).toMatchObject({ status: 'fail', todo: expect.stringMatching(todo) });
    expect(exitCode(required.findings)).toBe(1);
    const auto = await look(vm('sev_guest', over), settings('auto'));
    expect(auto.of('cpu')).toMatchObject({ status: 'warn', seen: expect.stringContaining('answers go out without') });
    expect(exitCode(auto.findings)).toBe(0);
  });

  test.each([
    ['all that is needed', {}, 'ok', ''],
    ['a TPM of others', { access: async (path: string) => (path === '/dev/tpmrm0' ? 'EACCES' : null) }, 'fail', 'tss'],
    [
      'no tpm2-tools',
      { run: async (program: string) => (program === 'tpm2_quote' ? null : ran) },
      'fail',
      'tpm2-tools',
    ],
  ] as const)("behind Azure's paravisor is asked through its TPM: %s", async (_, over, status, todo) => {
    const kind: Host['kind'] = async (path) => (path === '/dev/tpmrm0' ? 'device' : nothing(path));
    const { of } = await look({ kind, run: async () => ran, ...over }, settings('required'));
    expect(of('cpu').status).toBe(status);
    expect(of('cpu').todo ?? '').toContain(todo);
  });

  test('root makes its own entry', async () => {
    expect((await look(vm('', { kind: noEntry, access: root }), settings('required'))).of('cpu').status).toBe('ok');
  });

  test.each([
    [429, 'warn', /COLLATERAL_DIR/],
    [403, 'fail', /proxy/],
    [503, 'warn', /later/],
  ])('its service answers %i', async (status, expected, todo) => {
    const fetch: Host['fetch'] = async (url, init) =>
      answering(String(url).includes('kdsintf') ? status : 200)(url, init);
    const { of } = await look(vm('sev_guest', { fetch }), settings('required'));
    expect(of('kds')).toMatchObject({ status: expected, todo: expect.stringMatching(todo) });
  });

  test('a wrong setting is named', () => {
    expect(() => loadConfig({ CPU_EVIDENCE: 'yes' })).toThrow(ConfigError);
    expect(() => loadConfig({ KDS_URL: 'kds' })).toThrow(/^KDS_URL/);
  });
});

describe('the session', () => {
  /** What a sidecar with simulated GPU and processor answers the doctor. */
  async function trialOf(change: (trial: Trial) => Trial = (trial) => trial): Promise<Partial<Host>> {
    const folder = temporaryFolder();
    const attester = await createSimulatedAttester({ rootDir: folder.path });
    const collector = await createSimulatedCpu({ type: 'SEV_SNP', rootDir: folder.path });
    const attest = async (nonce: Nonce, signal: AbortSignal) => attester.attest(nonce, signal);
    const sessions = createSessions({
      collector,
      required: true,
      attest,
      onSession: () => {},
      onFailure: (error) => {
        throw error;
      },
      simulatedRoot: () => attester.simulated?.root ?? null,
    });
    await sessions.ready;
    folder.remove();
    return {
      now: () => new Date(),
      fetch: answering(200, new Date()),
      async trialAttestation(_, draft) {
        if (sessions.current === null) throw new Error('there is no session');
        const session = hash('sha256', sessions.current.statement);
        const raw = draft(session);
        const nonce = hash('sha256', raw) as Nonce;
        const { token, evidence } = await attest(nonce, new AbortController().signal);
        const signed = await sessions.signerIn(session)?.(nonce, evidence);
        if (signed == null) throw new Error('it signed nothing');
        sessions.close();
        const root = `${attester.simulated?.root}${collector.simulated?.root}`;
        return change({
          raw,
          hello: {
            type: 'hello',
            protocol: PROTOCOL,
            attester: 'simulated',
            devices: [{ arch: 'HOPPER', model: 'simulated' }],
            simulated: { root },
            cpu: { type: 'SEV_SNP' },
            trouble: null,
          },
          result: { type: 'attested', id: 'doctor', nonce, token, evidence: [...evidence], cpu: signed },
          session: { type: 'session', id: null, ...sessions.current },
        });
      },
    };
  }
  const simulated = { ...config, attester: 'simulated', cpu_evidence: 'required' } as const;

  test('in which the trial is signed is told with its time', async () => {
    const { of } = await look(await trialOf(), simulated);
    expect(of('trial').status).toBe('ok');
    expect(of('session').status).toBe('ok');
    expect(of('session').seen).toMatch(/^signed by the session of a .*simulated, for another 5\d min; it verifies$/);
  });

  test('whose signature is another fails by its code', async () => {
    const { of } = await look(
      await trialOf((trial) => {
        if ('failure' in trial.result) return trial;
        const signature = Buffer.alloc(64, 1).toString('base64');
        return {
          ...trial,
          result: { ...trial.result, cpu: { session: hash('sha256', trial.session?.statement ?? ''), signature } },
        };
      }),
      simulated,
    );
    expect(of('trial').status).toBe('ok');
    expect(of('session')).toMatchObject({ status: 'fail', seen: expect.stringContaining('answer_signature_invalid') });
  });

  test('that is not there is a warning where a processor is to sign', async () => {
    const without = (cpu: { type: string } | null) => (trial: Trial) => {
      if ('failure' in trial.result) return trial;
      const { cpu: _, ...result } = trial.result;
      return { ...trial, hello: { ...trial.hello, cpu }, result, session: null };
    };
    const restarted = await look(await trialOf(without(null)), simulated);
    expect(restarted.of('session')).toMatchObject({
      status: 'warn',
      seen: expect.stringContaining('CPU_EVIDENCE=off'),
    });
    const missing = await look(await trialOf(without({ type: 'SEV_SNP' })), simulated);
    expect(missing.of('session')).toMatchObject({ status: 'warn', seen: expect.stringContaining('no session') });
  });
});
