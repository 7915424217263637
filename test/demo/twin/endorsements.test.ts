// The twin's reference values and status answers, checked by code that shares nothing with their makers.
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash, type KeyObject, verify, X509Certificate } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { DEVICE_ROOT, makeDevice, makeIssuers, makeRoot } from '../../../demo/twin/pki.ts';
import { vector, vectorsPresent } from '../../support/vectors.ts';
import { type CertificateStatus, makeOcspResponse, makeResponder } from '../../twin/ocsp.ts';
import { makeReport } from '../../twin/report.ts';
import { makeRim, RIM_IDS, type RimKind } from '../../twin/rim.ts';
import { makeRimSigner, RIM_ROOT } from '../../twin/rim-signer.ts';

const folder = mkdtempSync(join(tmpdir(), 'simulated-endorsements-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const GENUINE = 'nvidia/h100-550.90.07';
const signer = makeRimSigner(makeRoot(RIM_ROOT));

describe('a simulated RIM', () => {
  /** ` xmlns=` before ` xmlns:a=`: by name, whatever follows it. */
  const byName = (a: string, b: string): number => (a.replace('=', ' ') < b.replace('=', ' ') ? -1 : 1);

  /** Canonical form of XML text whose namespaces are declared once each and whose attributes use one prefix at a time. */
  const c14n = (xml: string, apex = ''): string =>
    xml
      .replace(/<([\w:]+)([^<>]*?)\/>/g, '<$1$2></$1>')
      .replace(/<([\w:]+)((?: [\w:]+="[^"]*")*)>/g, (_, name: string, list: string) => {
        const all = (list.match(/ [\w:]+="[^"]*"/g) ?? []).sort(byName);
        const namespaces = all.filter((a) => a.startsWith(' xmlns'));
        const attributes = all.filter((a) => !a.startsWith(' xmlns'));
        const [plain, prefixed] = [
          attributes.filter((a) => !/^ \w+:/.test(a)),
          attributes.filter((a) => /^ \w+:/.test(a)),
        ];
        return `<${[name, ...namespaces, ...plain, ...prefixed].join('')}>`;
      })
      .replace('<ds:SignedInfo>', `<ds:SignedInfo${apex}>`);

  const part = (xml: string, pattern: RegExp): string => pattern.exec(xml)?.[1] ?? '';

  function check(xml: string) {
    const signature = part(xml, /(<ds:Signature [\s\S]*<\/ds:Signature>)/);
    const digest = createHash('sha384')
      .update(c14n(xml.replace(signature, '')))
      .digest('base64');
    const root = part(xml, /^<\w+((?: xmlns[\w:]*="[^"]*")+)/).match(/ xmlns[\w:]*="[^"]*"/g) ?? [];
    const apex = [...root, ' xmlns:ds="http://www.w3.org/2000/09/xmldsig#"'].sort(byName).join('');
    const info = c14n(part(signature, /(<ds:SignedInfo>[\s\S]*<\/ds:SignedInfo>)/), apex);
    const certificates = [...signature.matchAll(/<ds:X509Certificate>([^<]*)</g)].map(
      ([, text = '']) => new X509Certificate(Buffer.from(text, 'base64')),
    );
    const key = certificates[0]?.publicKey as KeyObject;
    const value = Buffer.from(part(signature, /<ds:SignatureValue>([^<]*)</), 'base64');
    return {
      digest: digest === part(signature, /<ds:DigestValue>([^<]*)</),
      signature: verify('sha384', Buffer.from(info), { key, dsaEncoding: 'ieee-p1363' }, value),
      certificates,
    };
  }

  test.skipIf(!vectorsPresent)('the check itself accepts a genuine one and refuses a changed one', () => {
    const genuine = vector(`${GENUINE}/NV_GPU_DRIVER_GH100_550.90.07.xml`).toString();
    expect(check(genuine)).toMatchObject({ digest: true, signature: true });
    expect(check(genuine.replace('550.90.07', '550.90.08'))).toMatchObject({ digest: false, signature: true });
  });

  test.each(['driver', 'vbios'] as const)('of the %s carries a signature that holds, under its own root', (kind) => {
    const checked = check(makeRim(kind, signer));
    expect(checked).toMatchObject({ digest: true, signature: true });
    checked.certificates.forEach((certificate, i) => {
      const issuer = checked.certificates[i + 1] ?? certificate;
      expect(certificate.verify(issuer.publicKey) && certificate.checkIssued(issuer)).toBe(true);
      expect(certificate.subject).toContain('SIMULATED');
    });
    expect(checked.certificates.at(-1)?.raw).toEqual(signer.root.certificate.der);
    expect(check(makeRim(kind, signer).replace('active="True"', 'active="False"')).digest).toBe(false);
  });

  test.skipIf(!vectorsPresent)('has the elements and attributes of a genuine one', () => {
    const outline = (xml: string) => [...xml.matchAll(/<[\w:]+|\s[\w:]+=(?=")/g)].map(([token]) => token.trim());
    const files = { driver: 'NV_GPU_DRIVER_GH100_550.90.07', vbios: 'NV_GPU_VBIOS_1010_0200_882_96009F0001' };
    for (const kind of ['driver', 'vbios'] as const) {
      // How many alternatives an index has differs from build to build.
      const known = (xml: string) => outline(xml).filter((token) => !/Hash[1-9]/.test(token));
      expect(known(makeRim(kind, signer))).toEqual(known(vector(`${GENUINE}/${files[kind]}.xml`).toString()));
    }
  });

  interface Golden {
    readonly index: number;
    readonly active: boolean;
    readonly values: readonly string[];
  }

  function golden(xml: string): Golden[] {
    return [...xml.matchAll(/<ns0:Resource ([^>]*)\/>/g)].map(([, attributes = '']) => ({
      index: Number(part(attributes, /index="(\d+)"/)),
      active: attributes.includes('active="True"'),
      values: [...attributes.matchAll(/Hash\d+="([0-9a-f]{96})"/g)].map(([, value = '']) => value),
    }));
  }

  async function mismatches(kind: RimKind, options: Parameters<typeof makeReport>[2] = {}): Promise<number[]> {
    const report = await makeReport(Buffer.alloc(32), makeDevice(makeIssuers(makeRoot(DEVICE_ROOT))).key, options);
    const measured = (index: number) => report.subarray(45 + index * 55 + 7, 45 + index * 55 + 55).toString('hex');
    const active = golden(makeRim(kind, signer)).filter((entry) => entry.active);
    return active.filter(({ index, values }) => !values.includes(measured(index))).map(({ index }) => index);
  }

  test("agrees with the twin's report at every active index, 21 and 12 of them, none twice", async () => {
    const active = (kind: RimKind) =>
      golden(makeRim(kind, signer))
        .filter((entry) => entry.active)
        .map(({ index }) => index);
    expect(await mismatches('driver')).toEqual([]);
    expect(await mismatches('vbios')).toEqual([]);
    expect([active('driver').length, active('vbios').length]).toEqual([21, 12]);
    expect(new Set([...active('driver'), ...active('vbios')]).size).toBe(33);
    expect(await mismatches('driver', { measurements: new Map([[35, Buffer.alloc(48, 9)]]) })).toEqual([35]);
  });

  test('is kept under the identifier that a verifier works out from the report', () => {
    expect(RIM_IDS).toEqual({
      driver: 'NV_GPU_DRIVER_GH100_000.00.00',
      vbios: 'NV_GPU_VBIOS_SIM0_SIM0_SIM_53494D0001',
    });
    expect(makeRim('driver', signer, { version: '000.00.01' })).toContain('colloquialVersion="000.00.01"');
  });

  test('can be signed by a signer whose time is over', () => {
    const expired = makeRimSigner(makeRoot(RIM_ROOT), { notAfter: new Date('2024-01-01T00:00:00Z') });
    expect(new X509Certificate(expired.chain[0].der).validTo).toBe('Jan  1 00:00:00 2024 GMT');
    expect(check(makeRim('vbios', expired))).toMatchObject({ digest: true, signature: true });
  });
});

const opensslPresent = spawnSync('openssl', ['version']).status === 0;
if (!opensslPresent) console.warn('SKIPPED: OCSP answers under openssl: the openssl command is not there');

describe.skipIf(!opensslPresent)('a simulated OCSP answer, as openssl reads it', () => {
  const issuers = makeIssuers(makeRoot(DEVICE_ROOT));
  const { brom } = makeDevice(issuers);
  const question = { certificate: brom.certificate, issuer: issuers.provisioner.certificate };
  const responder = makeResponder(issuers.provisioner);
  const thisUpdate = new Date(Math.floor(Date.now() / 1000) * 1000 - 60_000);
  const nextUpdate = new Date(thisUpdate.getTime() + 86_400_000);
  const at = (name: string, content: string | Buffer) => {
    writeFileSync(join(folder, name), content);
    return join(folder, name);
  };
  const chain = [issuers.provisioner, issuers.identity, issuers.root].map(({ certificate }) => certificate.pem);

  /** `openssl ocsp` over the answer: what it printed, or the failure. */
  function openssl(answer: Buffer, hash = '-sha384'): string {
    const files = ['-issuer', at('issuer.pem', chain[0] ?? ''), '-cert', at('brom.pem', brom.certificate.pem)];
    const trust = ['-CAfile', at('root.pem', chain[2] ?? ''), '-verify_other', at('others.pem', chain.join(''))];
    const args = ['ocsp', hash, ...files, ...trust, '-no_nonce', '-respin', at('answer.der', answer)];
    return execFileSync('sh', ['-c', 'exec openssl "$@" 2>&1', 'sh', ...args], { stdio: 'pipe' }).toString();
  }

  const answer = (status: CertificateStatus, more = {}) =>
    makeOcspResponse({ ...question, responder, status, thisUpdate, nextUpdate, ...more });

  test.each([
    ['good', 'good', /brom\.pem: good/],
    ['unknown', 'unknown', /brom\.pem: unknown/],
    [
      'revoked',
      { revokedAt: new Date('2025-01-01T00:00:00Z'), reason: 1 },
      /brom\.pem: revoked[\s\S]*keyCompromise[\s\S]*2025 GMT/,
    ],
    ['revoked without a reason', { revokedAt: new Date('2025-01-01T00:00:00Z') }, /brom\.pem: revoked/],
  ] as const)('says %s', (_, status, said) => {
    const printed = openssl(answer(status));
    expect(printed).toContain('Response verify OK');
    expect(printed).toMatch(said);
  });

  test('names the certificate by SHA-384 or SHA-1 hashes of its issuer', () => {
    const name = (hash: string) => createHash(hash).update(question.issuer.subject).digest();
    const key = (hash: string) =>
      createHash(hash)
        .update(question.issuer.publicKey.export({ type: 'spki', format: 'der' }).subarray(-97))
        .digest();
    for (const hash of ['sha384', 'sha1'] as const) {
      const bytes = answer('good', { hash });
      expect(bytes.includes(name(hash)) && bytes.includes(key(hash)) && bytes.includes(brom.certificate.serial)).toBe(
        true,
      );
      expect(openssl(bytes, `-${hash}`)).toContain('brom.pem: good');
    }
  });

  test('gives the nonce of the request back', () => {
    const nonce = Buffer.alloc(32, 0x5c);
    expect(answer('good', { nonce }).includes(nonce)).toBe(true);
    expect(openssl(answer('good', { nonce }))).toContain('Response verify OK');
  });

  test('can be made wrong in one way at a time', () => {
    const refused = (bytes: Buffer) => expect(() => openssl(bytes)).toThrow();
    refused(answer('good', { breakSignature: true }));
    refused(answer('good', { responder: makeResponder(issuers.provisioner, { signsOcsp: false }) }));
    refused(answer('good', { responder: makeResponder(issuers.identity) }));
    refused(
      answer('good', { responder: makeResponder(issuers.provisioner, { notAfter: new Date('2023-01-01T00:00:00Z') }) }),
    );
    const stale = answer('good', {
      thisUpdate: new Date('2023-01-01T00:00:00Z'),
      nextUpdate: new Date('2023-01-02T00:00:00Z'),
    });
    expect(openssl(stale)).toContain('Status times invalid');
  });
});
