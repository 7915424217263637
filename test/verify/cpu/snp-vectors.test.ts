// Every genuine report of SEV-SNP has the verdict that the vectors expect, by the check that they name.
import { describe, expect, test } from 'vitest';
import { appraiseCpu, verifyCpu } from '../../../verify/cpu/verify-cpu.ts';
import { vectorsPresent } from '../../support/vectors.ts';
import { caseOf, memberOf, OUTDATED, ofKind, optionsOf } from './cases.ts';
import { expectVerdict, failures } from './verdict.ts';

describe.skipIf(!vectorsPresent)('genuine evidence of SEV-SNP', () => {
  test.each(ofKind('snp'))('$id', async (one) => {
    expectVerdict(await appraiseCpu(JSON.stringify(memberOf(one)), optionsOf(one)), one);
  });

  test.each(OUTDATED)('$id by default: $now, as it has $reason', async ({ id, before, now }) => {
    const one = caseOf(id);
    const options = optionsOf(one);
    const { policy: _, ...byDefault } = options;
    expect(failures(await appraiseCpu(memberOf(one), byDefault)).map((check) => check.join(' '))).toEqual([now]);
    const { valid } = await appraiseCpu(memberOf(one), options);
    expect(valid ? 'valid' : '').toBe(before);
  });

  test('an answer without the revocation list is refused unless the caller asks for no such check', async () => {
    const one = caseOf('genoa-v3-caci');
    const { checks } = await appraiseCpu(memberOf(one), { at: new Date(one.at) });
    expect(checks.find(({ status }) => status === 'fail')).toMatchObject({
      name: 'cpu_revocation',
      code: 'revocation_unavailable',
    });
  });

  test('the report says what the vectors decoded', async () => {
    const one = caseOf('turin-v5-caci');
    const options = { at: new Date(one.at), without: { revocation: true } };
    const { claims } = await verifyCpu(memberOf(one), options);
    expect(claims).toMatchObject({ product: 'Turin', tcb: { fmc: 1, bl: 1, tee: 1, snp: 4, ucode: 81 }, vmpl: 0 });
    expect(claims?.chip_id).toMatch(/^59790fb1c39f35c1(00){56}$/);
  });
});
