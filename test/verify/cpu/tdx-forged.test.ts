// Evidence of TDX that is right except for one thing fails by that thing's check alone: everything but the collateral.
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { certify, type Holder, makeCrl, newKeys, pem } from '../../../demo/twin/authority.ts';
import { FROM, makeCollateral, makePck, makeQuote, type PckSpec, type QuoteSpec, TO } from '../../../demo/twin/tdx.ts';
import type { CpuReference, CpuVerifyOptions, TdxCollateral } from '../../../verify/cpu/cpu-options.ts';
import { parseTdxQuote } from '../../../verify/cpu/evidence/tdx-quote.ts';
import { appraiseCpu } from '../../../verify/cpu/verify-cpu.ts';
import { makeCcel } from './ccel.ts';
import { AT, intel, judge, other, put, ROOTS, refuse, xor } from './tdx-bench.ts';
import { failures } from './verdict.ts';

describe('right evidence passes', () => {
  test.each([
    [4, 2],
    [5, 2],
    [5, 3],
  ] as const)('version %i, body %i', async (version, body) => {
    expect(await refuse({ quote: { version, body } })).toEqual([]);
  });
  test('whatever stands behind the quote', async () => {
    for (const tail of [Buffer.alloc(0), Buffer.alloc(3000), Buffer.alloc(50, 0xff)])
      expect(await refuse({ quote: { tail } })).toEqual([]);
  });
  test('without authentication data, and without the root in the quote', async () => {
    const pck = makePck(intel);
    const quote = makeQuote(intel, pck, { authData: Buffer.alloc(0), chain: [pck, intel.authority] });
    const member = { type: 'TDX', report: quote.toString('base64'), collateral: makeCollateral(intel) };
    expect(failures(await appraiseCpu(member, { at: AT, roots: ROOTS }))).toEqual([]);
  });
  test('under a simulated root that the caller names, and says so', async () => {
    const { valid, claims } = await judge({ options: { roots: {}, simulatedRoots: pem(intel.root) } });
    expect([valid, claims?.simulated]).toEqual([true, true]);
  });
});

describe('cpu_form', () => {
  const bad = [['cpu_form', 'cpu_malformed']];
  const unsupported = [['cpu_form', 'cpu_unsupported']];
  const header = (at: number, ...bytes: readonly number[]) => ({
    editHeader: (head: Buffer) => {
      head.set(bytes, at);
    },
  });
  test.each([
    ['version 3', header(0, 3)],
    ['version 6', header(0, 6)],
    ['P-384', header(2, 3)],
    ['SGX', header(4, 0)],
    ["another enclave's vendor", header(12, 0)],
    ['another kind of certification data', { certificationType: 1 }],
  ])('%s', async (_, quote) => expect(await refuse({ quote })).toEqual(unsupported));
  test('reserved bytes of the header', async () => expect(await refuse({ quote: header(8, 1) })).toEqual(bad));
  test.each([1, 4, 0x1234])('a body of type %i', async (type) => {
    expect(await refuse({ tamper: (quote) => void quote.writeUInt16LE(type, 48) as undefined })).toEqual(unsupported);
  });
  test('a body of another size than its type has', async () => {
    expect(await refuse({ tamper: (quote) => void quote.writeUInt32LE(584, 50) as undefined })).toEqual(bad);
  });
  const SIGNATURE_DATA = 48 + 6 + 648;
  test('lengths that lead out of the quote, or leave bytes', async () => {
    for (const at of [SIGNATURE_DATA, SIGNATURE_DATA + 4 + 128 + 2])
      for (const length of [0, 1, 400, 0xffffffff]) {
        const tamper = (quote: Buffer) => void quote.writeUInt32LE(length, at) as undefined;
        expect(await refuse({ tamper })).toEqual(bad);
      }
  });
  test('cut anywhere', async () => {
    for (const at of [0, 1, 47, 48, 53, 100, SIGNATURE_DATA + 2, SIGNATURE_DATA + 200, 1400])
      expect(await refuse({ quote: { tail: Buffer.alloc(0) }, tamper: (quote) => quote.subarray(0, at) })).toEqual(bad);
  });
  test('certificates that are none', async () => {
    expect(await refuse({ quote: { chain: [] } })).toEqual(bad);
  });
  test('collateral that lacks a member, or has one more', async () => {
    const { pck_crl: _, ...less } = makeCollateral(intel);
    expect(await refuse({ edit: () => less as TdxCollateral })).toEqual(bad);
    expect(await refuse({ edit: (all) => ({ ...all, more: '' }) as TdxCollateral })).toEqual(bad);
    expect(await refuse({ edit: (all) => ({ ...all, tcb_info: 7 }) as never })).toEqual(bad);
    expect(await refuse({ edit: (all) => ({ ...all, tcb_info: ' '.repeat(600_000) }) })).toEqual(bad);
  });
  test("collateral may have dcap-qvl's tenth member, a text or null", async () => {
    const chain = pem(makePck(intel), intel.authority, intel.root);
    for (const pck_certificate_chain of [null, chain, '']) {
      const edit = (all: TdxCollateral) => ({ ...all, pck_certificate_chain });
      expect(await refuse({ edit })).toEqual([]);
      const own = { collateral: { tdx: edit(makeCollateral(intel)) } };
      expect(await refuse({ options: own })).toEqual([]);
    }
    for (const pck_certificate_chain of [7, [], ' '.repeat(600_000)]) {
      const edit = (all: TdxCollateral) => ({ ...all, pck_certificate_chain }) as TdxCollateral;
      expect(await refuse({ edit })).toEqual(bad);
      const own = { collateral: { tdx: edit(makeCollateral(intel)) } };
      await expect(refuse({ options: own })).rejects.toThrow(TypeError);
    }
  });
});

describe('cpu_signature', () => {
  const wrong = [['cpu_signature', 'cpu_signature_invalid']];
  test.each([20, 40, 60, 200, 48 + 6 + 520])('a bit of byte %i of what is signed', async (at) => {
    // The header's vendor stands at 12 to 27, which is looked at before.
    const offset = at === 20 ? 30 : at;
    expect(await refuse({ tamper: xor(offset) })).toEqual(wrong);
  });
  test.each([0, 70, 134, 140, 134 + 400])('a bit of byte %i of the signature data', async (at) => {
    expect(await refuse({ tamper: xor(48 + 6 + 648 + 4 + at) })).toEqual(wrong);
  });
  test('signed by a key that the enclave does not hold', async () => {
    expect(await refuse({ quote: { signWith: newKeys('P-256').key } })).toEqual(wrong);
  });
  test("the enclave's report is signed by another PCK", async () => {
    expect(await refuse({ quote: { signQeWith: newKeys('P-256').key } })).toEqual(wrong);
  });
  test("the enclave's report is about another key, or says more than the key", async () => {
    expect(await refuse({ quote: { editQe: (qe) => void qe.fill(0, 320, 352) } })).toEqual(wrong);
    expect(await refuse({ quote: { editQe: (qe) => void qe.fill(1, 352, 353) } })).toEqual(wrong);
  });
});

describe('cpu_chain', () => {
  const of = (code: string) => [['cpu_chain', code]];
  const under = (chain: (pck: Holder) => readonly Holder[], spec?: PckSpec): Promise<unknown> => {
    const pck = makePck(intel, spec);
    const quote = makeQuote(intel, pck, { chain: chain(pck) });
    const member = { type: 'TDX', report: quote.toString('base64'), collateral: makeCollateral(intel) };
    return appraiseCpu(member, { at: AT, roots: ROOTS }).then(failures);
  };
  test('under the pinned root it is nobody', async () => {
    expect(await refuse({ options: { roots: {} } })).toEqual(of('simulated_root_refused'));
    expect(
      await refuse({
        options: { roots: {}, simulatedRoots: pem(certify({ cn: 'X', ca: true }, newKeys('P-256'), null)) },
      }),
    ).toEqual(of('untrusted_root'));
  });
  test('a root of the same name and another key', async () => {
    expect(await refuse({ options: { roots: { intel: pem(other.root) } } })).toEqual(of('simulated_root_refused'));
    const both = { roots: { intel: pem(other.root) }, simulatedRoots: pem(other.root) };
    expect(await refuse({ options: both })).toEqual(of('untrusted_root'));
  });
  test('expired, and not valid yet', async () => {
    expect(await refuse({ pck: { notAfter: new Date('2026-05-31T00:00:00Z') } })).toEqual(of('certificate_expired'));
    expect(await refuse({ pck: { notBefore: new Date('2026-06-02T00:00:00Z') } })).toEqual(of('certificate_expired'));
  });
  test("another root's authority, and a PCK that it did not sign", async () => {
    expect(await under((pck) => [pck, other.authority, intel.root], { issuer: other.authority })).toEqual(
      of('chain_invalid'),
    );
    expect(await under((pck) => [pck, intel.authority, intel.root], { issuer: other.authority })).toEqual(
      of('chain_invalid'),
    );
  });
  test('a PCK that the root itself signed', async () => {
    expect(await under((pck) => [pck, intel.root], { issuer: intel.root })).toEqual(of('chain_invalid'));
  });
  test('an authority for something else', async () => {
    const authority = certify({ cn: 'Intel SGX Something CA', ca: true }, newKeys('P-256'), intel.root);
    expect(await under((pck) => [pck, authority, intel.root], { issuer: authority })).toEqual(of('chain_invalid'));
  });
  test('a leaf of another name, and one without the extension', async () => {
    expect(await refuse({ pck: { cn: 'Intel SGX TCB Signing' } })).toEqual(of('chain_invalid'));
    expect(await refuse({ pck: { bare: true } })).toEqual(of('chain_invalid'));
    expect(await refuse({ pck: { fmspc: '90c0' } })).toEqual(of('chain_invalid'));
    expect(await refuse({ pck: { cpuSvn: [1, 2] } })).toEqual(of('chain_invalid'));
  });
});

describe('cpu_identity', () => {
  const mismatch = [['cpu_identity', 'cpu_identity_mismatch']];
  const qe = (at: number, value: number): QuoteSpec => ({ editQe: (report) => void report.fill(value, at, at + 1) });
  test.each([
    ['MISCSELECT', qe(16, 1)],
    ['debug attribute', qe(48, 0x13)],
    ['another attribute', qe(55, 1)],
    ['MRSIGNER', qe(128, 1)],
    ['ISVPRODID', qe(256, 3)],
  ])("the quoting enclave's %s", async (_, quote) => expect(await refuse({ quote })).toEqual(mismatch));
  test('what the mask leaves out does not count', async () => {
    expect(await refuse({ quote: qe(48, 0x15) })).toEqual([]);
    expect(await refuse({ quote: qe(56, 0xe7) })).toEqual([]);
  });
  test('a TDX module that somebody else signed, or in debug', async () => {
    expect(await refuse({ quote: put(64, 1) })).toEqual(mismatch);
    expect(await refuse({ quote: put(112, 1) })).toEqual(mismatch);
    expect(await refuse({ quote: { ...put(64, 1), teeTcbSvn: [5, 0, 3] } })).toEqual(mismatch);
  });
});

describe('cpu_revocation', () => {
  const of = (code: string) => [['cpu_revocation', code]];
  const window = { thisUpdate: FROM, nextUpdate: TO };
  test('the PCK, its authority, and who signed the collateral', async () => {
    expect(await refuse({ collateral: { pckRevoked: [1, 12] } })).toEqual(of('certificate_revoked'));
    expect(await refuse({ collateral: { rootRevoked: [10] } })).toEqual(of('certificate_revoked'));
    expect(await refuse({ collateral: { rootRevoked: [11] } })).toEqual(of('certificate_revoked'));
    expect(await refuse({ collateral: { pckRevoked: [10, 11], rootRevoked: [12] } })).toEqual([]);
  });
  test('lists that another authority signed', async () => {
    const swapped = [
      { pckCrl: makeCrl(other.authority, window) },
      { pckCrl: makeCrl(intel.root, { ...window, issuer: intel.authority }) },
      { pckCrl: makeCrl(intel.root, window) },
      { rootCrl: makeCrl(other.root, window) },
      { rootCrl: makeCrl(intel.authority, window) },
    ];
    for (const collateral of swapped) expect(await refuse({ collateral })).toEqual(of('revocation_invalid'));
  });
  test('an old list still revokes, and is not enough to say good', async () => {
    const old = { thisUpdate: new Date('2026-04-01T00:00:00Z'), nextUpdate: new Date('2026-05-01T00:00:00Z') };
    expect(await refuse({ collateral: { pckCrl: makeCrl(intel.authority, { ...old, serials: [12] }) } })).toEqual([
      ...of('certificate_revoked'),
      ['cpu_tcb', 'collateral_expired'],
    ]);
    expect(await refuse({ collateral: { pckCrl: makeCrl(intel.authority, old) } })).toEqual([
      ['cpu_tcb', 'collateral_expired'],
    ]);
  });
  test('where the caller asks for no such check', async () => {
    expect(await refuse({ collateral: { pckRevoked: [12] }, options: { without: { revocation: true } } })).toEqual([]);
  });
  test('more certificates than der.ts reads at once', async () => {
    const serials = Array.from({ length: 3000 }, () => 1);
    expect(await refuse({ collateral: { pckRevoked: serials } })).toEqual([]);
    expect(await refuse({ collateral: { pckRevoked: [...serials, 12] } })).toEqual(of('certificate_revoked'));
  });
});

/** 8 bytes that have these bits and, of TDATTRIBUTES, SEPT_VE_DISABLE. */
function bitsOf(bits: bigint, more = 1n << 28n): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, bits | more, true);
  return bytes;
}

describe('cpu_mode', () => {
  const of = (code: string) => [['cpu_mode', code]];
  test.each([0x01, 0x02, 0x10, 0x20, 0x40, 0x80])('debugging or profiling, bit %i', async (bit) =>
    expect(await refuse({ quote: put(120, bit) })).toEqual(of('debug_enabled')),
  );
  test.each([
    ['migratable', put(123, 0x30)],
    ['without SEPT_VE_DISABLE', put(123, 0)],
    ['with a service guest', put(600 + 47, 1)],
  ])('%s', async (_, quote) => expect(await refuse({ quote })).toEqual(of('cpu_policy_refused')));
  test.each([8, 15, 17, 26, 32, 61])('bit %i of TDATTRIBUTES, which is reserved', async (bit) =>
    expect(await refuse({ quote: put(120, ...bitsOf(1n << BigInt(bit))) })).toEqual(of('cpu_policy_refused')),
  );
  test.each([3, 4, 10, 13, 16, 20, 63])('bit %i of XFAM, which is reserved', async (bit) =>
    expect(await refuse({ quote: put(128, ...bitsOf(1n << BigInt(bit), 0n)) })).toEqual(of('cpu_policy_refused')),
  );
  test('a platform that is not on the list of the caller', async () => {
    const chips = (...ids: readonly string[]) => ({ policy: { chips: ids } });
    const own = '99'.repeat(16);
    expect(await refuse({ options: chips('98'.repeat(16)) })).toEqual(of('cpu_policy_refused'));
    expect(await refuse({ options: chips('98'.repeat(16), own) })).toEqual([]);
    expect((await judge({})).claims).toMatchObject({ ppid: own, chip_id: null });
  });
  test.each(['requireAliasCheck', 'requireSmtOff', 'requireCiphertextHiding'])(
    '%s, which no quote can meet',
    async (name) => {
      expect(await refuse({ options: { policy: { [name]: true } } })).toEqual(of('cpu_policy_refused'));
      expect(await refuse({ options: { policy: { [name]: false } } })).toEqual([]);
    },
  );
  test('protection keys and performance counters are its own affair', async () => {
    expect(await refuse({ quote: put(123, 0x50) })).toEqual([]);
    expect(await refuse({ quote: put(127, 0x80) })).toEqual([]);
    expect(await refuse({ quote: put(120, 0, 0, 0x01, 0xd8, 0, 0, 0, 0xc0, 0xe7, 0xdb, 0x0e) })).toEqual([]);
  });
});

const ZERO = '00'.repeat(48);
const MRTD = parseTdxQuote(new Uint8Array(makeQuote(intel, makePck(intel)))).body.mrTd;

describe('cpu_binding and cpu_software', () => {
  test('what was signed', async () => {
    const options = (reportData: string) => ({ expected: { reportData } });
    expect(await refuse({ options: options('d0'.repeat(32)) })).toEqual([]);
    expect(await refuse({ options: options('d1'.repeat(32)) })).toEqual([['cpu_binding', 'cpu_binding_mismatch']]);
  });
  const digests = ['a', 'b'].map((text) => createHash('sha384').update(text).digest());
  const [a = Buffer.alloc(48), b = Buffer.alloc(48)] = digests;
  const extend = (...all: readonly Buffer[]) =>
    all.reduce((register, one) => createHash('sha384').update(register).update(one).digest(), Buffer.alloc(48));
  const rtmrs = [extend(a, b), Buffer.alloc(48), extend(b), Buffer.alloc(48)];
  const log = makeCcel([
    [1, 0x80000001, a],
    [2, 3, b],
    [1, 0x80000002, b],
    [3, 0x80000002, b],
  ]);
  const mismatch = [['cpu_software', 'event_log_mismatch']];
  test('a log that replays, filled up or not', async () => {
    expect(await refuse({ quote: { rtmrs }, log })).toEqual([]);
    expect(await refuse({ quote: { rtmrs }, log: Buffer.concat([log, Buffer.alloc(64, 0xff)]) })).toEqual([]);
  });
  test('a log that does not', async () => {
    expect(await refuse({ log })).toEqual(mismatch);
    const swapped = makeCcel([
      [1, 1, b],
      [1, 1, a],
      [3, 1, b],
    ]);
    for (const other of [swapped, makeCcel([[0, 1, a]]), makeCcel([[5, 1, a]]), log.subarray(0, -1), Buffer.alloc(4)])
      expect(await refuse({ quote: { rtmrs }, log: other })).toEqual(mismatch);
  });
  test('a log without events of RTMR3 leaves it open, and says so', async () => {
    const extended = [...rtmrs.slice(0, 3), extend(a)];
    const { valid, checks } = await judge({ quote: { rtmrs: extended }, log });
    const { detail } = checks.find(({ name }) => name === 'cpu_software') ?? {};
    expect([valid, detail]).toEqual([true, '3 events replay to RTMR0 to 2; RTMR3 is not explained by the log']);
    const unmeasured = makeCcel([
      [1, 0x80000001, a],
      [1, 0x80000002, b],
      [3, 0x80000002, b],
      [4, 3, b],
    ]);
    expect(await refuse({ quote: { rtmrs: extended }, log: unmeasured })).toEqual([]);
    // One event of RTMR3, and the log must replay to it.
    const partly = makeCcel([
      [1, 0x80000001, a],
      [1, 0x80000002, b],
      [3, 0x80000002, b],
      [4, 0x80000002, b],
    ]);
    expect(await refuse({ quote: { rtmrs: [...rtmrs.slice(0, 3), extend(b)] }, log: partly })).toEqual([]);
    expect(await refuse({ quote: { rtmrs: extended }, log: partly })).toEqual(mismatch);
    expect(await refuse({ quote: { rtmrs: [extend(b), ...extended.slice(1)] }, log })).toEqual(mismatch);
  });
  test('what RTMR3 is compared with, where the log does not explain it', async () => {
    const extended = [...rtmrs.slice(0, 3), extend(a)];
    const judged = (more: object) => {
      const [rtmr0, rtmr1, rtmr2] = rtmrs.map((one) => [one.toString('hex')]);
      const guest = { type: 'TDX', mrtd: [Buffer.from(MRTD).toString('hex')], rtmr0, rtmr1, rtmr2, ...more };
      const reference = { version: 1, cpu: [guest], launch: ['c1'.repeat(32)] } as unknown as CpuReference;
      return judge({ quote: { rtmrs: extended }, log, options: { reference } });
    };
    const open = await judged({ launch_in: 'mrconfigid' });
    expect([open.valid, open.claims?.software?.uncompared]).toEqual([
      true,
      'what extended RTMR3 while the guest ran is not explained by the event log',
    ]);
    const pinned = await judged({ rtmr3: [extend(a).toString('hex')], launch_in: 'mrconfigid' });
    expect([pinned.valid, pinned.claims?.software?.uncompared]).toEqual([true, null]);
    expect(failures(await judged({ rtmr3: [extend(b).toString('hex')], launch_in: 'mrconfigid' }))).toEqual([
      ['cpu_measurement', 'measurement_mismatch'],
    ]);
    expect(failures(await judged({ launch_in: 'rtmr3' }))).toEqual([['cpu_software', 'software_mismatch']]);
  });
  test('the launch digest in MRCONFIGID, and in an event of RTMR3', async () => {
    const launch = (sha256: string, where: 'mrconfigid' | 'rtmr3'): CpuVerifyOptions => {
      // A register's own value is another in each test below.
      const rtmrs = { rtmr0: null, rtmr1: [ZERO, '02'.repeat(48)], rtmr2: [ZERO, '03'.repeat(48)] };
      const rtmr3 = where === 'rtmr3' ? {} : { rtmr3: ['04'.repeat(48)] };
      const guest = {
        type: 'TDX',
        mrtd: [Buffer.from(MRTD).toString('hex')],
        ...rtmrs,
        ...rtmr3,
        launch_in: where,
      } as const;
      return { reference: { version: 1, cpu: [guest], launch: [sha256] } };
    };
    const wrong = [['cpu_software', 'software_mismatch']];
    expect(await refuse({ options: launch('c1'.repeat(32), 'mrconfigid') })).toEqual([]);
    expect(await refuse({ options: launch('c2'.repeat(32), 'mrconfigid') })).toEqual(wrong);
    expect(await refuse({ options: launch('c1'.repeat(32), 'mrconfigid'), quote: put(184 + 40, 1) })).toEqual(wrong);
    const payload = 'c3'.repeat(32);
    const type = 0x08000001;
    const digest = createHash('sha384')
      .update(Buffer.of(1, 0, 0, 8))
      .update(':countersign-launch:')
      .update(Buffer.from(payload, 'hex'))
      .digest();
    const event = {
      imr: 3,
      event_type: type,
      digest: digest.toString('hex'),
      event: 'countersign-launch',
      event_payload: payload,
    };
    const zero = Buffer.alloc(48);
    const judged = (events: readonly object[], sha256: string, extended = [digest]) =>
      refuse({
        quote: { rtmrs: [zero, zero, zero, extend(...extended)] },
        log: Buffer.from(JSON.stringify(events)),
        options: launch(sha256, 'rtmr3'),
      });
    expect(await judged([event], payload)).toEqual([]);
    expect(await judged([event], 'c4'.repeat(32))).toEqual(wrong);
    expect(await judged([{ ...event, event_payload: 'c4'.repeat(32) }], 'c4'.repeat(32))).toEqual(mismatch);
    expect(await judged([event, event], payload, [digest, digest])).toEqual(wrong);
    // Only the first event of the register counts.
    const another = { ...event, event: 'another', event_payload: '', digest: '' };
    const ofAnother = createHash('sha384')
      .update(Buffer.of(1, 0, 0, 8))
      .update(':another:')
      .digest();
    expect(await judged([another, event], payload, [ofAnother, digest])).toEqual(wrong);
    expect(await judged([event, another], payload, [digest, ofAnother])).toEqual([]);
    // dstack leaves digests empty, which verifiers compute.
    expect(await judged([{ ...event, digest: '' }], payload)).toEqual([]);
    expect(await judged([{ ...event, digest: '', event_payload: 'c4'.repeat(32) }], payload)).toEqual(mismatch);
    expect(await judged([{ ...event, imr: 2, digest: '' }], payload)).toEqual(mismatch);
    // EV_NO_ACTION extends nothing, and names nothing.
    expect(await judged([{ ...event, event_type: 3, digest: '' }, event], payload)).toEqual([]);
    expect(await judged([{ ...event, event_type: 3, digest: '' }], payload, [])).toEqual(wrong);
    for (const bad of [null, 7, {}, { ...event, imr: 4 }, { ...event, digest: 'zz'.repeat(48) }])
      expect(await judged([bad as object], payload)).toEqual(mismatch);
    // One digest of two readings: the name may not reach into the payload.
    const colon = `3a${'c3'.repeat(31)}`;
    const hidden = createHash('sha384')
      .update(Buffer.of(1, 0, 0, 8))
      .update(':countersign-launch:')
      .update(Buffer.from(colon, 'hex'))
      .digest();
    const other = {
      ...event,
      digest: hidden.toString('hex'),
      event: 'countersign-launch:',
      event_payload: colon.slice(2),
    };
    expect(await judged([other, event], payload, [hidden, digest])).toEqual(mismatch);
    // No log says what RTMR3 is.
    expect(await refuse({ options: launch(payload, 'rtmr3') })).toEqual([['cpu_measurement', 'measurement_mismatch']]);
  });
});
