// Signed formats: report, certificates, revocation answers, reference values. A changed input may pass only where what was
// signed is what it was. The places of which nothing is signed, so that a change in them may pass, are these:
//
//  certificate  the signature's own encoding (a leading zero of r or s); parameters of the outer algorithm, which repeats the signed one
//  PEM          text between the blocks, white space inside them, base64's unused last bits, a copy of the root at the end or
//               none, and in that copy all but subject, issuer and key: the pinned root is what counts
//  OCSP         what stands around ResponseData: values after the known ones of the outer sequences, further certificates
//  RIM          what Canonical XML takes away: comments, quotes, the order of attributes, space in tags; base64's in the signature

import { chainPem } from '../../../demo/twin/pki.ts';
import { answerAbout, subjects } from '../../../scripts/vectors/endorsements.ts';
import { nonceHex, rawOf, WHOLE } from '../../../scripts/vectors/exchange.ts';
import { AT, type World } from '../../../scripts/vectors/world.ts';
import { fwidOf } from '../../../verify/gpu/nvidia.ts';
import { verifyRim } from '../../../verify/gpu/rim/rim.ts';
import { parseOpaque } from '../../../verify/gpu/spdm/opaque.ts';
import { parseReport, verifyReportSignature } from '../../../verify/gpu/spdm/report.ts';
import { type Certificate, parseCertificate, parsePem } from '../../../verify/x509/certificate.ts';
import { signedBy, verifyChain } from '../../../verify/x509/chain.ts';
import { parseOcspResponse } from '../../../verify/x509/ocsp.ts';
import { verifyOcsp } from '../../../verify/x509/revocation.ts';
import { makeReport } from '../../twin/report.ts';
import { makeRim } from '../../twin/rim.ts';
import { mutateBytes, mutateText } from './fuzz-bytes.ts';
import { mutateDer } from './fuzz-der.ts';
import type { Random } from './fuzz-random.ts';
import type { AnyTarget } from './fuzz-target.ts';
import { mutateXml } from './fuzz-xml.ts';

/** For what passes a parser and fails the check behind it. */
class Refused extends Error {
  override readonly name = 'CheckFailure';
  readonly code = 'refused';
}

const must = (holds: boolean): void => {
  if (!holds) throw new Refused('the signature does not verify');
};

const mutateDerBytes = (bytes: Uint8Array, random: Random) =>
  random.chance(0.6) ? mutateDer(bytes, random) : mutateBytes(bytes, random);

const mutatePem = (text: string, random: Random): string => {
  const blocks = text.split(/(?<=-----END CERTIFICATE-----\n)/);
  const at = random.below(blocks.length);
  const block = blocks[at] as string;
  const ways: (() => unknown)[] = [
    () => blocks.splice(at, 1),
    () => blocks.splice(at, 0, block),
    () => blocks.splice(random.below(blocks.length), 0, ...blocks.splice(at, 1)),
    () => blocks.splice(at, 1, pem(mutateDerBytes(derOf(block), random))),
    () => blocks.splice(at, 1, mutateText(block, random)),
    () => blocks.splice(at, 0, ...Array.from({ length: 20 }, () => block)),
    () => blocks.splice(at, 0, '-----BEGIN CERTIFICATE-----\n'.repeat(1 + random.below(200))),
  ];
  random.pick(ways)();
  return blocks.join('');
};

const derOf = (block: string): Uint8Array => Buffer.from(block.replace(/-----[A-Z ]+-----/g, ''), 'base64');

const pem = (der: Uint8Array): string =>
  `-----BEGIN CERTIFICATE-----\n${Buffer.from(der).toString('base64')}\n-----END CERTIFICATE-----\n`;

const mutateRim = (xml: string, random: Random): string =>
  random.chance(0.75) ? mutateXml(xml, random) : mutateText(xml, random);

const signedParts = (path: readonly Certificate[]) => path.map(({ tbs }) => tbs);

/**
 * A path that starts above the leaf is one too: that its first certificate signed the report is for the next check to see.
 * And a root that stands twice has issued itself.
 */
function isPartOf(path: readonly Certificate[], whole: readonly Certificate[]): boolean {
  const signed = path.map(({ tbs }) => Buffer.from(tbs).toString('hex'));
  const distinct = signed.filter((tbs, i) => tbs !== signed[i + 1]);
  const above = whole.slice(whole.length - distinct.length);
  return distinct.every((tbs, i) => Buffer.from(above[i]?.tbs ?? []).toString('hex') === tbs);
}

export async function signedTargets(world: World): Promise<AnyTarget[]> {
  const { a, issuers, rimSigner } = world;
  const report = new Uint8Array(await makeReport(Buffer.from(nonceHex(rawOf(WHOLE)), 'hex'), a.key));
  /** 64 blocks of 55 bytes, the responder's nonce, two bytes of length; before it 45 bytes of heads, after it 96 of signature. */
  const opaque = report.slice(45 + 64 * 55 + 32 + 2, -96);
  const whole = a.chain.map(({ der }) => parseCertificate(der));
  const [leaf, brom, provisioner] = whole as [Certificate, Certificate, Certificate];
  const roots = [parseCertificate(issuers.root.certificate.der)];
  const rimRoots = [parseCertificate(rimSigner.root.certificate.der)];
  const ocsp = new Uint8Array(answerAbout(world, 'brom', subjects(world, a).brom as never));

  return [
    {
      name: 'report',
      weight: 6,
      good: report,
      mutate: mutateBytes,
      run: async (input: Uint8Array) => {
        const parsed = parseReport(input);
        must(await verifyReportSignature(parsed, leaf));
        return parsed.signed;
      },
      refusals: ['CheckFailure'],
    },
    {
      name: 'opaque data',
      weight: 6,
      good: opaque,
      mutate: mutateBytes,
      run: (input: Uint8Array) => void parseOpaque(input),
      refusals: ['CheckFailure'],
    },
    {
      name: 'certificate',
      weight: 6,
      good: new Uint8Array(a.chain[0].der),
      mutate: mutateDerBytes,
      run: async (input: Uint8Array) => {
        const certificate = parseCertificate(input);
        fwidOf(certificate);
        must(await signedBy(certificate, brom));
        return certificate.tbs;
      },
      refusals: ['DerError', 'CheckFailure'],
    },
    {
      name: 'PEM chain',
      weight: 4,
      good: chainPem(a),
      mutate: mutatePem,
      run: async (input: string) => {
        const path = await verifyChain(parsePem(input), roots, AT);
        return isPartOf(path, whole) ? null : signedParts(path);
      },
      refusals: ['DerError', 'ChainError'],
    },
    {
      name: 'OCSP response',
      weight: 6,
      good: ocsp,
      mutate: mutateDerBytes,
      run: async (input: Uint8Array) => {
        await verifyOcsp(input, brom, provisioner, { at: AT });
        return parseOcspResponse(input).signed;
      },
      refusals: ['CheckFailure'],
    },
    {
      name: 'RIM',
      weight: 2,
      good: makeRim('driver', rimSigner),
      mutate: mutateRim,
      run: async (input: string) => {
        const { signer, ...manifest } = await verifyRim(input, { roots: rimRoots, at: AT });
        return { ...manifest, signer: signedParts(signer) };
      },
      refusals: ['CheckFailure'],
    },
  ];
}
