// Every genuine quote of TDX, event log and Azure sample has the verdict that the vectors expect, by the check that they name.
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { readCpuMember } from '../../../verify/cpu/cpu-member.ts';
import { checkEventLog, readEventLog, runtimePayload } from '../../../verify/cpu/evidence/event-log.ts';
import { parseTdxQuote } from '../../../verify/cpu/evidence/tdx-quote.ts';
import { appraiseCpu } from '../../../verify/cpu/verify-cpu.ts';
import { vectorsPresent } from '../../support/vectors.ts';
import { bytesOf, caseOf, memberOf, ofKind, optionsOf } from './cases.ts';
import { expectVerdict } from './verdict.ts';

describe.skipIf(!vectorsPresent)('genuine evidence', () => {
  test.each(ofKind('tdx'))('TDX: $id', async (one) => {
    expectVerdict(await appraiseCpu(JSON.stringify(memberOf(one)), optionsOf(one)), one);
  });

  test.each(ofKind('az-snp', 'az-tdx'))('Azure: $id', async (one) => {
    expectVerdict(await appraiseCpu(JSON.stringify(memberOf(one)), optionsOf(one)), one);
  });

  test.each(ofKind('eventlog'))('event log: $id', async (one) => {
    const { rtmrs } = parseTdxQuote(bytesOf(one, 'quote')).body;
    const log = bytesOf(one, 'log');
    if (one.mutate !== undefined) {
      const last = (await readEventLog(log)).at(-1)?.digest as Uint8Array;
      const at = log.lastIndexOf(last);
      log[at] = (log[at] ?? 0) ^ 1;
    }
    const checked = checkEventLog(rtmrs, log);
    if (one.expect.valid) await checked;
    else await expect(checked).rejects.toMatchObject({ code: one.expect.code });
  });

  test.each(ofKind('software'))('launch digest: $id', async (one) => {
    const sha256 = createHash('sha256').update(bytesOf(one, 'policy')).digest('hex');
    const snp = caseOf('milan-v2-aci');
    const options = optionsOf(snp);
    const { claims } = await appraiseCpu(memberOf(snp), options);
    const guest = { type: 'SEV_SNP', measurement: [claims?.measurement ?? ''], launch_in: 'host_data' } as const;
    const reference = { version: 1, cpu: [guest], launch: [sha256] } as const;
    expectVerdict(await appraiseCpu(memberOf(snp), { ...options, reference }), one);
  });

  test('an event of RTMR3 is found by its name and payload once the log replays', async () => {
    const one = caseOf('v4-dstack-rtmr3-log');
    const log = bytesOf(one, 'log');
    const { events } = (await checkEventLog(parseTdxQuote(bytesOf(one, 'quote')).body.rtmrs, log)).value;
    const hash = events.find(({ name }) => name === 'compose-hash')?.data as Uint8Array;
    expect(hash).toHaveLength(32);
    const ofGuest = events.filter(({ rtmr }) => rtmr === 3);
    const first = ofGuest.findIndex(({ name }) => name === 'compose-hash');
    expect(first).toBeGreaterThan(0);
    // Only the first event counts: a later one may be of what was launched.
    expect(runtimePayload(events, 'compose-hash')).toBeUndefined();
    expect(runtimePayload(ofGuest.slice(first), 'compose-hash')).toEqual(hash);
    expect(runtimePayload([...events, ...events], 'compose-hash')).toBeUndefined();
    expect(runtimePayload(events, 'countersign-launch')).toBeUndefined();
  });

  test("the platform's id is that of its PCK certificate", async () => {
    const one = caseOf('v4-uptodate');
    const { claims } = await appraiseCpu(memberOf(one), optionsOf(one));
    expect(claims?.ppid).toBe('811dca2a26b952e85bb6448b097ba4fd');
    const options = { ...optionsOf(one), policy: { chips: ['811dca2a26b952e85bb6448b097ba4fd'] } };
    expect((await appraiseCpu(memberOf(one), options)).valid).toBe(true);
  });

  test('a quote that carries its log has both checked at once', async () => {
    const one = caseOf('v4-gcp-cos113');
    const log = bytesOf(caseOf('v4-gcp-cos113-ccel'), 'log').toString('base64');
    const { valid, checks } = await appraiseCpu({ ...memberOf(one), event_log: log }, optionsOf(one));
    expect(valid).toBe(true);
    expect(checks.find(({ name }) => name === 'cpu_software')).toMatchObject({ status: 'pass' });
  });

  test('the texts that Intel signed are kept as they are', () => {
    const member = memberOf(caseOf('v4-uptodate'));
    const { collateral } = readCpuMember(JSON.stringify(member));
    expect(collateral?.tcb_info).toMatch(/^\{"id":"TDX"/);
    expect(collateral).toEqual(member.collateral);
  });
});
