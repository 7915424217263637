// Whatever is cut or changed in genuine evidence, a verification ends in a verdict with a code, and never in a pass of something
// that was not signed. FUZZ_RUNS (default 50 a case) and FUZZ_SEED set how many and which.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { CheckFailure } from '../../../verify/common/checks.ts';
import type { CpuVerifyOptions } from '../../../verify/cpu/cpu-options.ts';
import { readEventLog } from '../../../verify/cpu/evidence/event-log.ts';
import { appraiseCpu } from '../../../verify/cpu/verify-cpu.ts';
import { parseCrl } from '../../../verify/x509/crl.ts';
import { DerError } from '../../../verify/x509/der.ts';
import { vectorsPresent } from '../../support/vectors.ts';
import { bytesOf, type Case, caseOf, cases, collateralOf, type Member, memberOf, policyOf } from './cases.ts';

const numRuns = Number(process.env.FUZZ_RUNS ?? 50);
const seed = Number(process.env.FUZZ_SEED ?? 20_261_122);
const RUN = { numRuns, seed };

type Change = (bytes: Buffer) => Buffer;
const at = fc.double({ min: 0, max: 0.999_999, noNaN: true });
const place = (bytes: Buffer, where: number) => Math.floor(where * bytes.length);

const cut = at.map(
  (where): Change =>
    (bytes) =>
      bytes.subarray(0, place(bytes, where)),
);
const flip = fc.tuple(at, fc.integer({ min: 1, max: 255 })).map(
  ([where, value]): Change =>
    (bytes) => {
      const changed = Buffer.from(bytes);
      const offset = place(bytes, where);
      changed[offset] = (changed[offset] ?? 0) ^ value;
      return changed;
    },
);
const splice = fc.tuple(at, fc.uint8Array({ maxLength: 40 }), fc.nat(60)).map(
  ([where, bytes, skip]): Change =>
    (whole) =>
      Buffer.concat([whole.subarray(0, place(whole, where)), bytes, whole.subarray(place(whole, where) + skip)]),
);
const change = fc.oneof(cut, flip, flip, flip, splice);

const encoded = (text: string, make: Change) => make(Buffer.from(text, 'base64')).toString('base64');

/** Of every member that is base64, or an object of texts, the ways to spoil one. */
function spoilt(member: Member, name: string, make: Change): unknown {
  const value = member[name as keyof Member];
  if (typeof value === 'string') return { ...member, [name]: encoded(value, make) };
  return member;
}

const optionsOf = (one: Case): CpuVerifyOptions => ({
  at: new Date(one.at),
  policy: policyOf(one),
  without: { revocation: one.files.collateral === undefined },
});

/** A change that leaves the evidence as it was read: what follows a quote, the root beside a chain, white space. */
const same = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);

describe.skipIf(!vectorsPresent)('spoilt evidence', () => {
  const good = cases.filter(
    ({ kind, expect: wanted, mutate }) =>
      ['snp', 'tdx', 'az-snp', 'az-tdx'].includes(kind) && wanted.valid && mutate === undefined,
  );

  test.each(good)('$id', { timeout: 120_000 }, async (one) => {
    const member = memberOf(one);
    const options = optionsOf(one);
    const { valid, claims } = await appraiseCpu(member, options);
    expect(valid).toBe(true);
    const names = Object.keys(member).filter(
      (name) => typeof member[name as keyof Member] === 'string' && name !== 'type',
    );
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...names), change, async (name, make) => {
        const verdict = await appraiseCpu(spoilt(member, name, make), options);
        const failed = verdict.checks.filter(({ status }) => status === 'fail');
        expect(failed.every(({ code, detail }) => code !== undefined && detail.length < 400)).toBe(true);
        expect(verdict.valid).toBe(failed.length === 0);
        // What passes says what the genuine evidence says: nothing that counts was changed.
        if (verdict.valid) expect(same(verdict.claims, claims)).toBe(true);
      }),
      RUN,
    );
  });

  test.each(good.filter(({ kind }) => kind === 'snp' || kind === 'tdx'))('every byte that $id signs', async (one) => {
    const member = memberOf(one);
    expect((await appraiseCpu(member, optionsOf(one))).valid).toBe(true);
    const signed = one.kind === 'snp' ? 0x2a0 : 48 + 584;
    const whole = fc.tuple(fc.nat(signed - 1), fc.integer({ min: 1, max: 255 }));
    await fc.assert(
      fc.asyncProperty(whole, async ([offset, value]) => {
        const flipped: Change = (bytes) => {
          bytes[offset] = (bytes[offset] ?? 0) ^ value;
          return bytes;
        };
        expect((await appraiseCpu(spoilt(member, 'report', flipped), optionsOf(one))).valid).toBe(false);
      }),
      RUN,
    );
  });

  test('every text that Intel signed, and every list', { timeout: 120_000 }, async () => {
    const one = caseOf('v5-uptodate');
    const member = memberOf(one);
    const { collateral = {} } = collateralOf(one);
    expect((await appraiseCpu(member, optionsOf(one))).valid).toBe(true);
    // The chain of the PCK's list is not read, and PEM has room for text around its blocks.
    const names = Object.keys(collateral).filter((name) => !name.endsWith('chain'));
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...names), change, async (name, make) => {
        const hex = !name.startsWith('tcb_info') && !name.startsWith('qe_identity');
        const encoding = hex || name.endsWith('signature') ? 'hex' : 'utf8';
        const before = Buffer.from(collateral[name] ?? '', encoding);
        const changed = make(before);
        if (changed.equals(before)) return;
        const spoiltOne = { ...collateral, [name]: changed.toString(encoding) };
        const { valid } = await appraiseCpu({ ...member, collateral: spoiltOne }, optionsOf(one));
        expect(valid).toBe(false);
      }),
      RUN,
    );
  });

  test('an event log, a revocation list', async () => {
    const log = bytesOf(caseOf('v4-gcp-cos113-ccel'), 'log');
    const json = bytesOf(caseOf('v4-dstack-rtmr3-log'), 'log');
    const crl = Buffer.from(collateralOf(caseOf('v5-uptodate')).collateral?.pck_crl ?? '', 'hex');
    await fc.assert(
      fc.asyncProperty(change, async (make) => {
        for (const bytes of [log, json])
          await readEventLog(make(bytes)).catch((error: unknown) => expect(error).toBeInstanceOf(CheckFailure));
        try {
          parseCrl(make(crl));
        } catch (error) {
          expect(error).toBeInstanceOf(DerError);
        }
      }),
      RUN,
    );
  });
});

test('any JSON at all ends in a verdict', async () => {
  await fc.assert(
    fc.asyncProperty(fc.jsonValue({ maxDepth: 4 }), async (value) => {
      const types = ['SEV_SNP', 'TDX', 'AZURE_SEV_SNP', 'AZURE_TDX'];
      for (const type of types) {
        const whole = typeof value === 'object' && value !== null ? { ...value, type, report: value } : value;
        expect((await appraiseCpu(whole)).valid).toBe(false);
        expect((await appraiseCpu(JSON.stringify(whole))).valid).toBe(false);
        const shaped = { type, report: 'AAAA', certificates: value, collateral: value, tpm: value, quote: value };
        expect((await appraiseCpu(shaped)).valid).toBe(false);
      }
    }),
    RUN,
  );
});
