// Revocation: answers that hold, and one thing wrong in each of the others.

import { describe, expect, test } from 'vitest';
import * as der from '../../../demo/twin/certificate.ts';
import { extension } from '../../../demo/twin/certificate.ts';
import { DEVICE_ROOT, makeDevice, makeIssuers, makeRoot } from '../../../demo/twin/pki.ts';
import { CheckFailure } from '../../../verify/common/checks.ts';
import { createCollateral } from '../../../verify/gpu/collateral.ts';
import { deviceRoots } from '../../../verify/gpu/nvidia.ts';
import { type Certificate, parseCertificate, parsePem } from '../../../verify/x509/certificate.ts';
import { readOne, sequence } from '../../../verify/x509/der.ts';
import { makeOcspRequest, parseOcspResponse } from '../../../verify/x509/ocsp.ts';
import { verifyOcsp } from '../../../verify/x509/revocation.ts';
import { vectorsPresent } from '../../support/vectors.ts';
import { makeOcspResponse, makeResponder, nonceExtension, type OcspAnswer, ocspNoCheck } from '../../twin/ocsp.ts';
import { CLOCKS, chainText, ocspResponses } from '../gpu/genuine.ts';

const AT = new Date('2025-06-01T12:00:00Z');
const HOUR_MS = 3_600_000;
const issuers = makeIssuers(makeRoot(DEVICE_ROOT));
const device = makeDevice(issuers);
const { provisioner, identity } = issuers;
const responder = makeResponder(provisioner);
const brom = parseCertificate(device.brom.certificate.der);
const ica = parseCertificate(provisioner.certificate.der);

const answer = (change: Partial<OcspAnswer> = {}): Uint8Array =>
  new Uint8Array(
    makeOcspResponse({
      certificate: device.brom.certificate,
      issuer: provisioner.certificate,
      responder,
      status: 'good',
      thisUpdate: new Date(AT.getTime() - HOUR_MS),
      nextUpdate: new Date(AT.getTime() + HOUR_MS),
      ...change,
    }),
  );

const verdict = (
  response: Uint8Array,
  options: { at?: Date; nonce?: Uint8Array } = {},
  certificate: Certificate = brom,
) =>
  verifyOcsp(response, certificate, ica, { at: AT, ...options }).then(
    () => 'good',
    (error: unknown) => (error instanceof CheckFailure ? error.code : error),
  );

const nonce = new Uint8Array(32).fill(7);

describe('an OCSP answer', () => {
  test.each([
    ['by a delegated responder', answer(), {}, 'good'],
    ['by the issuer itself', answer({ responder: provisioner }), {}, 'good'],
    ['whose certID is made with SHA-1', answer({ hash: 'sha1' }), {}, 'good'],
    ['with the nonce that was sent', answer({ nonce }), { nonce }, 'good'],
    ['with a nonce that nobody sent', answer({ nonce }), {}, 'good'],
    ['without the nonce that was sent', answer(), { nonce }, 'revocation_invalid'],
    ['with another nonce', answer({ nonce: new Uint8Array(32) }), { nonce }, 'revocation_invalid'],
    ['about another certificate', answer({ certificate: identity.certificate }), {}, 'revocation_invalid'],
    ['about another issuer', answer({ issuer: identity.certificate }), {}, 'revocation_invalid'],
    [
      'by a responder without the right to',
      answer({ responder: makeResponder(provisioner, { signsOcsp: false }) }),
      {},
      'revocation_invalid',
    ],
    ["by another issuer's responder", answer({ responder: makeResponder(identity) }), {}, 'revocation_invalid'],
    [
      'by a responder whose certificate has expired',
      answer({ responder: makeResponder(provisioner, { notAfter: new Date(AT.getTime() - 1000) }) }),
      {},
      'revocation_invalid',
    ],
    ['with a broken signature', answer({ breakSignature: true }), {}, 'revocation_invalid'],
    ['before its time', answer(), { at: new Date(AT.getTime() - 2 * HOUR_MS) }, 'revocation_invalid'],
    ['after its time', answer(), { at: new Date(AT.getTime() + 2 * HOUR_MS) }, 'revocation_invalid'],
    [
      'without an end, a day later',
      answer({ nextUpdate: undefined as never }),
      { at: new Date(AT.getTime() + 22 * HOUR_MS) },
      'good',
    ],
    [
      'without an end, two days later',
      answer({ nextUpdate: undefined as never }),
      { at: new Date(AT.getTime() + 48 * HOUR_MS) },
      'revocation_invalid',
    ],
    ['that says revoked', answer({ status: { revokedAt: AT, reason: 1 } }), {}, 'certificate_revoked'],
    ['that says on hold', answer({ status: { revokedAt: AT, reason: 6 } }), {}, 'certificate_revoked'],
    ['that does not know the certificate', answer({ status: 'unknown' }), {}, 'revocation_unavailable'],
    ['that is a refusal', Uint8Array.of(0x30, 3, 0x0a, 1, 3), {}, 'revocation_unavailable'],
    ['that is none', Uint8Array.of(1, 2, 3), {}, 'revocation_invalid'],
  ])('%s', async (_name, response, options, expected) => {
    expect(await verdict(response, options)).toBe(expected);
    // From what was kept, the same.
    expect(await verdict(response, options)).toBe(expected);
  });

  test('says since when and why', async () => {
    await expect(verifyOcsp(answer({ status: { revokedAt: AT, reason: 1 } }), brom, ica, { at: AT })).rejects.toThrow(
      '2025-06-01T12:00:00Z: key compromise',
    );
    await expect(verifyOcsp(answer({ status: { revokedAt: AT, reason: 6 } }), brom, ica, { at: AT })).rejects.toThrow(
      'on hold',
    );
  });
});

describe('several answers in one response', () => {
  const good = {
    certificate: device.brom.certificate,
    issuer: provisioner.certificate,
    status: 'good',
    thisUpdate: new Date(AT.getTime() - HOUR_MS),
    nextUpdate: new Date(AT.getTime() + HOUR_MS),
  } as const;
  const revoked = { ...good, status: { revokedAt: AT, reason: 1 } } as const;
  const elsewhere = { ...revoked, certificate: identity.certificate, issuer: issuers.root.certificate };
  const both = (first: Partial<OcspAnswer>, ...also: NonNullable<OcspAnswer['also']>) => answer({ ...first, also });

  test.each([
    ['that say the same of one certificate', both(good, good), 'good'],
    ['by two hashes', both(good, { ...good, hash: 'sha1' }), 'good'],
    ['of which one is about another certificate', both(good, elsewhere), 'good'],
    ['that say good and then revoked', both(good, revoked), 'revocation_invalid'],
    ['that say revoked and then good', both(revoked, good), 'revocation_invalid'],
    ['that say good and, by another hash, revoked', both(good, { ...revoked, hash: 'sha1' }), 'revocation_invalid'],
    ['that say good and unknown', both(good, { ...good, status: 'unknown' }), 'revocation_invalid'],
    ['that say good for two times', both(good, { ...good, nextUpdate: AT }), 'revocation_invalid'],
    ['that say revoked twice', both(revoked, revoked), 'certificate_revoked'],
    ['the second by a hash that is not supported', both(good, { ...revoked, hash: 'sha3-384' }), 'revocation_invalid'],
    ['the only one by a hash that is not supported', answer({ hash: 'sha3-384' }), 'revocation_invalid'],
  ])('%s', async (_name, response, expected) => {
    expect(await verdict(response)).toBe(expected);
    expect(await verdict(response)).toBe(expected);
  });

  test('are chosen by the newest of them, and what is not good comes before what is, whatever came first', async () => {
    const query = { certificate: brom, issuer: ica, at: AT };
    const older = new Date(AT.getTime() - 2 * HOUR_MS);
    const pairs: readonly (readonly [Uint8Array, Uint8Array])[] = [
      [both({ ...good, thisUpdate: older }, { ...revoked, thisUpdate: AT }), answer()],
      [answer(revoked), answer()],
    ];
    for (const [bad, fine] of pairs)
      for (const ocsp of [
        [bad, fine],
        [fine, bad],
      ])
        expect((await createCollateral({ ocsp }).ocsp(query))?.response).toBe(bad);
  });
});

describe('what is not understood in an answer', () => {
  const unknown = (critical: boolean) => extension('1.2.3.4.5', der.nil(), critical);
  const update = der.context(0, der.generalizedTime(new Date(AT.getTime() + HOUR_MS)));
  const extensions = der.context(1, der.sequence(unknown(false)));
  const by = (options: Parameters<typeof makeResponder>[1]) =>
    answer({ responder: makeResponder(provisioner, options) });
  const criticalNonce = extension('1.3.6.1.5.5.7.48.1.2', der.octetString(nonce), true);

  test.each([
    ['an extension of the response', answer({ responseExtensions: [unknown(false)] }), 'good'],
    ['a critical extension of the response', answer({ responseExtensions: [unknown(true)] }), 'revocation_invalid'],
    ['a critical nonce', answer({ responseExtensions: [criticalNonce] }), 'good'],
    ['two nonces', answer({ nonce, responseExtensions: [nonceExtension(nonce)] }), 'revocation_invalid'],
    ['an extension of one answer', answer({ singleExtensions: [unknown(false)] }), 'good'],
    ['a critical extension of one answer', answer({ singleExtensions: [unknown(true)] }), 'revocation_invalid'],
    [
      'an extension of one answer twice',
      answer({ singleExtensions: [unknown(false), unknown(false)] }),
      'revocation_invalid',
    ],
    ['extensions before the next update', answer({ tail: [extensions, update] }), 'revocation_invalid'],
    ['extensions twice', answer({ tail: [update, extensions, extensions] }), 'revocation_invalid'],
    ['a next update twice', answer({ tail: [update, update] }), 'revocation_invalid'],
    ['extensions that are none', answer({ tail: [update, der.context(1, der.nil())] }), 'revocation_invalid'],
    ['an extension of the responder', by({ extensions: [unknown(false)] }), 'good'],
    ['a critical extension of the responder', by({ extensions: [unknown(true)] }), 'revocation_invalid'],
    ["the responder's extension twice", by({ extensions: [ocspNoCheck()] }), 'revocation_invalid'],
    ["another issuer's key, by its identifier", by({ authorityKeyId: Buffer.alloc(20, 1) }), 'revocation_invalid'],
  ])('%s', async (_name, response, expected) => {
    expect(await verdict(response)).toBe(expected);
  });
});

describe('the request', () => {
  test('names the certificate with SHA-384, and carries its nonce', async () => {
    const [tbs] = sequence(readOne(await makeOcspRequest(brom, ica, nonce)));
    const [list, extensions] = sequence(tbs);
    const [request] = sequence(list);
    const [certId] = sequence(request);
    const [single] = parseOcspResponse(answer()).responses;
    expect(Buffer.from(certId?.whole ?? []).toString('hex')).toContain(
      Buffer.from(single?.certId.issuerKeyHash ?? []).toString('hex'),
    );
    expect(Buffer.from(extensions?.content ?? []).toString('hex')).toContain(Buffer.from(nonce).toString('hex'));
  });
});

describe('collateral', () => {
  const query = { certificate: brom, issuer: ica, at: AT };

  test('offline has what was handed in and nothing else', async () => {
    const collateral = createCollateral({ ocsp: [Uint8Array.of(1), answer()], rims: new Map([['A', 'a']]) });
    expect((await collateral.ocsp(query))?.response).toEqual(answerOf(await collateral.ocsp(query)));
    expect(await collateral.ocsp({ ...query, certificate: ica })).toBe(null);
    expect(await collateral.rim({ id: 'A', version: '', chip: '' })).toBe('a');
    expect(await collateral.rim({ id: 'B', version: '', chip: '' })).toBe(null);
  });

  test('finds RIMs without a name by version and chip, and chooses the answer that holds', async () => {
    const rim = (version: string, product: string) => `<x colloquialVersion="${version}" product="${product}"/>`;
    const old = answer({
      thisUpdate: new Date(AT.getTime() - 9 * HOUR_MS),
      nextUpdate: new Date(AT.getTime() - 8 * HOUR_MS),
    });
    const next = answer({
      thisUpdate: new Date(AT.getTime() + 8 * HOUR_MS),
      nextUpdate: new Date(AT.getTime() + 9 * HOUR_MS),
    });
    const now = answer();
    const rims = [rim('1', 'GH100'), rim('2', 'GH100'), rim('2', 'GB100')];
    const collateral = createCollateral({ rims, ocsp: [old, now, next] });
    expect(await collateral.rim({ id: 'x', version: '2', chip: 'GB100' })).toBe(rims[2]);
    expect(await collateral.rim({ id: 'x', version: '3', chip: 'GB100' })).toBe(null);
    expect((await collateral.ocsp(query))?.response).toBe(now);
  });

  test('fetches with a nonce, keeps what is good until its end, and asks once', async () => {
    const asked: string[] = [];
    const fetch = async (url: string | URL | Request, init?: RequestInit) => {
      asked.push(String(url));
      if (init?.method !== 'POST') return Response.json({ rim: Buffer.from('<rim/>').toString('base64') });
      return new Response(Buffer.from(answer({ nonce })));
    };
    const collateral = createCollateral({
      fetch: fetch as typeof globalThis.fetch,
      randomBytes: () => nonce,
      rim_url: 'https://rim.test/',
      ocsp_url: 'https://ocsp.test',
    });
    const first = await collateral.ocsp(query);
    expect(first?.nonce).toEqual(nonce);
    expect(await verdict(first?.response ?? new Uint8Array(), { nonce })).toBe('good');
    expect((await collateral.ocsp(query))?.nonce).toBeUndefined();
    await collateral.ocsp({ ...query, at: new Date(AT.getTime() + 2 * HOUR_MS) });
    for (let i = 0; i < 2; i++)
      expect(new TextDecoder().decode((await collateral.rim({ id: 'A B', version: '', chip: '' })) as Uint8Array)).toBe(
        '<rim/>',
      );
    expect(asked).toEqual(['https://ocsp.test', 'https://ocsp.test', 'https://rim.test/v1/rim/A%20B']);
  });

  test('an answer that is too large, or an error of the service, is not had', async () => {
    const answering = (response: () => Response) =>
      createCollateral({ fetch: (async () => response()) as typeof globalThis.fetch });
    await expect(answering(() => new Response(new Uint8Array(100_000))).ocsp(query)).rejects.toThrow(RangeError);
    await expect(answering(() => new Response('no', { status: 500 })).ocsp(query)).rejects.toThrow('answered 500');
    expect(await answering(() => new Response('no', { status: 404 })).rim({ id: 'A', version: '', chip: '' })).toBe(
      null,
    );
    await expect(answering(() => Response.json({ other: 1 })).rim({ id: 'A', version: '', chip: '' })).rejects.toThrow(
      TypeError,
    );
  });
});

const answerOf = (got: { readonly response: Uint8Array } | null) => got?.response;

describe.skipIf(!vectorsPresent)('the genuine answers', () => {
  test('about the device are good in their day, by responders that NVIDIA delegated', async () => {
    const collateral = createCollateral({ ocsp: ocspResponses() });
    const path = [...parsePem(chainText('h100-550.90.07')).slice(1, -1), ...deviceRoots()];
    for (const [i, certificate] of path.slice(0, -1).entries()) {
      const issuer = path[i + 1] as Certificate;
      const got = await collateral.ocsp({ certificate, issuer, at: CLOCKS.ocsp });
      await verifyOcsp(got?.response ?? new Uint8Array(), certificate, issuer, { at: CLOCKS.ocsp });
      const wrong = verifyOcsp(got?.response ?? new Uint8Array(), certificate, issuer, { at: CLOCKS.rimOcsp });
      await expect(wrong).rejects.toThrow(CheckFailure);
    }
  });
});
