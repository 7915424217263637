// Which devices the sidecar holds an attester to, whatever it says of itself: their number, their kinds, and their switches.
import { describe, expect, test } from 'vitest';
import { chainPem, DEVICE_ROOT, type Device, makeDevice, makeIssuers, makeRoot } from '../../../demo/twin/pki.ts';
import type { Attester, Collected } from '../../../sidecar/common/attester.ts';
import { checkCollected } from '../../../sidecar/signing/evidence-check.ts';
import { freshNonce } from '../../support/attest.ts';
import { B200, H100, type Model, NVSWITCH } from '../../twin/models.ts';
import { makeReport, type ReportOptions } from '../../twin/report.ts';

const root = makeRoot(DEVICE_ROOT);
const nonce = freshNonce();
const made = (model: Model) => ({ model, device: makeDevice(makeIssuers(root, model.chip)) });
const [gpu, b200, nvswitch] = [made(H100), made(B200), made(NVSWITCH)];

async function evidenceOf({ model, device }: { model: Model; device: Device }, options: ReportOptions = {}) {
  const report = await makeReport(Buffer.from(nonce, 'hex'), device.key, model.report(options));
  const certificate_chain = Buffer.from(chainPem(device)).toString('base64');
  return { arch: model.arch, report: report.toString('base64'), certificate_chain } as Collected['evidence'][number];
}

const jwt = (claims: object) =>
  `${Buffer.from('{"alg":"none"}').toString('base64url')}.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.`;
const tokenOf = (claims: object = {}, overall: object = {}) =>
  JSON.stringify([
    ['JWT', jwt({ eat_nonce: nonce, ...overall })],
    { 'GPU-0': jwt({ eat_nonce: nonce }), 'GPU-1': jwt({ eat_nonce: nonce, ...claims }) },
  ]);
const check = (evidence: Collected['evidence'], arches: readonly string[], token = tokenOf()) =>
  checkCollected({ token, evidence }, nonce, {
    devices: arches.map((arch) => ({ arch, model: arch })),
    simulated: { root: root.certificate.pem },
  } as unknown as Attester);

describe('evidence of several devices', () => {
  test('of a GPU and its switch, and of a B200, is taken', async () => {
    const behind = await evidenceOf(gpu, { protectedPcie: 0xaa });
    await check([behind, await evidenceOf(nvswitch)], ['HOPPER', 'LS10']);
    await check([await evidenceOf(b200)], ['BLACKWELL']);
  });

  test('without the switch that there is is refused', async () => {
    await expect(check([await evidenceOf(gpu)], ['HOPPER', 'LS10'])).rejects.toThrow(
      'evidence of 1 devices where there are 2',
    );
  });

  test('of a second GPU in place of the switch is refused', async () => {
    const evidence = [await evidenceOf(gpu), await evidenceOf(b200)];
    await expect(check(evidence, ['HOPPER', 'LS10'])).rejects.toThrow(
      'device 1: evidence of a BLACKWELL in place of a LS10',
    );
  });

  test('signed by an authority, as a device’s boot ROM is one for its own keys, is refused', async () => {
    const { brom, chain } = gpu.device;
    const report = await makeReport(Buffer.from(nonce, 'hex'), brom.key, gpu.model.report());
    const above = chain.slice(1).map(({ pem }) => pem);
    const certificate_chain = Buffer.from(above.join('')).toString('base64');
    const evidence = [{ arch: 'HOPPER', report: report.toString('base64'), certificate_chain }];
    await expect(check(evidence, ['HOPPER'])).rejects.toThrow(
      'evidence_refused: device 0: the leaf certificate is not one of a device',
    );
  });

  test('of a GPU that is called a switch is refused', async () => {
    const evidence = [await evidenceOf(gpu), { ...(await evidenceOf(b200)), arch: 'LS10' as const }];
    await expect(check(evidence, ['HOPPER', 'LS10'])).rejects.toThrow(
      'device 1: the evidence says LS10, the certificates are of a GB100',
    );
  });

  test.each([gpu, b200])('of a GPU behind protected PCIe ($model.arch) without any switch is refused', async (one) => {
    const evidence = [await evidenceOf(one, { protectedPcie: 0xaa })];
    await expect(check(evidence, [one.model.arch])).rejects.toThrow(/behind protected PCIe.*switches/);
  });

  test('of the same switch twice is refused', async () => {
    const evidence = [await evidenceOf(gpu), await evidenceOf(nvswitch), await evidenceOf(nvswitch)];
    await expect(check(evidence, ['HOPPER', 'LS10', 'LS10'])).rejects.toThrow('device 2: the same device as device 1');
  });
});

describe('a token', () => {
  const yes = { 'x-nvidia-overall-att-result': true };
  const taken = async (token: string) => check([await evidenceOf(gpu)], ['HOPPER'], token);
  test('that says yes of the whole and of each device is taken', () =>
    taken(tokenOf({ measres: 'success', secboot: true, dbgstat: 'disabled' }, yes)));

  test.each([{ measres: 'fail' }, { measres: 'comparison-failed' }, { dbgstat: 'enabled' }, { secboot: false }])(
    'that says yes of the whole and %o of one device is refused',
    (claims) => expect(taken(tokenOf(claims, yes))).rejects.toThrow('the verifier says that GPU-1 does not pass'),
  );
});
