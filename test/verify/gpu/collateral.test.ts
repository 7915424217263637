// Services that answer wrongly for a while, as a verifier that lives longer meets them.
import { beforeEach, describe, expect, test } from 'vitest';
import { answerAbout, answers, rims, subjects } from '../../../scripts/vectors/endorsements.ts';
import { evidenceOf, forge } from '../../../scripts/vectors/forge.ts';
import { DAY_MS } from '../../../scripts/vectors/world.ts';
import { toHex } from '../../../verify/common/bytes.ts';
import { appraiseAttestation, type Collateral, createCollateral } from '../../../verify/index.ts';
import { parseCertificate } from '../../../verify/x509/certificate.ts';
import { makeCertId } from '../../../verify/x509/ocsp.ts';
import { RIM_IDS } from '../../twin/rim.ts';
import { codeOf, good, options, world } from '../attacks/attacks.ts';

const NONCE = new Uint8Array(32).fill(7);
const right = rims(world.rimSigner);
const about = await Promise.all(
  [world.a, world.b].flatMap((device) =>
    Object.entries(subjects(world, device)).map(async ([name, subject]) => {
      const [certificate, issuer] = [subject[0], subject[1].certificate].map(({ der }) => parseCertificate(der));
      if (certificate === undefined || issuer === undefined) throw new Error('a subject has two certificates');
      return { id: toHex(await makeCertId(certificate, issuer)), name, subject };
    }),
  ),
);

let asked: string[];
let clock: Date;
let documents: Map<string, string>;
/** What a responder does with its answer's nonce and signature. */
let answering: { nonce: Uint8Array; breakSignature?: boolean };

const fetch = (async (url: string | URL | Request, init?: RequestInit) => {
  if (init?.method !== 'POST') {
    const id = String(url).split('/').at(-1) ?? '';
    asked.push(id);
    return Response.json({ rim: Buffer.from(documents.get(id) ?? '').toString('base64') });
  }
  const request = Buffer.from(init.body as Uint8Array).toString('hex');
  const found = about.find(({ id }) => request.includes(id));
  if (found === undefined) return new Response('', { status: 404 });
  asked.push(found.name);
  return new Response(new Uint8Array(answerAbout(world, found.name, found.subject, answering)));
}) as typeof globalThis.fetch;

const ofServices = (): Collateral =>
  createCollateral({ fetch, clock: () => clock, randomBytes: () => new Uint8Array(NONCE) });
/** The verdict, and what was asked for on the way to it. */
async function verdict(collateral: Collateral, input: unknown = good) {
  asked = [];
  const code = await codeOf(input, { collateral });
  return [code, asked.sort()];
}

const RIMS = Object.values(RIM_IDS)
  .filter((id) => right.has(id))
  .sort();
const NAMES = [...answers(world).keys()].sort();

beforeEach(() => {
  clock = new Date('2025-06-01T12:00:00Z');
  documents = right;
  answering = { nonce: NONCE };
});

describe('a service that answered wrongly once', () => {
  const damaged = (text: string) => text.replace('SignatureValue>', 'SignatureValue>AAAA');
  test.each([
    ['a document that is damaged', damaged, 'rim_malformed'],
    [
      'a document that somebody changed',
      (text: string) => text.replace('colloquialVersion="', '$&9'),
      'rim_signature_invalid',
    ],
    ['the document of something else', () => right.get(RIM_IDS.vbios) ?? '', 'rim_mismatch'],
  ])('with %s is asked again by the next verification, and believed', async (_name, change, code) => {
    const collateral = ofServices();
    documents = new Map([...right, [RIM_IDS.driver, change(right.get(RIM_IDS.driver) ?? '')]]);
    expect((await verdict(collateral))[0]).toBe(code);
    expect(await verdict(collateral)).toEqual([code, [RIM_IDS.driver]]);
    documents = right;
    expect((await verdict(collateral))[0]).toBe('valid');
    expect(await verdict(collateral)).toEqual(['valid', []]);
  });

  test.each([
    ['a signature that is broken', { breakSignature: true, nonce: NONCE }],
    ['the answer to another request', { nonce: new Uint8Array(32) }],
  ])('about revocation, with %s, likewise', async (_name, wrong) => {
    const collateral = ofServices();
    answering = wrong;
    expect(await verdict(collateral)).toEqual(['revocation_invalid', [...RIMS, ...NAMES].sort()]);
    expect(await verdict(collateral)).toEqual(['revocation_invalid', NAMES]);
    answering = { nonce: NONCE };
    expect(await verdict(collateral)).toEqual(['valid', NAMES]);
    expect(await verdict(collateral)).toEqual(['valid', []]);
  });

  test('is asked for each thing once in a verification, however many devices need it', async () => {
    const collateral = ofServices();
    const both = { ...good, evidence: await Promise.all([world.a, world.b].map((one) => evidenceOf(one, good.nonce))) };
    documents = new Map([...right].map(([id, text]) => [id, damaged(text)]));
    const [code, all] = await verdict(collateral, both);
    expect(code).toBe('rim_malformed');
    expect(all?.length).toBe(new Set(all).size + 1); // 'brom': each device has its own.
  });
});

test('a reference value is kept for a day, then asked for again', async () => {
  const collateral = ofServices();
  expect((await verdict(collateral))[0]).toBe('valid');
  clock = new Date(clock.getTime() + DAY_MS);
  expect(await verdict(collateral)).toEqual(['valid', []]);
  clock = new Date(clock.getTime() + 1);
  expect(await verdict(collateral, await forge(world))).toEqual(['valid', RIMS]);
});

describe('what is handed in', () => {
  test('is asked for anew where there is a network and it holds no longer, or is of another chip', async () => {
    const stale = {
      thisUpdate: new Date(clock.getTime() - 2 * DAY_MS),
      nextUpdate: new Date(clock.getTime() - DAY_MS),
    };
    const ocsp = about.map(({ name, subject }) => answerAbout(world, name, subject, stale));
    const blackwell = rims(world.rimSigner, { driver: { chip: 'GB100' } }).get(RIM_IDS.driver) ?? '';
    const handedIn = { rims: [blackwell, right.get(RIM_IDS.vbios) ?? ''], ocsp };
    const online = createCollateral({ ...handedIn, fetch, randomBytes: () => new Uint8Array(NONCE) });
    expect(await verdict(online)).toEqual(['valid', [...NAMES, RIM_IDS.driver].sort()]);
    const { checks } = await appraiseAttestation(good, { ...options, collateral: createCollateral(handedIn) });
    const codes = checks.flatMap(({ code }) => code ?? []);
    expect(codes).toEqual(['revocation_invalid', 'rim_unavailable']);
  });
  test('is used where it holds, and nobody is asked', async () => {
    const ocsp = about.map(({ name, subject }) => answerAbout(world, name, subject));
    expect(await verdict(createCollateral({ rims: right.values(), ocsp, fetch }))).toEqual(['valid', []]);
  });
});

describe('no service is asked', () => {
  const [evidence] = good.evidence;
  test('about a report whose signature is wrong: what it names, anybody may have written', async () => {
    const report = Buffer.from(evidence?.report ?? '', 'base64');
    report.writeUInt8(report.readUInt8(report.length - 1) ^ 1, report.length - 1);
    const forged = { ...good, evidence: [{ ...evidence, report: report.toString('base64') }] };
    expect(await verdict(ofServices(), forged)).toEqual(['report_signature_invalid', []]);
    const { checks } = await appraiseAttestation(forged, { ...options, collateral: ofServices() });
    for (const name of ['revocation', 'reference_values'])
      expect(checks.find((check) => check.name === name)).toMatchObject({
        status: 'skip',
        detail: 'not run: report_signature failed',
      });
  });
  test('about a device whose certificates lead to no root that is trusted', async () => {
    const stranger = await evidenceOf(world.strangers.device, good.nonce);
    const [code, all] = await verdict(ofServices(), { ...good, evidence: [stranger] });
    expect([code, all]).toEqual(['untrusted_root', []]);
  });
});
