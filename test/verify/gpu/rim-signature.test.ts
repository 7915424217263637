// Enveloped signatures of our own making: whole, wrapped, and of forms that are not accepted however well they are signed.
import { generateKeyPairSync } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import type { FailureCode } from '../../../verify/common/checks.ts';
import { verifyRim } from '../../../verify/gpu/rim/rim.ts';
import { C14N, DS, document, type Faults, hashOf, newSigner, resource, type Signer, signed } from './rim-maker.ts';

const at = new Date('2025-09-01T00:00:00Z');
let signer: Signer;
beforeAll(() => {
  signer = newSigner();
});

const verify = (xml: string, by = signer) => verifyRim(xml, { roots: by.roots, at });
const made = (body = document(), faults: Faults = {}) => signed(body, signer, faults);
async function refused(xml: string, code: FailureCode, message?: RegExp): Promise<void> {
  await expect(verify(xml)).rejects.toMatchObject({ name: 'CheckFailure', code });
  if (message !== undefined) await expect(verify(xml)).rejects.toThrow(message);
}
const SIGNATURE = /<ds:Signature .*<\/ds:Signature>/s;
const signatureOf = (xml: string): string => SIGNATURE.exec(xml)?.[0] ?? '';

describe('a signed RIM', () => {
  it('is read from what was signed', async () => {
    const rim = await verify(made(document({ payload: resource(0) + resource(5, { active: 'False' }) })));
    expect(rim.measurements.get(0)).toEqual({ active: true, values: [hashOf(0)], name: 'Measurement_0', size: 48 });
    expect(rim.measurements.get(5)?.active).toBe(false);
  });

  it('is of a driver, a VBIOS or a switch by its version and its product', async () => {
    const kinds = [
      ['550.90.07', 'GH100', 'driver'],
      ['96.00.9F.00.01', 'GH100', 'vbios'],
      ['96.10.55.00.01', 'LS10', 'switch-bios'],
      ['96.10.55.00.01', 'NVSwitch', 'switch-bios'],
    ] as const;
    for (const [version, product, kind] of kinds) {
      const meta = `<ns0:Meta colloquialVersion="${version}" product="${product}"/>`;
      await expect(verify(made(document({ meta })))).resolves.toMatchObject({ kind, version, product, edition: '' });
    }
  });

  it('may be written in other ways that have the same canonical form', async () => {
    const xml = made(document({ payload: resource(0) }));
    for (const same of [
      `<?xml version="1.0" encoding="UTF-8"?>\n<!-- before -->${xml}\n`,
      xml.replaceAll('\n', '\r\n'),
      xml.replace('<ns0:Payload>', '<ns0:Payload  ><!-- inside -->'),
      xml.replace(/index="0" active="True"/, 'active="True"\n\tindex="&#48;"'),
      xml.replace('xmlns:ns0="http', "xmlns:ns0='http").replace('schema.xsd" xmlns:ns2', "schema.xsd' xmlns:ns2"),
    ])
      await expect(verify(same)).resolves.toMatchObject({ version: '1.2.3' });
  });

  it('is read with the comments inside its values left out, as they were when it was signed', async () => {
    const xml = made()
      .replace(/(<ds:DigestValue>.{10})/, '$1<!-- x -->')
      .replace(/(<ds:X509Certificate>.{10})/, '$1<!---->');
    await expect(verify(xml)).resolves.toBeDefined();
  });
});

describe('a wrapped signature', () => {
  it('does not cover a payload beside, above or below the signed one', async () => {
    const xml = made();
    const evil = `<ns0:Payload>${resource(0, { 'ns2:Hash0': 'ab'.repeat(48) })}</ns0:Payload>`;
    await refused(xml.replace('<ns0:Payload>', `${evil}<ns0:Payload>`), 'rim_malformed', /more than one Payload/);
    await refused(
      xml.replace('</SoftwareIdentity>', `${evil}</SoftwareIdentity>`),
      'rim_malformed',
      /more than one Payload/,
    );
    await refused(xml.replace(/<ns0:Payload>.*<\/ns0:Payload>/s, evil), 'rim_signature_invalid', /digest/);
    await refused(xml.replace('</ds:KeyInfo>', `</ds:KeyInfo><ds:Object>${evil}</ds:Object>`), 'rim_malformed');
  });

  it('does not survive being moved to another root', async () => {
    const xml = made();
    const evil = document({ payload: resource(0, { 'ns2:Hash0': 'ab'.repeat(48) }) });
    const before = evil.replace('</SoftwareIdentity>', '');
    await refused(`${before}${xml}</SoftwareIdentity>`, 'rim_malformed', /no signature/);
    await refused(`${before}${signatureOf(xml)}</SoftwareIdentity>`, 'rim_signature_invalid');
    await refused(
      xml.replace(SIGNATURE, (own) => `<ns0:Link>${own}</ns0:Link>`),
      'rim_malformed',
      /no signature/,
    );
    await refused(`${xml}${xml}`, 'rim_malformed');
  });

  it('stands alone: a second signature anywhere is refused', async () => {
    const xml = made();
    const own = signatureOf(xml);
    await refused(xml.replace(SIGNATURE, own + own), 'rim_malformed');
    await refused(
      xml.replace('</ns0:Payload>', `</ns0:Payload><ns0:Link>${own}</ns0:Link>`),
      'rim_malformed',
      /more than one/,
    );
    await refused(xml.replace('</ds:X509Data>', `${own}</ds:X509Data>`), 'rim_malformed');
    await refused(xml.replace('<ns0:Payload>', `<ns0:Payload><x:DigestValue xmlns:x="${DS}"/>`), 'rim_malformed');
    const other = signed(document({ payload: resource(3) }), newSigner());
    await refused(xml.replace(SIGNATURE, signatureOf(other) + own), 'rim_malformed');
  });

  it('covers the whole document and nothing by id', async () => {
    for (const uri of ['#x', '#xpointer(/)', 'other.xml', ' '])
      await refused(
        made(document({ rootAttributes: ' Id="x"' }), { signedInfo: (text) => text.replace('URI=""', `URI="${uri}"`) }),
        'rim_malformed',
        /Reference has other attributes/,
      );
    await refused(made(undefined, { signedInfo: (text) => text.replace(' URI=""', '') }), 'rim_malformed');
    await refused(
      made(undefined, { signedInfo: (text) => text.replace('URI=""', 'URI="" Type="x"') }),
      'rim_malformed',
    );
    await refused(made(undefined, { signedInfo: (text) => text.replace('URI=""', 'ds:URI=""') }), 'rim_malformed');
    const twice = (text: string) =>
      text.replace(/<ds:Reference.*<\/ds:Reference>/, (reference) => reference + reference);
    await refused(made(undefined, { signedInfo: twice }), 'rim_malformed', /more than one reference/);
  });

  it('has two transforms and no more, by the accepted algorithms alone', async () => {
    const transform = (uri: string) => `<ds:Transform Algorithm="${uri}"/>`;
    const edits: [FailureCode, (text: string) => string][] = [
      ['rim_malformed', (text) => text.replace('</ds:Transforms>', `${transform(C14N)}</ds:Transforms>`)],
      [
        'rim_malformed',
        (text) =>
          text.replace(
            '</ds:Transforms>',
            `${transform('http://www.w3.org/TR/1999/REC-xpath-19991116')}</ds:Transforms>`,
          ),
      ],
      [
        'rim_signature_invalid',
        (text) => text.replace(`${DS}enveloped-signature`, 'http://www.w3.org/TR/1999/REC-xslt-19991116'),
      ],
      ['rim_malformed', (text) => text.replace(transform(C14N), '')],
      ['rim_malformed', (text) => text.replace(/<ds:Transforms>.*<\/ds:Transforms>/, '')],
      ['rim_signature_invalid', (text) => text.replaceAll(C14N, `${C14N}#WithComments`)],
      ['rim_signature_invalid', (text) => text.replaceAll(C14N, 'http://www.w3.org/2001/10/xml-exc-c14n#')],
      ['rim_signature_invalid', (text) => text.replace('xmldsig-more#ecdsa-sha384', 'xmldsig-more#ecdsa-sha1')],
      [
        'rim_signature_invalid',
        (text) => text.replace('http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha384', `${DS}hmac-sha1`),
      ],
      ['rim_signature_invalid', (text) => text.replace('xmldsig-more#sha384', 'xmlenc#sha256')],
      [
        'rim_malformed',
        (text) =>
          text.replace(
            '#ecdsa-sha384"/>',
            '#ecdsa-sha384"><ds:HMACOutputLength>8</ds:HMACOutputLength></ds:SignatureMethod>',
          ),
      ],
    ];
    for (const [code, edit] of edits) await refused(made(undefined, { signedInfo: edit }), code);
  });

  it('may have any prefix, but only its own namespace', async () => {
    const xml = made();
    const renamed = xml.replaceAll('<ds:', '<sig:').replaceAll('</ds:', '</sig:').replace('xmlns:ds', 'xmlns:sig');
    await refused(renamed, 'rim_signature_invalid', /does not verify/);
    await refused(xml.replace(`xmlns:ds="${DS}"`, 'xmlns:ds="urn:x"'), 'rim_malformed', /no signature/);
    await refused(
      xml.replace('ns0:Resource', 'ds:Resource').replace('<ns0:Payload>', `<ns0:Payload xmlns:ds="${DS}">`),
      'rim_malformed',
    );
    await refused(
      xml.replace(/ns2="[^"]+"/, 'ns2="http://www.w3.org/2001/04/xmlenc#sha512"'),
      'rim_malformed',
      /Hash0 is missing/,
    );
  });

  it('is signed together with xml:lang of what stands above it', async () => {
    await expect(verify(made(document({ rootAttributes: ' xml:lang="en"' })))).resolves.toBeDefined();
    const xml = made(document({ rootAttributes: ' xml:lang="en"' }));
    await refused(xml.replace('xml:lang="en"', 'xml:lang="de"'), 'rim_signature_invalid');
    await expect(async () => made(document({ rootAttributes: ' xml:base="http://x/"' }))).rejects.toThrow(/xml:base/);
  });
});

describe('the signer', () => {
  const certificate = /<ds:X509Certificate>[^<]*<\/ds:X509Certificate>\n?/;

  it('is whose key signed, and comes first', async () => {
    await refused(made(undefined, { key: newSigner().key }), 'rim_signature_invalid', /does not verify/);
    await refused(made(undefined, { keyInfo: (text) => text.replace(certificate, '') }), 'rim_signature_invalid');
    const p256 = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
    await refused(made(undefined, { key: p256 }), 'rim_malformed', /SignatureValue has not 96 bytes/);
  });

  it('is a certificate in X509Data and nothing else', async () => {
    const { chain } = signer;
    const none = (text: string) => text.replace(/<ds:X509Data>.*<\/ds:X509Data>/s, '<ds:X509Data/>');
    await refused(made(undefined, { keyInfo: none }), 'rim_malformed', /X509Data has no certificate/);
    await refused(made(undefined, { keyInfo: () => '<ds:KeyInfo/>' }), 'rim_malformed', /X509Data/);
    await refused(made(undefined, { keyInfo: () => '' }), 'rim_malformed', /SignedInfo, SignatureValue and KeyInfo/);
    const value = '<ds:KeyValue/>';
    await refused(
      made(undefined, { keyInfo: (text) => text.replace('<ds:X509Data>', `${value}<ds:X509Data>`) }),
      'rim_malformed',
    );
    await refused(
      made(undefined, { keyInfo: (text) => text.replace('</ds:X509Data>', '<ds:X509CRL/></ds:X509Data>') }),
      'rim_malformed',
    );
    await refused(
      made(undefined, {
        keyInfo: (text) => text.replace(certificate, '<ds:X509Certificate>AAAA</ds:X509Certificate>'),
      }),
      'rim_malformed',
    );
    await refused(
      made(undefined, { keyInfo: (text) => text.replace(certificate, '<ds:X509Certificate>?</ds:X509Certificate>') }),
      'rim_malformed',
      /base64/,
    );
    expect(chain).toHaveLength(4);
  });

  it('may leave its root out, and may not bring one', async () => {
    const withoutRoot = { ...signer, chain: signer.chain.slice(0, 3) };
    await expect(verify(signed(document(), withoutRoot))).resolves.toBeDefined();
    const stranger = newSigner();
    await refused(signed(document(), stranger), 'rim_chain_invalid');
    const mixed = { ...stranger, chain: [...stranger.chain.slice(0, 3), ...signer.chain.slice(3)] };
    await refused(signed(document(), mixed), 'rim_chain_invalid');
    await refused(signed(document(), { ...signer, chain: signer.chain.slice(0, 1) }), 'rim_chain_invalid');
  });

  it('is not an authority that signs documents itself', async () => {
    const authority = { ...signer, key: signer.ca.key, chain: signer.chain.slice(2) };
    await refused(signed(document(), authority), 'rim_signature_invalid', /may not sign documents/);
  });

  it('has an expiry of its own code, which is found last', async () => {
    const old = newSigner({ notAfter: new Date('2025-01-01T00:00:00Z') });
    const xml = signed(document(), old);
    await expect(verify(xml, old)).rejects.toMatchObject({ code: 'rim_signer_expired' });
    await expect(verifyRim(xml, { roots: old.roots, at: new Date('2024-12-31T00:00:00Z') })).resolves.toBeDefined();
    await expect(verify(xml.replace(hashOf(0), hashOf(1)), old)).rejects.toMatchObject({
      code: 'rim_signature_invalid',
    });
    await refused(xml, 'rim_chain_invalid');
  });
});

describe('a signed document', () => {
  const cases: [string, Parameters<typeof document>[0], RegExp][] = [
    ['another root element', { rootAttributes: ' xmlns="urn:x"' }, /twice|SoftwareIdentity/],
    ['a supplemental tag', { rootAttributes: ' supplemental="true"' }, /supplemental/],
    ['no Meta', { meta: '' }, /no Meta/],
    ['no version', { meta: '<ns0:Meta/>' }, /no colloquialVersion/],
    ['no measurement', { payload: '' }, /no measurement/],
    ['something that is no measurement', { payload: resource(0) + resource(1, { type: 'File' }) }, /something else/],
    ['an index twice', { payload: resource(0) + resource(0) }, /index 0 stands twice/],
    ['an index out of range', { payload: resource(254) }, /out of range/],
    ['a negative index', { payload: resource(-1) }, /not a whole number/],
    ['another word for active', { payload: resource(0, { active: 'true' }) }, /neither True nor False/],
    ['no active', { payload: resource(0, { active: null }) }, /neither True nor False/],
    ['no alternatives', { payload: resource(0, { alternatives: '0' }) }, /alternatives is out of range/],
    ['too many alternatives', { payload: resource(0, { alternatives: '33' }) }, /alternatives is out of range/],
    ['fewer hashes than alternatives', { payload: resource(0, { alternatives: '2' }) }, /Hash1 is missing/],
    ['more hashes than alternatives', { payload: resource(0, { 'ns2:Hash1': hashOf(1) }) }, /more hashes/],
    ['a hash that is not hexadecimal', { payload: resource(0, { 'ns2:Hash0': 'xy'.repeat(48) }) }, /not hexadecimal/],
    ['a hash of another size', { payload: resource(0, { size: '32' }) }, /has not 32 bytes/],
    ['an empty hash', { payload: resource(0, { 'ns2:Hash0': '' }) }, /not hexadecimal/],
    ['no size', { payload: resource(0, { size: null }) }, /size is not a whole number/],
    ['a bound without a value', { payload: resource(0) + resource(4096 + 30) }, /minSvn is not a whole number/],
  ];

  it.each(cases)('with %s is refused', async (_, parts, message) => {
    const body = document(parts);
    await refused(body, 'rim_malformed', message);
    if (!/twice/.test(message.source)) await refused(made(body), 'rim_malformed', message);
  });

  it('may bound fields of the opaque data from below', async () => {
    const opaque = 'xmlns:ns3="https://docs.nvidia.com/attestation/specs/latest/opaque-data.html"';
    const bound = resource(4096 + 30, { 'ns2:Hash0': null, size: null, alternatives: null, 'ns3:minSvn': '7' });
    const rim = await verify(
      made(document({ payload: resource(0) + bound.replace('<ns0:Resource', `<ns0:Resource ${opaque}`) })),
    );
    expect(rim.minimumSvns).toEqual(new Map([[30, { name: 'Measurement_4126', minimum: 7 }]]));
  });
});
