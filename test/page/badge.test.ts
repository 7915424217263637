// The badge that other sites show says "Proven" of an answer that a GPU signed, and of nothing else.
import { expect, it } from 'vitest';
import { readStored } from '../../page/proof/subject.ts';
import { onBadge } from '../../page/proof/verdict.ts';
import { appraiseAttestation, appraiseEvidence, type VerifyOptions } from '../../verify/index.ts';
import { appraiseSession } from '../../verify/session.ts';
import { AT, attest, simulatedRoot } from '../verify/maker.ts';
import { makeSession, processorRoots } from '../verify/session-maker.ts';
import { byASwitch } from '../verify/switch-maker.ts';

const options: VerifyOptions = {
  at: AT,
  roots: { device: simulatedRoot },
  without: { referenceValues: true, revocation: true },
};
const read = (value: unknown) => readStored(Buffer.from(JSON.stringify(value)), 'linked');

it('of an answer that a GPU signed', async () => {
  const made = await attest();
  const report = await appraiseAttestation(made, options);
  expect(onBadge(report, read(made), AT)).toMatchObject({ verdict: 'valid', badge: 'Proven: a GPU signed this' });
  const simulated = await appraiseAttestation(made, { ...options, roots: {}, simulatedRoot });
  expect(onBadge(simulated, read(made), AT).verdict).toBe('simulated');
});

it('and of nothing else: a switch, evidence by itself, a session', async () => {
  const made = await byASwitch(await attest());
  const evidence = made.evidence.map(({ report, ...one }) => ({ ...one, report, nonce: made.nonce }));
  const { cpu, gpu } = await makeSession();
  const session = { ...cpu, gpu };
  for (const [report, value] of [
    [await appraiseAttestation(made, options), made],
    [await appraiseEvidence(evidence, options), evidence],
    [await appraiseSession(session, { ...options, cpu: { roots: { amd: processorRoots } } }), session],
  ] as const) {
    expect(report.valid).toBe(true);
    const { verdict, badge } = onBadge(report, read(value), AT);
    expect([verdict, badge]).toEqual(['foreign', expect.not.stringContaining('Proven')]);
  }
});
