// Evidence of SEV-SNP that is right except for one thing fails by that thing's check alone.
import { describe, expect, test } from 'vitest';
import { certify, type Holder, makeCrl, newKeys, pem } from '../../../demo/twin/authority.ts';
import {
  type Amd,
  amdCrl,
  CHIP_ID,
  type LeafSpec,
  makeAmd,
  makeLeaf,
  makeSnpReport,
  type ReportSpec,
  snpMember,
  TCB,
} from '../../../demo/twin/snp.ts';
import type { CpuVerifyOptions, Product } from '../../../verify/cpu/cpu-options.ts';
import { parseSnpReport } from '../../../verify/cpu/evidence/snp-report.ts';
import { appraiseCpu } from '../../../verify/cpu/verify-cpu.ts';
import { failures } from './verdict.ts';

const AT = new Date('2026-06-01T00:00:00Z');
const all: Readonly<Record<Product, Amd>> = {
  Milan: makeAmd('Milan'),
  Genoa: makeAmd('Genoa'),
  Turin: makeAmd('Turin'),
};
const genoa = all.Genoa;
const AMD_ROOTS = pem(all.Milan.ark, all.Genoa.ark, all.Turin.ark);
const OPTIONS: CpuVerifyOptions = { at: AT, roots: { amd: AMD_ROOTS } };

interface Parts {
  readonly amd?: Amd;
  readonly leaf?: LeafSpec;
  readonly report?: ReportSpec;
  /** After it was signed. */
  readonly tamper?: (report: Buffer) => Buffer | undefined;
  readonly chain?: (leaf: Holder, amd: Amd) => readonly Holder[];
  readonly crl?: Buffer | null;
  readonly options?: CpuVerifyOptions;
}

async function judge(parts: Parts) {
  const { amd = genoa } = parts;
  const leaf = makeLeaf(amd, parts.leaf);
  const made = makeSnpReport(amd.product, leaf, { kind: parts.leaf?.kind ?? 'VCEK', ...parts.report });
  const report = parts.tamper?.(made) ?? made;
  const authority = parts.leaf?.kind === 'VLEK' ? amd.asvk : amd.ask;
  const chain = parts.chain?.(leaf, amd) ?? [leaf, authority];
  const crl = parts.crl === null ? undefined : (parts.crl ?? amdCrl(amd));
  return appraiseCpu(snpMember(report, chain, crl), { ...OPTIONS, ...parts.options });
}

const refuse = async (parts: Parts) => failures(await judge(parts));
const put = (at: number, ...bytes: readonly number[]) => ({
  edit: (report: Buffer) => {
    report.set(bytes, at);
  },
});
const xor = (at: number) => (report: Buffer) => {
  report[at] = (report[at] ?? 0) ^ 1;
  return report;
};

describe('right evidence passes', () => {
  test.each(['Genoa', 'Turin'] as const)('of %s, by default', async (product) => {
    expect(await refuse({ amd: all[product] })).toEqual([]);
  });
  test('of Milan, where the caller accepts it', async () => {
    expect(await refuse({ amd: all.Milan, options: { policy: { products: ['Milan'] } } })).toEqual([]);
  });
  test.each([2, 3, 4, 5])('of version %i', async (version) => {
    expect(await refuse({ report: { version, ...(version < 5 ? put(0x1f8, 0) : {}) } })).toEqual([]);
  });
  test.each([0x10, 0x1f, 0xa0, 0xaf])('of Genoa, model %i', async (model) => {
    expect(await refuse({ report: put(0x189, model) })).toEqual([]);
  });
  test('by a VLEK', async () => {
    expect(await refuse({ leaf: { kind: 'VLEK' } })).toEqual([]);
    expect(await refuse({ leaf: { kind: 'VLEK' }, options: { policy: { cspIds: ['CN=cloud'] } } })).toEqual([]);
  });
  test('with a HWID in an OCTET STRING', async () => {
    const hwid = Buffer.concat([Buffer.of(0x04, 64), CHIP_ID]);
    expect(await refuse({ leaf: { hwid } })).toEqual([]);
    const short = Buffer.concat([Buffer.of(0x04, 8), CHIP_ID.subarray(0, 8)]);
    expect(await refuse({ amd: all.Turin, leaf: { hwid: short } })).toEqual([]);
  });
  test('with the stepping in its product name', async () => {
    expect(await refuse({ leaf: { productName: 'Genoa-B1' } })).toEqual([]);
  });
  test('with the root beside it, which does not count', async () => {
    expect(await refuse({ chain: (leaf, { ask, ark }) => [leaf, ask, ark] })).toEqual([]);
  });
  test('under a simulated root that the caller names, and says so', async () => {
    const options = { at: AT, simulatedRoots: pem(genoa.ark) };
    const leaf = makeLeaf(genoa);
    const member = snpMember(makeSnpReport('Genoa', leaf), [leaf, genoa.ask], amdCrl(genoa));
    const { valid, claims } = await appraiseCpu(member, options);
    expect([valid, claims?.simulated]).toEqual([true, true]);
  });
});

describe('cpu_form', () => {
  const bad = [['cpu_form', 'cpu_malformed']];
  const unsupported = [['cpu_form', 'cpu_unsupported']];
  test('a byte short, a byte long', async () => {
    expect(await refuse({ tamper: (report) => report.subarray(1) })).toEqual(bad);
    expect(await refuse({ tamper: (report) => Buffer.concat([report, Buffer.of(0)]) })).toEqual(bad);
  });
  test.each([0x4c, 0x1eb, 0x1ef, 0x29f, 0x2a0 + 48, 0x2a0 + 143, 0x330, 1183])('byte %i is not zero', async (at) => {
    expect(await refuse({ tamper: xor(at) })).toEqual(bad);
  });
  test('bit 17 of the policy is zero', async () => expect(await refuse({ report: put(10, 0x01) })).toEqual(bad));
  test('the mitigations of version 5 in a report of version 3', async () =>
    expect(await refuse({ report: { version: 3, ...put(0x1f8, 1) } })).toEqual(bad));
  test('CPUID bytes in a report of version 2', async () =>
    expect(await refuse({ report: { version: 2, ...put(0x188, 0x19) } })).toEqual(bad));
  test.each([0, 1, 6, 0xff])('version %i', async (version) =>
    expect(await refuse({ report: put(0, version) })).toEqual(unsupported),
  );
  test('another signature algorithm', async () => expect(await refuse({ report: put(0x34, 2) })).toEqual(unsupported));
  test('a report that no key signed', async () =>
    expect(await refuse({ report: put(0x48, 7 << 2) })).toEqual(unsupported));
  test.each([
    [0x17, 0x01],
    [0x19, 0x20],
    [0x19, 0xb0],
    [0x1a, 0x20],
  ])('family %i, model %i', async (family, model) =>
    expect(await refuse({ report: put(0x188, family, model) })).toEqual(unsupported),
  );
  test.each([
    ['a type that is not known', { type: 'SEV_ES' }, 'cpu_unsupported'],
    ['no type', { type: undefined }, 'cpu_malformed'],
    ['a member that is not known', { extra: 1 }, 'cpu_malformed'],
    ['no certificates', { certificates: undefined }, 'cpu_malformed'],
    ['certificates that are none', { certificates: 'AAAA' }, 'cpu_malformed'],
    ['a report that is no base64', { report: 'A' }, 'cpu_malformed'],
    ['a report that is far too long', { report: 'A'.repeat(100_000) }, 'cpu_malformed'],
    ['a report that is no string', { report: 7 }, 'cpu_malformed'],
    ['collateral of another processor', { collateral: { tcb_info: '' } }, 'cpu_malformed'],
    ["Azure's member", { tpm: {} }, 'cpu_malformed'],
  ])('%s', async (_, change, code) => {
    const leaf = makeLeaf(genoa);
    const member = { ...snpMember(makeSnpReport('Genoa', leaf), [leaf, genoa.ask], amdCrl(genoa)), ...change };
    expect(failures(await appraiseCpu(member, OPTIONS))).toEqual([['cpu_form', code]]);
  });
  test.each(['', '[]', 'null', '7', '{"type":"TDX","type":"SEV_SNP"}', '{'])('the text %s', async (text) => {
    expect(failures(await appraiseCpu(text, OPTIONS))).toEqual(bad);
  });
  test('what cannot run says so, and nothing is claimed', async () => {
    const { checks, claims, valid } = await appraiseCpu('{', OPTIONS);
    expect([claims, valid]).toEqual([null, false]);
    const others = checks.slice(1).map(({ status, detail }) => `${status}: ${detail.slice(0, 7)}`);
    expect(new Set(others)).toEqual(new Set(['skip: not run']));
  });
});

describe('cpu_signature', () => {
  const wrong = [['cpu_signature', 'cpu_signature_invalid']];
  test.each([4, 0x50, 0x90, 0xc0, 0x180, 0x1a0, 0x1f8, 0x2a0, 0x2a0 + 72])('a bit of byte %i', async (at) => {
    expect(await refuse({ tamper: xor(at) })).toEqual(wrong);
  });
  test('signed by another key', async () => {
    const other = makeLeaf(genoa);
    expect(await refuse({ chain: (_, { ask }) => [other, ask] })).toEqual(wrong);
  });
  test('a leaf of another curve', async () => {
    const keys = newKeys('P-256');
    expect(await refuse({ chain: (_, { ask }) => [certify({ cn: 'SEV-VCEK' }, keys, ask), ask] })).toEqual(wrong);
  });
});

describe('cpu_chain', () => {
  const of = (code: string) => [['cpu_chain', code]];
  test('expired, and not valid yet', async () => {
    const expired = { notAfter: new Date('2026-05-31T00:00:00Z') };
    const future = { notBefore: new Date('2026-06-02T00:00:00Z') };
    expect(await refuse({ leaf: expired })).toEqual(of('certificate_expired'));
    expect(await refuse({ leaf: future })).toEqual(of('certificate_expired'));
  });
  test('under the pinned roots it is nobody', async () => {
    expect(await refuse({ options: { roots: {} } })).toEqual(of('simulated_root_refused'));
  });
  test('under a root that the caller does not trust', async () => {
    expect(
      await refuse({ options: { roots: { amd: pem(all.Turin.ark) }, simulatedRoots: pem(all.Milan.ark) } }),
    ).toEqual(of('untrusted_root'));
  });
  test('a root of the same name and another key', async () => {
    expect(await refuse({ options: { roots: { amd: pem(makeAmd('Genoa').ark) } } })).toEqual(of('chain_invalid'));
  });
  test('an ASK of the same name that the root did not sign', async () => {
    const other = makeAmd('Genoa');
    expect(await refuse({ leaf: { issuer: other.ask }, chain: (leaf) => [leaf, other.ask] })).toEqual(
      of('chain_invalid'),
    );
  });
  test("under another product's ASK", async () => {
    expect(await refuse({ chain: (leaf) => [leaf, all.Turin.ask] })).toEqual(of('chain_invalid'));
  });
  test('a VCEK that the ASVK signed, and a VLEK that the ASK signed', async () => {
    expect(await refuse({ leaf: { issuer: genoa.asvk }, chain: (leaf) => [leaf, genoa.asvk] })).toEqual(
      of('chain_invalid'),
    );
    const vlek: LeafSpec = { kind: 'VLEK', issuer: genoa.ask };
    expect(await refuse({ leaf: vlek, chain: (leaf) => [leaf, genoa.ask] })).toEqual(of('chain_invalid'));
  });
  test('an authority that is none', async () => {
    const ask = certify({ cn: 'SEV-Genoa', serial: 2 }, newKeys('rsa'), genoa.ark);
    expect(await refuse({ leaf: { issuer: ask }, chain: (leaf) => [leaf, ask] })).toEqual(of('chain_invalid'));
  });
  test('a leaf of another name', async () => {
    expect(await refuse({ leaf: { cn: 'SEV-VCEK2' } })).toEqual(of('chain_invalid'));
  });
  test('no authority between leaf and root', async () => {
    expect(await refuse({ leaf: { issuer: genoa.ark }, chain: (leaf) => [leaf] })).toEqual(of('chain_invalid'));
  });
});

describe('cpu_identity', () => {
  const mismatch = [['cpu_identity', 'cpu_identity_mismatch']];
  test.each(['bl', 'tee', 'snp', 'ucode', 'fmc'])('the leaf is for another %s', async (part) => {
    const tcb = { ...TCB, [part]: 5 };
    expect(await refuse({ amd: all.Turin, leaf: { tcb } })).toEqual(mismatch);
  });
  test('a byte of the TCB that means nothing is set', async () => {
    const options = { policy: { minTcb: { Genoa: {} } } };
    expect(await refuse({ report: put(0x182, 1), options })).toEqual(mismatch);
  });
  test('the leaf is of another chip', async () => {
    expect(await refuse({ leaf: { hwid: Buffer.alloc(64, 0xc2) } })).toEqual(mismatch);
    expect(await refuse({ amd: all.Turin, leaf: { hwid: Buffer.alloc(8, 0xc2) } })).toEqual(mismatch);
  });
  test('a HWID that is cut, and none', async () => {
    expect(await refuse({ leaf: { hwid: CHIP_ID.subarray(0, 8) } })).toEqual(mismatch);
    expect(await refuse({ leaf: { drop: ['4'] } })).toEqual(mismatch);
  });
  test("more than 8 bytes in Turin's chip id", async () => {
    expect(await refuse({ amd: all.Turin, report: put(0x1a0 + 8, 1) })).toEqual(mismatch);
  });
  test('the processor says that it is another product', async () => {
    expect(await refuse({ report: put(0x188, 0x19, 0x01) })).toEqual(mismatch);
  });
  test('the leaf says that it is another product', async () => {
    expect(await refuse({ leaf: { productName: 'Milan-B0' } })).toEqual(mismatch);
    expect(await refuse({ leaf: { productName: 'Genoa2' } })).toEqual(mismatch);
    expect(await refuse({ leaf: { drop: ['2'] } })).toEqual(mismatch);
  });
  test('the report says that a VLEK signed it', async () => {
    expect(await refuse({ report: { kind: 'VLEK' } })).toEqual(mismatch);
  });
  test('a provider that the caller does not accept', async () => {
    expect(await refuse({ leaf: { kind: 'VLEK' }, options: { policy: { cspIds: ['CN=other'] } } })).toEqual(mismatch);
    expect(
      await refuse({ leaf: { kind: 'VLEK', drop: ['5'] }, options: { policy: { cspIds: ['CN=cloud'] } } }),
    ).toEqual(mismatch);
  });
});

describe('cpu_revocation', () => {
  const of = (code: string) => [['cpu_revocation', code]];
  const window = { thisUpdate: new Date('2026-01-01T00:00:00Z'), nextUpdate: new Date('2026-05-01T00:00:00Z') };
  test('no list', async () => {
    expect(await refuse({ crl: null })).toEqual(of('revocation_unavailable'));
    expect(await refuse({ crl: null, options: { without: { revocation: true } } })).toEqual([]);
  });
  test('a list that ended, one that is not yet', async () => {
    const { ark } = genoa;
    expect(await refuse({ crl: makeCrl(ark, window) })).toEqual(of('revocation_unavailable'));
    const ahead = { thisUpdate: new Date('2026-07-01T00:00:00Z'), nextUpdate: new Date('2026-08-01T00:00:00Z') };
    expect(await refuse({ crl: makeCrl(ark, ahead) })).toEqual(of('revocation_unavailable'));
  });
  test('the ASK is on it, be the list old or new', async () => {
    expect(await refuse({ crl: amdCrl(genoa, [7, 2]) })).toEqual(of('certificate_revoked'));
    expect(await refuse({ crl: makeCrl(genoa.ark, { ...window, serials: [2] }) })).toEqual(of('certificate_revoked'));
    expect(await refuse({ crl: amdCrl(genoa, [7, 3]) })).toEqual([]);
  });
  test('a list that the root did not sign', async () => {
    const forged = makeCrl(makeAmd('Genoa').ark, { ...window, nextUpdate: new Date('2027-01-01T00:00:00Z') });
    expect(await refuse({ crl: forged })).toEqual(of('revocation_invalid'));
    expect(await refuse({ crl: amdCrl(all.Turin) })).toEqual(of('revocation_invalid'));
    expect(await refuse({ crl: Buffer.from('3000', 'hex') })).toEqual(of('revocation_invalid'));
  });
  test("the caller's own list wins where it holds", async () => {
    const own = amdCrl(genoa, [2]);
    expect(await refuse({ options: { collateral: { amdCrl: own } } })).toEqual(of('certificate_revoked'));
    const old = makeCrl(genoa.ark, window);
    expect(await refuse({ options: { collateral: { amdCrl: old } } })).toEqual([]);
    expect(await refuse({ crl: null, options: { collateral: { amdCrl: amdCrl(genoa) } } })).toEqual([]);
  });
});

describe('cpu_mode', () => {
  const of = (code: string) => [['cpu_mode', code]];
  test('debugging', async () => expect(await refuse({ report: put(10, 0x0b) })).toEqual(of('debug_enabled')));
  test.each([
    ['a migration agent', put(10, 0x07)],
    ['asked for by the host', put(0x30, 4)],
    ['asked for by nobody', put(0x30, 0xff, 0xff, 0xff, 0xff)],
    ['a masked chip key', put(0x48, 2)],
    ['bit 26 of POLICY', put(11, 0x04)],
    ['bit 63 of POLICY', put(15, 0x80)],
  ])('%s', async (_, report) => expect(await refuse({ report })).toEqual(of('cpu_policy_refused')));
  test('all that POLICY may demand of the machine', async () =>
    expect(await refuse({ report: put(10, 0xf3, 0x03) })).toEqual([]));
  test('Milan, by default', async () => expect(await refuse({ amd: all.Milan })).toEqual(of('cpu_policy_refused')));
  test('Milan in version 2, where only the leaf says so', async () =>
    expect(await refuse({ amd: all.Milan, report: { version: 2 } })).toEqual(of('cpu_policy_refused')));
  // PLATFORM_INFO, then byte 2 and byte 3 of POLICY.
  test.each([
    ['an alias check', { requireAliasCheck: true }, [0x05, 0x03, 0], false],
    ['an alias check', { requireAliasCheck: true }, [0x25, 0x03, 0], true],
    ['SMT off, which is on', { requireSmtOff: true }, [0x25, 0x02, 0], false],
    ['SMT off, which POLICY allows', { requireSmtOff: true }, [0x24, 0x03, 0], false],
    ['SMT off', { requireSmtOff: true }, [0x24, 0x02, 0], true],
    ['ciphertext hiding, which is off', { requireCiphertextHiding: true }, [0x25, 0x03, 1], false],
    ['ciphertext hiding, which POLICY leaves open', { requireCiphertextHiding: true }, [0x35, 0x03, 0], false],
    ['ciphertext hiding', { requireCiphertextHiding: true }, [0x35, 0x03, 1], true],
  ] as const)('the caller demands %s: %o of %o', async (_, policy, [platform, low, high], isMet) => {
    const edit = (report: Buffer) => {
      report.set([platform], 0x40);
      report.set([low, high], 10);
    };
    expect(await refuse({ report: { edit }, options: { policy } })).toEqual(isMet ? [] : of('cpu_policy_refused'));
    expect(await refuse({ report: { edit } })).toEqual([]);
  });
  test('a chip that is not on the list of the caller', async () => {
    const chips = (...ids: readonly string[]) => ({ policy: { chips: ids } });
    const own = CHIP_ID.toString('hex');
    expect(await refuse({ options: chips() })).toEqual(of('cpu_policy_refused'));
    expect(await refuse({ options: chips('c2'.repeat(64), 'c1'.repeat(16)) })).toEqual(of('cpu_policy_refused'));
    expect(await refuse({ options: chips('c2'.repeat(64), own) })).toEqual([]);
    const turin = 'c1'.repeat(8) + '00'.repeat(56);
    expect(await refuse({ amd: all.Turin, options: chips(turin) })).toEqual([]);
  });
  test('a VLEK, which is no chip’s, is on no list of chips', async () => {
    const leaf = { kind: 'VLEK' } as const;
    const chips = (...ids: readonly string[]) => ({ policy: { chips: ids } });
    expect(await refuse({ leaf, options: chips(CHIP_ID.toString('hex'), '00'.repeat(64)) })).toEqual(
      of('cpu_policy_refused'),
    );
    const report = { edit: (bytes: Buffer) => void CHIP_ID.copy(bytes, 0x1a0) };
    expect(await refuse({ leaf, report, options: chips(CHIP_ID.toString('hex')) })).toEqual(of('cpu_policy_refused'));
    expect(await refuse({ leaf, report })).toEqual([]);
  });
  test('VMPL 0 to 3 are the guest', async () => {
    for (const vmpl of [0, 1, 2, 3]) expect(await refuse({ report: put(0x30, vmpl) })).toEqual([]);
  });
});

describe('cpu_tcb', () => {
  const old = { ...TCB, snp: 26 };
  const options = { policy: { minTcb: { Genoa: { snp: 27, ucode: 84 } } } };
  const off = { policy: { minTcb: { Genoa: {} } } };
  test.each(['current', 'committed', 'launch'] as const)('the %s TCB is too old', async (which) => {
    const report = { tcb: { [which]: old } };
    expect(await refuse({ report, options })).toEqual([['cpu_tcb', 'tcb_not_accepted']]);
    expect(await refuse({ report })).toEqual([['cpu_tcb', 'tcb_not_accepted']]);
    expect(await refuse({ report, options: off })).toEqual([]);
    expect(await refuse({ report, options: { policy: { minTcb: { Genoa: { ucode: 84 } } } } })).toEqual([]);
  });
  test('the least of Turin', async () => {
    const of = (snp: number): Parts => {
      const tcb = { ...TCB, snp };
      const four = { current: tcb, reported: tcb, committed: tcb, launch: tcb };
      return { amd: all.Turin, leaf: { tcb }, report: { tcb: four } };
    };
    expect(await refuse(of(3))).toEqual([['cpu_tcb', 'tcb_not_accepted']]);
    expect(await refuse(of(4))).toEqual([]);
    expect(await refuse({ ...of(3), options: { policy: { minTcb: { Turin: {} } } } })).toEqual([]);
  });
  test('where none is asked the check is a skip, not a pass', async () => {
    const { checks } = await judge({ options: off });
    expect(checks.find(({ name }) => name === 'cpu_tcb')).toMatchObject({ status: 'skip' });
  });
  test('the reported TCB is too old', async () => {
    const parts: Parts = { leaf: { tcb: old }, report: { tcb: { reported: old } }, options };
    expect(await refuse(parts)).toEqual([['cpu_tcb', 'tcb_not_accepted']]);
  });
  test('a part that the product has not', async () => {
    const asks = { policy: { minTcb: { Genoa: { fmc: 0 } } } };
    expect(await refuse({ options: asks })).toEqual([['cpu_tcb', 'tcb_not_accepted']]);
  });
  test('all four have it', async () => expect(await refuse({ options })).toEqual([]));
  test('a least TCB of another product says nothing', async () => {
    const other = { policy: { minTcb: { Turin: { snp: 99 } } } };
    expect(await refuse({ options: other })).toEqual([]);
  });
});

describe('cpu_binding and cpu_software', () => {
  const data = (hex: string): CpuVerifyOptions => ({ expected: { reportData: hex } });
  const report = { reportData: Buffer.concat([Buffer.alloc(32, 0xd0), Buffer.alloc(32)]) };
  test('what was signed, with zeros behind it or without', async () => {
    expect(await refuse({ report, options: data('d0'.repeat(32)) })).toEqual([]);
    expect(await refuse({ report, options: data('d0'.repeat(32) + '00'.repeat(32)) })).toEqual([]);
    for (const other of ['d0'.repeat(31), `${'d0'.repeat(31)}d1`, 'd0'.repeat(33), ''])
      expect(await refuse({ report, options: data(other) })).toEqual([['cpu_binding', 'cpu_binding_mismatch']]);
  });
});

test('options that cannot be used are the caller’s fault', async () => {
  for (const options of [
    { at: new Date('never') },
    { roots: { amd: 'none' } },
    { simulatedRoots: '' },
    { expected: { reportData: 'xyz' } },
    { expected: { reportData: '00'.repeat(65) } },
    { policy: { minTcbEvaluation: Number.NaN } },
    { policy: { chips: ['C1'.repeat(64)] } },
    { policy: { chips: ['c1'.repeat(8)] } },
    { policy: { chips: 'c1'.repeat(64) as never } },
    { collateral: { tdx: {} as never } },
  ] as const)
    await expect(appraiseCpu('{}', options)).rejects.toThrow(TypeError);
});

test('with stopAtFailure nothing is checked after the first failure', async () => {
  const { checks } = await judge({ report: put(10, 0x0b), options: { stopAtFailure: true, policy: { products: [] } } });
  expect(checks.filter(({ status }) => status === 'fail').map(({ code }) => code)).toEqual(['debug_enabled']);
  expect(checks.find(({ name }) => name === 'cpu_tcb')?.detail).toMatch(/^not run/);
});

test('a report in a Buffer is read and left as it was', () => {
  const report = makeSnpReport('Genoa', makeLeaf(makeAmd('Genoa')));
  const before = Buffer.from(report);
  // r and s, the most significant byte first.
  const numbers = [0x2a0, 0x2a0 + 72].map((at) => Uint8Array.from(before.subarray(at, at + 48)).reverse());
  expect(Buffer.from(parseSnpReport(report).signature)).toEqual(Buffer.concat(numbers));
  expect(report.equals(before)).toBe(true);
});
