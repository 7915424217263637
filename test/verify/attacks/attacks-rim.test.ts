// Attacks by reference values: signature wrapping, other documents, other roots, entity bombs.
import { describe, expect, test } from 'vitest';
import { labelled } from '../../../demo/twin/identity.ts';
import { DEVICE_ROOT, makeRoot } from '../../../demo/twin/pki.ts';
import { answerAbout, answers, rims } from '../../../scripts/vectors/endorsements.ts';
import { resigned, withProduct } from '../../../scripts/vectors/resign.ts';
import { AT, DAY_MS } from '../../../scripts/vectors/world.ts';
import { createCollateral, type FailureCode } from '../../../verify/index.ts';
import { makeRim, RIM_IDS } from '../../twin/rim.ts';
import { makeRimSigner, RIM_ROOT, type RimSigner } from '../../twin/rim-signer.ts';
import { codeOf, good, refused, within, world } from './attacks.ts';

const signer = world.rimSigner;
const driver = rims(signer).get(RIM_IDS.driver) as string;
const vbios = rims(signer).get(RIM_IDS.vbios) as string;
const ocsp = [...answers(world).values()].map((der) => new Uint8Array(der));
const SIGNATURE = /<ds:Signature [\s\S]*<\/ds:Signature>/;
const signatureOf = (xml: string): string => SIGNATURE.exec(xml)?.[0] ?? '';
/** What an attacker wants to be believed: the value at index 22 is another. */
const evil = withProduct(makeRim('driver', signer, { measurements: new Map([[22, [labelled('evil')]]]) }), signer);
const evilBody = evil.replace(SIGNATURE, '');

const under = (xml: string | null, more: Record<string, string> = {}) => ({
  collateral: createCollateral({
    rims: new Map(
      Object.entries({ ...(xml === null ? {} : { [RIM_IDS.driver]: xml }), [RIM_IDS.vbios]: vbios, ...more }),
    ),
    ocsp,
  }),
});
const refusedRim = (code: FailureCode, xml: string | null) => refused(code, good, under(xml));
const inner = (xml: string): string => xml.replace(/^<SoftwareIdentity[^>]*>/, '').replace(/<\/SoftwareIdentity>$/, '');
const start = (xml: string): string => /^<SoftwareIdentity[^>]*>/.exec(xml)?.[0] ?? '';

describe('signature wrapping', () => {
  test('the good document passes, and the evil one says what it should', async () => {
    expect(await codeOf(good, under(driver))).toBe('valid');
    await refusedRim('measurement_mismatch', evil);
  });
  test("another document's signature does not fit", () =>
    refusedRim(
      'rim_signature_invalid',
      evilBody.replace('</SoftwareIdentity>', `${signatureOf(driver)}</SoftwareIdentity>`),
    ));
  test('the signed document inside of another is refused', async () => {
    const wrapped = evilBody.replace('</SoftwareIdentity>', `${driver}</SoftwareIdentity>`);
    await refusedRim('rim_malformed', wrapped);
    await refusedRim('rim_malformed', `<x xmlns="urn:x">${driver}${evil}</x>`);
    const inObject = signatureOf(driver).replace(
      '</ds:Signature>',
      `<ds:Object>${driver.replace(SIGNATURE, '')}</ds:Object></ds:Signature>`,
    );
    await refusedRim('rim_malformed', evilBody.replace('</SoftwareIdentity>', `${inObject}</SoftwareIdentity>`));
  });
  test('two signatures, or one within the other, are refused', async () => {
    await refusedRim('rim_malformed', driver.replace('</SoftwareIdentity>', `${signatureOf(evil)}</SoftwareIdentity>`));
    await refusedRim('rim_malformed', driver.replace('</ds:Signature>', `${signatureOf(evil)}</ds:Signature>`));
    await refusedRim('rim_malformed', driver.replace('</ns0:Payload>', `${signatureOf(evil)}</ns0:Payload>`));
  });
  test('a signature that is not a child of the root is refused', () =>
    refusedRim(
      'rim_malformed',
      `${driver.replace(SIGNATURE, '').replace('</ns0:Payload>', `${signatureOf(driver)}</ns0:Payload>`)}`,
    ));
  test('a reference to a part of the document is refused', async () => {
    const part = signatureOf(driver).replace('URI=""', 'URI="#good"');
    const both = start(evilBody) + inner(evilBody).replace('<ns0:Payload', '<ns0:Payload Id="good"') + part;
    await refusedRim('rim_malformed', `${both}</SoftwareIdentity>`);
    await refusedRim('rim_malformed', driver.replace(' URI=""', ''));
  });
  test('two references, no reference, further transforms are refused', async () => {
    const reference = /<ds:Reference [\s\S]*<\/ds:Reference>/.exec(driver)?.[0] ?? '';
    await refusedRim('rim_malformed', driver.replace(reference, reference + reference));
    await refusedRim('rim_malformed', driver.replace(reference, ''));
    const xslt = '<ds:Transform Algorithm="http://www.w3.org/TR/1999/REC-xslt-19991116"/>';
    await refusedRim('rim_malformed', driver.replace('</ds:Transforms>', `${xslt}</ds:Transforms>`));
  });
  test('another algorithm anywhere is refused', async () => {
    for (const algorithm of new Set(
      [...signatureOf(driver).matchAll(/Algorithm="([^"]*)"/g)].map(([, uri = '']) => uri),
    ))
      for (const other of [
        'http://www.w3.org/2000/09/xmldsig#hmac-sha1',
        'http://www.w3.org/2001/10/xml-exc-c14n#',
        '',
      ])
        await refusedRim('rim_signature_invalid', driver.replace(`Algorithm="${algorithm}"`, `Algorithm="${other}"`));
  });
  test('values that stand in a second Payload, a comment or outside of it are not read', async () => {
    const payload = /<ns0:Payload[\s\S]*<\/ns0:Payload>/.exec(evil)?.[0] ?? '';
    await refusedRim('rim_malformed', driver.replace('<ns0:Payload', `${payload}<ns0:Payload`));
    expect(
      await codeOf(good, under(driver.replace('<ns0:Payload', `<!-- ${payload.slice(0, 4000)} --><ns0:Payload`))),
    ).toBe('valid');
    await refusedRim(
      'rim_signature_invalid',
      driver.replace('</SoftwareIdentity>', '<x xmlns="urn:x"/></SoftwareIdentity>'),
    );
  });
  test('a comment inside of a value does not cut it', () =>
    refusedRim('rim_malformed', driver.replace(/ns2:Hash0="([0-9a-f]{8})/, 'ns2:Hash0="$1<!-- -->')));
});

describe('another document', () => {
  test('that matches by values but is kept under another id is not found', async () => {
    await refused('rim_unavailable', good, under(null, { [`${RIM_IDS.driver}-X`]: driver }));
  });
  test('that matches by values but is for another version is refused', async () => {
    await refusedRim('rim_mismatch', withProduct(makeRim('driver', signer, { version: '000.00.01' }), signer));
    await refusedRim(
      'rim_mismatch',
      withProduct(
        makeRim('driver', signer, { version: '' }).replace('colloquialVersion=""', 'colloquialVersion="0"'),
        signer,
      ),
    );
  });
  test('that matches by values but is for another chip is refused', () =>
    refusedRim(
      'rim_mismatch',
      resigned(driver, signer, (xml) => xml.replace('product="GH100"', 'product="GB100"')),
    ));
  test("the VBIOS RIM in the driver RIM's place is refused", () => refusedRim('rim_mismatch', vbios));
  test('without an active measurement shows nothing, and is refused', () =>
    refusedRim('measurement_mismatch', withProduct(makeRim('driver', signer, { active: new Set() }), signer)));
  test('that allows what was not measured is no match for a zero value', () =>
    refusedRim(
      'measurement_mismatch',
      withProduct(makeRim('driver', signer, { measurements: new Map([[22, [Buffer.alloc(48)]]]) }), signer),
    ));
  test('that is a patch, a supplement or a corpus is refused', async () => {
    for (const flag of ['patch', 'supplemental', 'corpus'])
      await refusedRim(
        'rim_malformed',
        resigned(driver, signer, (xml) => xml.replace(`${flag}="false"`, `${flag}="true"`)),
      );
  });
});

describe('another signer', () => {
  const signed = (by: RimSigner) => withProduct(makeRim('driver', by), by);
  test('under a root of the same name is refused', () =>
    refusedRim('rim_chain_invalid', signed(makeRimSigner(makeRoot(RIM_ROOT)))));
  test("under the device's root is refused", () =>
    refusedRim('rim_chain_invalid', signed(makeRimSigner(world.issuers.root))));
  test('under a root of its own making is refused', () =>
    refusedRim('rim_chain_invalid', signed(makeRimSigner(makeRoot(DEVICE_ROOT)))));
  test('expired, or valid from tomorrow, is refused', async () => {
    const [yesterday, tomorrow] = [new Date(AT.getTime() - DAY_MS), new Date(AT.getTime() + DAY_MS)];
    await refusedRim('rim_signer_expired', signed(makeRimSigner(signer.root, { notAfter: yesterday })));
    await refusedRim('rim_signer_expired', signed(makeRimSigner(signer.root, { notBefore: tomorrow })));
  });
  test('that is an authority itself is refused', async () => {
    const chain = [signer.intermediate.certificate, signer.ca.certificate, signer.root.certificate];
    await refusedRim(
      'rim_signature_invalid',
      signed({ ...signer, signer: signer.intermediate, chain: chain as never }),
    );
  });
  test('whose chain lacks an authority is refused', async () => {
    const chain = [signer.signer.certificate, signer.ca.certificate, signer.root.certificate];
    await refusedRim('rim_chain_invalid', signed({ ...signer, chain: chain as never }));
  });
  test('whose key is not the one in its certificate is refused', () =>
    refusedRim('rim_signature_invalid', signed({ ...signer, signer: { ...signer.signer, key: world.a.key } })));
  // A certificate with an extended key usage may be used for that alone (RFC 5280 §4.2.1.12).
  test("that is the authority's revocation responder is refused", async () => {
    const responder = world.responder('rim-intermediate', signer.intermediate);
    const chain = [responder.certificate, ...signer.chain.slice(1)];
    const about = new Uint8Array(answerAbout(world, 'rim-signer', [responder.certificate, signer.intermediate]));
    const by = signed({ ...signer, signer: responder, chain: chain as never });
    const collateral = createCollateral({
      rims: new Map([
        [RIM_IDS.driver, by],
        [RIM_IDS.vbios, vbios],
      ]),
      ocsp: [...ocsp, about],
    });
    expect(await codeOf(good, { collateral })).not.toBe('valid');
  });
});

describe('XML that is more than XML', () => {
  const DTDS = [
    '<!DOCTYPE SoftwareIdentity>',
    '<!DOCTYPE SoftwareIdentity SYSTEM "file:///etc/passwd">',
    '<!DOCTYPE SoftwareIdentity [<!ENTITY x SYSTEM "http://example.invalid/">]>',
    '<!DOCTYPE SoftwareIdentity [<!ATTLIST SoftwareIdentity Id ID #IMPLIED>]>',
    `<!DOCTYPE x [<!ENTITY a "${'a'.repeat(64)}">${'bcdefghij'
      .split('')
      .map((name, i) => `<!ENTITY ${name} "${`&${'abcdefghi'[i]};`.repeat(10)}">`)
      .join('')}]>`,
  ];
  test.each(DTDS)('a document type is refused: %s', (dtd) => refusedRim('rim_malformed', dtd + driver));
  test('an entity bomb costs nothing', () =>
    within(200, 20, () =>
      refusedRim('rim_malformed', `${DTDS[4]}${driver.replace('</ns0:Payload>', '&j;</ns0:Payload>')}`),
    ));
  test('an entity, a CDATA section, a processing instruction are refused', async () => {
    for (const piece of ['&a;', '&#0;', '&#xFFFF;', '<![CDATA[x]]>', '<?php x?>', '\u0000'])
      await refusedRim('rim_malformed', driver.replace('</ns0:Payload>', `${piece}</ns0:Payload>`));
  });
  test('depth, breadth and size have limits that cost little to reach', async () => {
    const deep = '<x>'.repeat(300_000);
    const broad = `<x ${Array.from({ length: 100_000 }, (_, i) => `a${i}=""`).join(' ')}>`;
    for (const huge of [deep, broad, '<x/>'.repeat(200_000), 'x'.repeat(1_100_000), '&amp;'.repeat(209_000)])
      await within(1000, 200, () => refusedRim('rim_malformed', start(driver) + huge));
    await within(2000, 250, () => refusedRim('rim_malformed', 'x'.repeat(100_000_000)));
  });
});
