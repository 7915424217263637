// cpu_verify.py, written from docs/attestation.md and the standards that it names, beside our own verifier: the same verdicts on genuine CPU evidence.
import { afterAll, describe, expect, it } from 'vitest';
import { makeSnpReport, snpMember } from '../../sidecar/cpu/simulated/snp.ts';
import { appraiseCpu, type CpuReference, type CpuVerifyOptions } from '../../verify/cpu.ts';
import { vectorsPresent } from '../support/vectors.ts';
import { bytesOf, type Case, caseOf, cases, lastDigest, memberOf, optionsOf } from '../verify/cpu/cases.ts';
import { AT } from '../verify/maker.ts';
import { amd, snpLeaf } from '../verify/session-maker.ts';
import { base64, listOf, ownOf, sha256 } from './cpu-guests.ts';
import { GENUINE, UNUSABLE, USABLE } from './cpu-references.ts';
import { ask, both, runPython, verdict } from './cpu-verifiers.ts';
import { python, SKIPPED } from './python.ts';

/** A case as text and options, and the one check that its verdict is of, where it is of one alone. */
function questionOf(one: Case): readonly [text: string, options: CpuVerifyOptions & { at: Date }, only?: string] {
  const options = { ...optionsOf(one), at: new Date(one.at) };
  if (one.kind === 'software') {
    const launch = sha256(bytesOf(one, 'policy')).toString('hex');
    const measurement = [bytesOf(one, 'report').toString('hex', 0x90, 0xc0)];
    const reference = listOf([{ type: 'SEV_SNP', measurement, launch_in: 'host_data' }], launch);
    return [JSON.stringify(memberOf(caseOf('milan-v2-aci'))), { ...options, reference }, 'cpu_software'];
  }
  if (one.kind === 'eventlog') {
    const log = bytesOf(one, 'log');
    if (one.mutate?.some(({ note }) => note !== undefined))
      log.writeUInt8(log.readUInt8(lastDigest(log)) ^ 1, lastDigest(log));
    const member = { type: 'TDX', report: base64(bytesOf(one, 'quote')), event_log: base64(log) };
    return [JSON.stringify(member), options, 'cpu_software'];
  }
  return [JSON.stringify(memberOf(one)), options];
}

describe.skipIf(python === null)(`cpu_verify.py${SKIPPED}`, () => {
  runPython();

  describe.skipIf(!vectorsPresent)('genuine evidence, under the roots of AMD and Intel', () => {
    const table: string[][] = [['vector', 'expected', 'ours', 'Python']];
    afterAll(() => {
      const widths = [0, 1, 2, 3].map((column) => Math.max(...table.map((row) => row[column]?.length ?? 0)));
      console.log(table.map((row) => row.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join(' | ')).join('\n'));
    });

    it('is of 55 cases', () => expect(cases).toHaveLength(55));

    it.each(cases)('$id', async (one) => {
      const [text, options, only] = questionOf(one);
      const { valid, failed_check, code, checks, tcb_status } = one.expect;
      const expected = valid ? 'valid' : `${failed_check} ${code}`;
      const { ours, python, status } = await both(text, options);
      table.push([one.id, expected, verdict(ours, only), verdict(python, only)]);
      expect([verdict(ours, only), verdict(python, only)]).toEqual([expected, expected]);
      expect(python).toEqual(ours);
      expect(status[1]).toBe(status[0]);
      if (tcb_status !== undefined) expect(status[1]).toBe(tcb_status);
      for (const [name, right] of Object.entries(checks ?? {}))
        expect(python).toContainEqual([name, name === 'cpu_software' ? expect.anything() : right, null]);
    });

    /** Every `step`th byte of what a member holds is another one. */
    const CHANGED = [
      ['turin-v5-caci', 'report', 23],
      ['milan-v2', 'certificates', 31],
      ['v4-uptodate', 'report', 47],
      ['v5-uptodate', 'report', 61],
      ['snp-milan-v1', 'report', 29],
      ['tdx-v2', 'quote', 97],
    ] as const;
    it.each(CHANGED)(
      '%s: refuses by the same checks, whichever byte of its %s is another one',
      async (id, name, step) => {
        const one = caseOf(id);
        const member = memberOf(one);
        const bytes = Buffer.from(member[name] ?? '', 'base64');
        let refused = 0;
        for (let at = 0; at < bytes.length; at += step) {
          const changed = Uint8Array.from(bytes);
          changed[at] = (changed[at] ?? 0) ^ 1;
          const text = JSON.stringify({ ...member, [name]: base64(changed) });
          const { ours, python } = await both(text, { ...optionsOf(one), at: new Date(one.at) });
          expect([at, python]).toEqual([at, ours]);
          if (verdict(ours) !== 'valid') refused++;
        }
        expect(refused).toBeGreaterThan(20);
      },
    );
  });

  describe.skipIf(!vectorsPresent)('genuine guests among reference values', () => {
    /** What both say of a guest and of its launch file. */
    async function said(text: string, options: CpuVerifyOptions & { at: Date }): Promise<string> {
      const { ours, python } = await both(text, options);
      expect(python).toEqual(ours);
      const of = (name: string) => ours.find(([one]) => one === name);
      return ['cpu_measurement', 'cpu_software'].map((name) => of(name)?.[2] ?? of(name)?.[1]).join(', ');
    }
    for (const [id, name, expected, guests, label] of GENUINE)
      it(`${id}: ${name}: ${expected}`, async () => {
        const [text, options] = questionOf(caseOf(id));
        const [own, digest] = ownOf(JSON.parse(text));
        const reference = listOf([guests(own)].flat(), 'ef'.repeat(32), label ?? digest);
        expect(await said(text, { ...options, reference })).toBe(expected);
      });

    const TAMPERED = ['cd'.repeat(32)];
    it.each([
      ['a log', 'skip, pass', '[]', []],
      ['another log', 'skip, event_log_mismatch', '[{}]', []],
      ['a log, behind no vTPM', 'skip, skip', '[]', TAMPERED],
      ['another log, behind no vTPM', 'skip, skip', '[{}]', TAMPERED],
    ] as const)('tdx-v2, and no list: %s: %s', async (_, expected, log, pcrs) => {
      const [text, options] = questionOf(caseOf('tdx-v2'));
      const member = { ...JSON.parse(text), event_log: base64(Buffer.from(log)) };
      member.tpm.pcrs.splice(0, pcrs.length, ...pcrs);
      expect(await said(JSON.stringify(member), options)).toBe(expected);
    });
  });

  describe('a list of reference values', () => {
    const member = JSON.stringify(snpMember(makeSnpReport('Genoa', snpLeaf), [snpLeaf, amd.ask]));
    const rows = [...USABLE.map((row) => [true, ...row] as const), ...UNUSABLE.map((row) => [false, ...row] as const)];
    it.each(rows)('can be used, %s: %s', async (can, _, given) => {
      const text = typeof given === 'string' ? given : JSON.stringify(given);
      for (const reference of given === text ? [text] : [text, given]) {
        const options = { at: AT, reference: reference as CpuReference };
        const ours = await appraiseCpu(member, options).catch((error) => error);
        const { unusable } = await ask({ member, at: AT.toISOString(), reference });
        const refused = [ours instanceof TypeError, unusable !== undefined];
        expect(refused).toEqual(can ? [false, false] : [true, true]);
      }
    });
  });
});
