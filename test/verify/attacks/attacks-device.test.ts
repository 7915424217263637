// Attacks by evidence: another's report, a chain that brings its own root, devices that are counted twice or left out.
import { describe, expect, test } from 'vitest';
import { extension, issue, nil } from '../../../demo/twin/certificate.ts';
import type { Device } from '../../../demo/twin/pki.ts';
import { makeToken } from '../../../demo/twin/token.ts';
import { makeLeaf, withChain, withLeaf, withoutAuthority } from '../../../scripts/vectors/devices.ts';
import { nonceHex, OTHER, rawOf, WHOLE } from '../../../scripts/vectors/exchange.ts';
import { bare, evidenceOf, type ForgeOptions, forge } from '../../../scripts/vectors/forge.ts';
import { AT, DAY_MS, deviceOf } from '../../../scripts/vectors/world.ts';
import { appraiseEvidence, verifyAttestation, verifyEvidence } from '../../../verify/index.ts';
import type { ReportOptions } from '../../twin/report.ts';
import { codeOf, codeOfEvidence, good, options, refused, refusedEvidence, world } from './attacks.ts';

const nonce = nonceHex(rawOf(WHOLE));
const { a, b, issuers, strangers } = world;
const of = (device: Device, change: ForgeOptions = {}) => forge(world, { devices: [device], ...change });
const listed = async (...devices: Device[]) =>
  Promise.all(devices.map(async (device) => bare(await evidenceOf(device, nonce), nonce)));
/** In our own form, which states no nonce. */
const inOurForm = ({ arch, evidence: report, certificate: certificate_chain }: ReturnType<typeof bare>) => ({
  arch,
  report,
  certificate_chain,
});

describe("another answer's evidence", () => {
  test("A's evidence on B's answer is refused", async () => {
    const answer = await forge(world, { parts: OTHER });
    await refused('report_nonce_mismatch', { ...answer, evidence: good.evidence });
  });
  test("A's raw and nonce on B's evidence and token are refused", async () => {
    const answer = await forge(world, { parts: OTHER });
    await refused('token_nonce_mismatch', { ...answer, raw: good.raw, nonce: good.nonce });
    await refused('raw_hash_mismatch', { ...answer, raw: good.raw });
  });
  test('the nonce in the response half of the report counts for nothing', async () => {
    const other = nonceHex(rawOf(OTHER));
    const replayed = await forge(world, { reportNonce: other, report: { responseNonce: Buffer.from(nonce, 'hex') } });
    await refused('report_nonce_mismatch', replayed);
  });
  test('bare evidence of several nonces is not said to be of one', async () => {
    const other = nonceHex(rawOf(OTHER));
    const both = [...(await listed(a)), bare(await evidenceOf(b, other), other)];
    const { simulatedRoot, ...rest } = options;
    const given = { ...rest, roots: { device: simulatedRoot }, without: { referenceValues: true, revocation: true } };
    const { proven, claims } = await verifyEvidence(both, given);
    expect([claims.nonce, proven.join()]).toEqual([null, expect.stringContaining('not the same for all')]);
    expect((await verifyEvidence(await listed(a, b), given)).proven.join()).toContain('each signed this nonce,');
  });
  test.each(["NVIDIA's form", 'our form'])('bare evidence in %s is of the nonce that is expected', async (form) => {
    const theirs = await listed(a);
    const given = form === 'our form' ? theirs.map(inOurForm) : theirs;
    for (const expected of [nonce, nonce.toUpperCase()])
      expect((await verifyEvidence(given, { ...options, expected: { nonce: expected } })).claims.nonce).toBe(nonce);
    const { checks } = await appraiseEvidence(given, { ...options, expected: { nonce: nonceHex(rawOf(OTHER)) } });
    expect(checks.find(({ status }) => status === 'fail')?.code).toBe('report_nonce_mismatch');
  });
  test.each(["NVIDIA's form", 'our form'])(
    'bare evidence in %s may have more members, but none twice',
    async (form) => {
      const expected = { ...options, expected: { nonce } };
      const [one] = await listed(a);
      const own = form === 'our form' && one !== undefined ? inOurForm(one) : one;
      const more = [{ name: 'GPU 0', version: { minor: 1 }, ...own }];
      const text = JSON.stringify(more);
      for (const given of [more, text]) expect((await appraiseEvidence(given, expected)).valid).toBe(true);
      for (const twice of [
        text.replace('"name":', '"name":"GPU 1","name":'),
        text.replace('"minor":', '"min\\u006fr":1,"minor":'),
        text.replace('"arch":', '"arch":"HOPPER","arch":'),
      ]) {
        const { checks } = await appraiseEvidence(twice, expected);
        expect(checks.find(({ status }) => status === 'fail')).toMatchObject({
          name: 'form',
          code: 'not_an_attestation',
        });
      }
    },
  );
  test('a report whose nonce was replaced does not verify', async () => {
    const [one] = (await forge(world, { reportNonce: nonceHex('{}') })).evidence;
    const bytes = Buffer.from(one?.report ?? '', 'base64');
    bytes.write(nonce, 4, 'hex');
    await refused('report_signature_invalid', { ...good, evidence: [{ ...one, report: bytes.toString('base64') }] });
  });
});

describe('a chain', () => {
  test('that brings a root of its own, of the same name, is refused', () =>
    refusedOne('untrusted_root', strangers.device));
  test('that ends in the pinned root it was not issued under is refused', async () => {
    const chain = [...strangers.device.chain.slice(0, 4), issuers.root.certificate];
    await refusedOne('chain_invalid', withChain(strangers.device, chain));
  });
  test('that ends in a forged root with the key of the pinned one is judged by the pinned one', async () => {
    const theirs = { ...strangers.device, chain: strangers.device.chain.slice(0, 4) as never };
    await refusedOne('chain_invalid', theirs);
  });
  test('out of order, or without a link, is refused', async () => {
    const [leaf, brom, provisioner, identity, root] = a.chain;
    await refusedOne('chain_invalid', withChain(a, [leaf, provisioner, brom, identity, root]));
    await refusedOne('chain_invalid', withChain(a, [leaf, provisioner, identity, root]));
    await refusedOne('untrusted_root', withChain(a, [leaf, brom, provisioner]));
  });
  test('of a root alone, or of nothing but a leaf, is refused', async () => {
    await refusedOne('chain_invalid', withChain(a, [issuers.root.certificate]), 'report_signature_invalid');
    await refusedOne('untrusted_root', withChain(a, [a.chain[0]]));
  });
  test('whose leaf may sign certificates and not data is refused', () =>
    refusedOne('report_signature_invalid', withLeaf(world, { ca: true, usage: 'keyCertSign' })));
  test('whose leaf is an authority is refused', () => refusedOne('chain_invalid', withLeaf(world, { ca: true })));
  test('whose intermediate is no authority is refused', () => refusedOne('chain_invalid', withoutAuthority(world)));
  test('lengthened below a leaf is refused', async () => {
    const forged = makeLeaf({ key: a.key, certificate: a.chain[0] });
    await refusedOne('chain_invalid', withChain({ ...a, key: forged.key }, [forged.certificate, ...a.chain]));
  });
  test('expired, or valid from tomorrow, is refused', async () => {
    await refusedOne('certificate_expired', withLeaf(world, { notAfter: new Date(AT.getTime() - DAY_MS) }));
    await refusedOne('certificate_expired', withLeaf(world, { notBefore: new Date(AT.getTime() + DAY_MS) }));
  });
  test('of something else than a device is refused', () =>
    refusedOne('chain_invalid', withLeaf(world, { commonName: 'SIMULATED OCSP Responder' })));
  test("with a leaf that the boot ROM's key did not sign is refused", async () => {
    const leaf = makeLeaf({ certificate: a.brom.certificate, key: b.brom.key });
    await refusedOne('chain_invalid', deviceOf(issuers, a.brom, leaf));
  });
  test("whose leaf names another key of its issuer's is refused", () =>
    refusedOne('chain_invalid', withLeaf(world, { authorityKeyId: Buffer.alloc(20, 1) })));
  test('with a critical extension that is not understood is refused', () =>
    refusedOne('chain_invalid', withLeaf(world, { extensions: [extension('1.2.3.4.5', nil(), true)] })));
  test('called by another architecture is refused', async () => {
    const evidence = good.evidence.map((one) => ({ ...one, arch: 'BLACKWELL' }));
    await refused('chain_invalid', { ...good, evidence });
  });
  test('with a certificate that is not under the root of the caller, in front of a good one, is refused', async () => {
    const two = Buffer.from(
      a.chain.map(({ pem }) => pem).join('') + strangers.device.chain.map(({ pem }) => pem).join(''),
    );
    const evidence = good.evidence.map((one) => ({ ...one, certificate_chain: two.toString('base64') }));
    expect(await codeOf({ ...good, evidence })).not.toBe('valid');
  });

  async function refusedOne(code: Parameters<typeof refused>[0], device: Device, or = code): Promise<void> {
    expect([code, or]).toContain(await codeOf(await of(device)));
    expect([code, or]).toContain(await codeOfEvidence(await listed(device)));
  }
});

describe('several devices', () => {
  test('pass when each of them is right', async () => {
    expect(await codeOf(await forge(world, { devices: [a, b] }))).toBe('valid');
    expect(await codeOfEvidence(await listed(a, b))).toBe('valid');
  });
  test('behind protected PCIe, without a switch, leave the switches unproven in words', async () => {
    const words = async (report: ReportOptions) =>
      (await verifyAttestation(await forge(world, { devices: [a, b], report }), options)).not_proven.join();
    expect(await words({})).not.toContain('switches');
    expect(await words({ protectedPcie: 0xaa })).toContain('the switches');
  });
  test('of which any has a broken signature are refused', async () => {
    const broken = bare(await evidenceOf(b, nonce, { breakSignature: true }), nonce);
    const [first] = await listed(a);
    await refusedEvidence('report_signature_invalid', [first, broken]);
    await refusedEvidence('report_signature_invalid', [broken, first]);
    const both = await forge(world, { devices: [a, b] });
    const evidence = [both.evidence[0], await evidenceOf(b, nonce, { breakSignature: true })];
    await refused('report_signature_invalid', { ...both, evidence });
  });
  test('of which one signed another nonce are refused', async () => {
    const other = nonceHex('{}');
    const [first] = await listed(a);
    await refusedEvidence('report_nonce_mismatch', [first, bare(await evidenceOf(b, other), nonce)]);
    await refusedEvidence('report_nonce_mismatch', [first, bare(await evidenceOf(b, other), other)], {
      expected: { nonce },
    });
    const both = await forge(world, { devices: [a, b] });
    await refused('report_nonce_mismatch', { ...both, evidence: [both.evidence[0], await evidenceOf(b, other)] });
  });
  test('that are one device twice are refused, by the same report and by a fresh one', async () => {
    const [first] = await listed(a);
    await refusedEvidence('evidence_malformed', [first, first]);
    await refusedEvidence('evidence_malformed', await listed(a, a));
    await refused('evidence_malformed', await forge(world, { devices: [a, a] }));
  });
  test('of which the token names fewer or others are refused', async () => {
    const both = await forge(world, { devices: [a, b] });
    await refused('token_report_mismatch', { ...both, token: makeToken(nonce, [a], AT) });
    await refused('token_report_mismatch', { ...good, token: both.token });
    await refused('token_report_mismatch', { ...good, token: makeToken(nonce, [b], AT) });
  });
  test('of which one is under another root are refused', async () =>
    refusedEvidence('untrusted_root', await listed(a, strangers.device)));
});

describe('what is simulated', () => {
  const { simulatedRoot: named, ...genuine } = options;
  test('is refused where the caller names no simulated root', () =>
    refused('simulated_root_refused', good, { simulatedRoot: undefined }));
  test('is refused under a simulated root that is not the one named', () =>
    refused('untrusted_root', good, { simulatedRoot: strangers.issuers.root.certificate.pem }));
  test('is called simulated and worth nothing, whatever else is said of it', async () => {
    const { claims, level, proven } = await verifyAttestation(good, options);
    expect([claims.simulated, level]).toEqual([true, 'none']);
    expect(JSON.stringify(proven)).not.toMatch(/genuine/i);
  });
  test('beside a device under a pinned root makes the whole worth nothing', async () => {
    const device = strangers.issuers.root.certificate.pem;
    const { claims, level } = await verifyAttestation(await forge(world, { devices: [a, strangers.device] }), {
      ...options,
      roots: { ...options.roots, device },
      without: { referenceValues: true, revocation: true },
    });
    expect([claims.simulated, level]).toEqual([true, 'none']);
  });
  test('a device under a pinned root stays genuine where the caller names a simulated root too', async () => {
    const device = issuers.root.certificate.pem;
    const simulatedRoot = strangers.issuers.root.certificate.pem;
    const { claims, level } = await verifyAttestation(good, {
      ...genuine,
      simulatedRoot,
      roots: { ...options.roots, device },
    });
    expect([claims.simulated, level]).toEqual([false, 'gpu']);
    expect(named).toBeDefined();
  });
  test('a root that is pinned and named as simulated at once is not simulated', async () => {
    const device = issuers.root.certificate.pem;
    expect((await verifyAttestation(good, { ...options, roots: { ...options.roots, device } })).claims.simulated).toBe(
      false,
    );
  });
  test('makes no reference values of NVIDIA of those that the caller trusts', async () => {
    const { checks } = await verifyAttestation(good, options);
    const mode = checks.find(({ name }) => name === 'device_mode');
    expect(mode).toMatchObject({
      status: 'pass',
      detail: expect.stringContaining('under the root that the caller gave'),
    });
    expect(mode?.detail).not.toContain('NVIDIA');
  });
  test('is no root of NVIDIA because it has its name', async () => {
    const root = { ...issuers.root };
    const spec = {
      subject: Buffer.from(issuers.root.certificate.subject),
      serial: Buffer.of(1),
      notBefore: AT,
      notAfter: new Date(AT.getTime() + DAY_MS),
      extensions: [],
    };
    const forged = issue(spec, root.certificate.publicKey, { selfKey: root.key });
    await refused('simulated_root_refused', await of(withChain(a, [...a.chain.slice(0, 4), forged])), {
      simulatedRoot: undefined,
    });
  });
});
