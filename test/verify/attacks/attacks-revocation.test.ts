// Attacks by revocation answers: about others, by others, of another time, for another question.
import { describe, expect, test } from 'vitest';
import {
  answerAbout,
  answers,
  type Change,
  NEXT_UPDATE,
  rims,
  subjects,
} from '../../../scripts/vectors/endorsements.ts';
import { AT, DAY_MS } from '../../../scripts/vectors/world.ts';
import { type Collateral, createCollateral, type FailureCode } from '../../../verify/index.ts';
import { parseCertificate } from '../../../verify/x509/certificate.ts';
import { verifyOcsp } from '../../../verify/x509/revocation.ts';
import { makeResponder } from '../../twin/ocsp.ts';
import { codeOf, good, refused, world } from './attacks.ts';

const { issuers } = world;
const known = createCollateral({ rims: rims(world.rimSigner) });
const bytes = (der: Uint8Array) => new Uint8Array(der);
const about = subjects(world, world.a);
const all = () => answers(world);
const under = (answered: Map<string, Buffer>) => ({
  collateral: createCollateral({ rims: rims(world.rimSigner), ocsp: [...answered.values()].map(bytes) }),
});
const changed = (name: string, change: Change) =>
  all().set(name, answerAbout(world, name, about[name] as never, change));
const refusedAnswer = (code: FailureCode, name: string, change: Change) =>
  refused(code, good, under(changed(name, change)));
const names = Object.keys(about);

describe('an answer', () => {
  test('is needed about every certificate but leaf and roots', async () => {
    expect(await codeOf(good, under(all()))).toBe('valid');
    for (const name of names) {
      const without = all();
      without.delete(name);
      await refused('revocation_unavailable', good, under(without));
    }
  });
  test('about another certificate answers nothing, wherever it comes from', async () => {
    const wrong = bytes(answerAbout(world, 'identity', about.identity as never));
    const collateral: Collateral = { ...known, ocsp: async () => ({ response: wrong }) };
    await refused('revocation_invalid', good, { collateral });
  });
  test('about the same serial number under another issuer answers nothing', async () => {
    const [certificate] = about.brom as (typeof about)[string];
    await refused(
      'revocation_unavailable',
      good,
      under(all().set('brom', answerAbout(world, 'brom', [certificate, world.strangers.issuers.provisioner]))),
    );
  });
  test('revoked, or on hold, is believed for every certificate', async () => {
    for (const name of names)
      for (const reason of [1, 6])
        await refusedAnswer('certificate_revoked', name, {
          status: { revokedAt: new Date(AT.getTime() - DAY_MS), reason },
        });
    await refusedAnswer('certificate_revoked', 'brom', { status: { revokedAt: new Date(AT.getTime() + DAY_MS) } });
  });
  test('unknown is not good', () => refusedAnswer('revocation_unavailable', 'brom', { status: 'unknown' }));
  test('stale, or from tomorrow, is refused', async () => {
    const at = (days: number) => new Date(AT.getTime() + days * DAY_MS);
    await refusedAnswer('revocation_invalid', 'brom', { thisUpdate: at(-2), nextUpdate: at(-1) });
    await refusedAnswer('revocation_invalid', 'brom', { thisUpdate: at(1), nextUpdate: at(2) });
    await refusedAnswer('revocation_invalid', 'brom', { thisUpdate: at(1), nextUpdate: at(-1) });
  });
  test('that promises nothing holds for a day', async () => {
    const { nextUpdate: _, ...one } = { nextUpdate: NEXT_UPDATE, thisUpdate: new Date(AT.getTime() - 2 * DAY_MS) };
    await refusedAnswer('revocation_invalid', 'brom', { ...one, nextUpdate: undefined as never });
  });
  test('with a broken signature is refused', () =>
    refusedAnswer('revocation_invalid', 'brom', { breakSignature: true }));
  test('signed by whom the issuer has not delegated is refused', async () => {
    const { provisioner } = issuers;
    const strangers = [
      makeResponder(provisioner, { signsOcsp: false }),
      makeResponder(provisioner, { notAfter: new Date(AT.getTime() - DAY_MS) }),
      makeResponder(issuers.identity),
      makeResponder(world.strangers.issuers.provisioner),
      { key: world.a.key, certificate: world.a.chain[0] },
      { ...makeResponder(provisioner), key: world.b.key },
    ];
    for (const responder of strangers) await refusedAnswer('revocation_invalid', 'brom', { responder });
  });
  test('signed by the issuer itself is believed', async () => {
    expect(await codeOf(good, under(changed('brom', { responder: issuers.provisioner })))).toBe('valid');
  });
  test('revoked counts although a good one, older or stale, lies beside it', async () => {
    const revoked = {
      status: { revokedAt: new Date(AT.getTime() - 1000), reason: 1 },
      thisUpdate: new Date(AT.getTime() - 1000),
    };
    const both = all().set('brom, now', answerAbout(world, 'brom', about.brom as never, revoked));
    await refused('certificate_revoked', good, under(both));
  });
});

describe('the nonce of the request', () => {
  const [certificate, issuer] = about.brom as (typeof about)[string];
  const [subject, above] = [parseCertificate(certificate.der), parseCertificate(issuer.certificate.der)];
  const nonce = new Uint8Array(32).fill(7);
  const answered = (given?: Uint8Array) =>
    verifyOcsp(
      bytes(answerAbout(world, 'brom', [certificate, issuer], given === undefined ? {} : { nonce: given })),
      subject,
      above,
      { at: AT, nonce },
    );

  test('must come back', async () => {
    await expect(answered(nonce)).resolves.toMatchObject({ nextUpdate: NEXT_UPDATE });
    for (const given of [undefined, new Uint8Array(32), nonce.subarray(1), new Uint8Array(0)])
      await expect(answered(given)).rejects.toMatchObject({ code: 'revocation_invalid' });
  });
  test('must come back from anybody who was asked now, and a response that was kept does not do', async () => {
    const collateral: Collateral = {
      ...known,
      ocsp: async ({ certificate: asked }) => {
        const [, response] =
          [...all()].find(
            ([name]) => parseCertificate(about[name]?.[0].der ?? new Uint8Array()).serial === asked.serial,
          ) ?? [];
        return { response: bytes(response ?? new Uint8Array()), nonce };
      },
    };
    await refused('revocation_invalid', good, { collateral });
  });
});
