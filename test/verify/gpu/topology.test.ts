// Which devices belong together: right machines behind protected PCIe, and machines with one thing wrong; and what is then said.
import { describe, expect, test } from 'vitest';
import { DEVICE_ROOT, type Device, makeDevice, makeIssuers, makeRoot } from '../../../demo/twin/pki.ts';
import { nonceHex, rawOf, WHOLE } from '../../../scripts/vectors/exchange.ts';
import { forge } from '../../../scripts/vectors/forge.ts';
import { chainBase64 } from '../../../scripts/vectors/world.ts';
import { appraiseAttestation, appraiseEvidence, type VerifyOptions } from '../../../verify/index.ts';
import { B200, H100, type Model, NVSWITCH } from '../../twin/models.ts';
import { makeReport, type ReportOptions } from '../../twin/report.ts';
import { options as full, world } from '../attacks/attacks.ts';

const root = makeRoot(DEVICE_ROOT);
const makers = { H100: makeIssuers(root), B200: makeIssuers(root, B200.chip), LS10: makeIssuers(root, NVSWITCH.chip) };
/** Pinned, so that the words are those about hardware. */
const options: VerifyOptions = {
  roots: { device: root.certificate.pem },
  without: { referenceValues: true, revocation: true },
};
const nonce = nonceHex(rawOf(WHOLE));

const GPUS = Array.from({ length: 8 }, () => makeDevice(makers.H100));
const SWITCHES = Array.from({ length: 4 }, () => makeDevice(makers.LS10));
const NEWER = [makeDevice(makers.B200), makeDevice(makers.B200)];
const switchId = (n: number) => Buffer.from([0x20, 0x3e, 0xb3, 0x1a, 0xd9, 0xed, 0, n]);
const gpuId = (n: number) => Buffer.from([0x40, 0xb9, 0xc6, 0xb3, 0xd7, 0x48, 0xfd, n]);
const NOWHERE = Buffer.alloc(8);
const ids = (make: (n: number) => Buffer, count: number) => Array.from({ length: count }, (_, i) => make(i + 1));

interface One {
  readonly device: Device;
  readonly model: Model;
  readonly report: ReportOptions;
}

/** The links of a GPU lead to its switches, twice each, and one leads nowhere. */
const gpu = (n: number, report: ReportOptions = {}): One => ({
  device: GPUS[n] as Device,
  model: H100,
  report: { protectedPcie: 0xaa, fabricIds: [...ids(switchId, 4), NOWHERE, ...ids(switchId, 4)], ...report },
});
const aSwitch = (n: number, report: ReportOptions = {}): One => ({
  device: SWITCHES[n] as Device,
  model: NVSWITCH,
  report: { fabricIds: [switchId(n + 1)], gpuIds: ids(gpuId, 8), ...report },
});
const gpus = (count: number, report: ReportOptions = {}) => Array.from({ length: count }, (_, n) => gpu(n, report));
const switches = (count: number, report: ReportOptions = {}) =>
  Array.from({ length: count }, (_, n) => aSwitch(n, report));
const alone = { protectedPcie: 0x55, fabricIds: undefined as never };

async function appraised(machine: readonly One[], more: VerifyOptions = options) {
  const evidence = machine.map(async ({ device, model, report }) => ({
    arch: model.arch,
    report: (await makeReport(Buffer.from(nonce, 'hex'), device.key, model.report(report))).toString('base64'),
    certificate_chain: chainBase64(device),
    nonce,
  }));
  const { evidence: _, ...rest } = await forge(world);
  const list = await Promise.all(evidence);
  const bare = await appraiseEvidence(list, more);
  const words = [...bare.checks.map(({ detail }) => detail), ...bare.proven, ...bare.not_proven].join('\n');
  const topology = bare.checks.find(({ name }) => name === 'topology');
  // The token is about another device: the check is the same beside it.
  const whole = await appraiseAttestation({ ...rest, evidence: list.map(({ nonce: _n, ...one }) => one) }, more);
  expect(whole.checks.find(({ name }) => name === 'topology')).toEqual(topology);
  return { ...bare, words, topology };
}

describe('a machine behind protected PCIe', () => {
  test('whose eight GPUs and four switches name each other passes, and nothing is left open about switches', async () => {
    const { topology, valid, not_proven } = await appraised([...gpus(8), ...switches(4)]);
    expect([valid, topology?.status]).toEqual([true, 'pass']);
    expect(topology?.detail).toContain('8 GPUs in one mode, behind protected PCIe, and each of the 4 switches');
    expect(not_proven.join()).not.toContain('switch');
    expect((await appraised([...switches(4), ...gpus(8)])).topology?.status).toBe('pass');
  });

  const whole = gpus(8);
  test.each<[string, readonly One[], string]>([
    ['eight GPUs and any one switch', [...whole, aSwitch(2)], 'the GPUs name 4 switches, and 1 signed'],
    ['eight GPUs and three switches', [...whole, ...switches(3)], 'the GPUs name 4 switches, and 3 signed'],
    ['eight GPUs alone', whole, 'a GPU is behind protected PCIe, and no switch signed'],
    ['one GPU alone', gpus(1), 'a GPU is behind protected PCIe, and no switch signed'],
    ['seven GPUs and four switches', [...gpus(7), ...switches(4)], 'the switches name 8 GPUs, and 7 signed'],
    [
      'a GPU that does not say at which switches it is, alone',
      gpus(1, { fabricIds: undefined as never }),
      'a GPU is behind protected PCIe, and no switch signed',
    ],
  ])('%s: not wrong, and the warning stays', async (_name, machine, reason) => {
    const { topology, valid, not_proven } = await appraised(machine);
    expect([valid, topology]).toMatchObject([true, { status: 'skip', detail: reason }]);
    expect(not_proven.join('\n')).toContain(`: ${reason}.`);
    const required = { ...options, policy: { requiredChecks: ['topology'] as const } };
    expect((await appraised(machine, required)).valid).toBe(false);
  });

  const strange = ids((n) => switchId(n + 100), 4);
  test.each<[string, readonly One[], string]>([
    [
      'a switch that no GPU names',
      [...whole, ...switches(3), aSwitch(3, { fabricIds: [switchId(9)] })],
      'device 11 is a switch that',
    ],
    [
      'two switches of one id',
      [...whole, ...switches(3), aSwitch(3, { fabricIds: [switchId(1)] })],
      'device 11 says that it is',
    ],
    [
      'a switch that does not say which it is',
      [...whole, aSwitch(0, { fabricIds: [] })],
      'device 8 does not say which',
    ],
    [
      'a switch that says it is two',
      [...whole, aSwitch(0, { fabricIds: ids(switchId, 2) })],
      'device 8 does not say which',
    ],
    ['a switch that says it is nobody', [...whole, aSwitch(0, { fabricIds: [NOWHERE] })], 'device 8 is a switch that'],
    [
      'a GPU at other switches',
      [...gpus(7), gpu(7, { fabricIds: strange }), ...switches(4)],
      'device 7 is at other switches than device 0',
    ],
    [
      'a GPU at one switch less',
      [gpu(0), gpu(1, { fabricIds: ids(switchId, 3) })],
      'device 1 is at other switches than device 0',
    ],
    [
      'a GPU at other switches, and no switch',
      [gpu(0), gpu(1, { fabricIds: strange })],
      'device 1 is at other switches',
    ],
    [
      'a GPU that does not say',
      [gpu(0), gpu(1, { fabricIds: undefined as never }), aSwitch(0)],
      'device 1 does not say at which',
    ],
    [
      'other GPUs at one switch',
      [...whole, ...switches(3), aSwitch(3, { gpuIds: ids((n) => gpuId(n + 9), 8) })],
      'device 11 has other GPUs',
    ],
    [
      'fewer GPUs at the switches than signed',
      [...whole, ...switches(4, { gpuIds: ids(gpuId, 7) })],
      'the switches name 7 GPUs, and 8 signed',
    ],
    [
      'a GPU that is not behind it',
      [...gpus(7), gpu(7, alone), ...switches(4)],
      'device 7 is in another mode than device 0',
    ],
    ['one GPU that is, of eight', [...gpus(7, alone), gpu(7)], 'device 7 is in another mode than device 0'],
  ])('%s: refused', async (_name, machine, detail) => {
    const { topology, valid } = await appraised(machine);
    expect([valid, topology]).toMatchObject([false, { status: 'fail', code: 'topology_mismatch' }]);
    expect(topology?.detail).toContain(detail);
  });
});

describe('GPUs of one machine', () => {
  const newer = (n: number, report: ReportOptions = {}): One => ({ device: NEWER[n] as Device, model: B200, report });
  test('in one mode pass, alone and together', async () => {
    expect((await appraised([gpu(0, alone)])).topology?.detail).toBe('one GPU, not behind protected PCIe');
    expect((await appraised(gpus(8, alone))).topology?.detail).toContain('8 GPUs in one mode');
    expect((await appraised([newer(0), newer(1)])).topology?.status).toBe('pass');
    // An older driver says less, and nothing else.
    expect((await appraised([newer(0), gpu(0, alone)])).topology?.status).toBe('pass');
  });
  test('in two modes are refused, by the flag of newer drivers too', async () => {
    expect((await appraised([newer(0), newer(1, { protectedPcie: 0xaa })])).topology?.code).toBe('topology_mismatch');
    expect((await appraised([newer(0), gpu(0)])).topology?.code).toBe('topology_mismatch');
  });
  test('beside a switch that no mode has anything to do with: nothing is said of the switch', async () => {
    const { topology, not_proven } = await appraised([gpu(0, alone), aSwitch(0)]);
    expect(topology?.status).toBe('skip');
    expect(not_proven.join('\n')).toContain('That the switches are those between these GPUs: no GPU says');
  });
});

describe('the words', () => {
  test('about switches alone speak of no GPU but that none signed', async () => {
    const { words, level, valid, topology } = await appraised(switches(2));
    expect([valid, level, topology]).toMatchObject([true, 'none', { status: 'skip', detail: 'no GPU signed' }]);
    expect(words).toContain('That the NVSwitch runs the firmware');
    const spoken = words.replaceAll('no GPU signed', '').replaceAll('That any GPU is genuine', '');
    expect(spoken).not.toContain('GPU');
  });

  test('about a GPU and its switch speak of devices, and of a GPU alone of the GPU', async () => {
    expect((await appraised([gpu(0), aSwitch(0)])).words).toContain('That the device runs the firmware');
    expect((await appraised([gpu(0)])).words).toContain('That the GPU runs the firmware');
  });

  test('about revocation name those who were asked about, and that the own certificate was not', async () => {
    const device = world.issuers.root.certificate.pem;
    const { simulatedRoot: _, ...genuine } = full;
    const pinned = { ...genuine, roots: { ...full.roots, device } };
    const attestation = await forge(world);
    const all = await appraiseAttestation(attestation, pinned);
    const asked = "the authorities between the GPU's own and its root, and of those who signed its reference values.";
    expect(all.proven.join('\n')).toContain(asked);
    expect(all.proven.join('\n')).not.toContain('None of the certificates');
    expect(all.not_proven.join('\n')).toContain(
      "That the GPU's own certificate was not revoked: its boot ROM issued it",
    );
    expect(all.checks.find(({ name }) => name === 'revocation')?.detail).toBe(
      "6 certificates are good, of the authorities above the device's own, and of those who signed its reference values; about its own nobody can be asked",
    );
    const fewer = await appraiseAttestation(attestation, { ...pinned, without: { referenceValues: true } });
    expect(fewer.proven.join('\n')).toContain("the authorities between the GPU's own and its root.");
    const none = await appraiseAttestation(attestation, { ...pinned, without: { revocation: true } });
    expect(none.not_proven.join('\n')).toContain('That the certificates were not revoked: nobody was asked.');
    expect(none.proven.join('\n')).not.toContain('revoked');
  });
});
