// The simulated processor of the vectors' confidential guests, and attestations of these.
import { createHash, generateKeyPairSync, sign } from 'node:crypto';
import { type Holder, pem } from '../../demo/twin/authority.ts';
import type { Holder as Kept } from '../../demo/twin/certificate.ts';
import { type Amd, amdCrl, makeAmd, makeArk, makeLeaf, makeSnpReport, snpMember } from '../../demo/twin/snp.ts';
import { answerMessage, evidenceMessage, sessionMessage, writeStatement } from '../../proto/attestation/statement.ts';
import { WHOLE } from './exchange.ts';
import { type Evidence, evidenceOf, forge } from './forge.ts';
import { certificateOf, type Keep } from './store.ts';
import { AT, DAY_MS, type World } from './world.ts';

export interface Processor {
  readonly amd: Amd;
  readonly leaf: Holder;
}

/** A processor under a root of its own, whose keys are kept. */
export function keptProcessor(keep: Keep): Processor {
  const kept = (name: string, make: () => Holder): Holder => {
    const made = (): Kept => {
      const { key, ...one } = make();
      return { key, certificate: certificateOf(pem({ key, ...one })) };
    };
    const { key, certificate } = keep(name, made);
    return { key, publicKey: certificate.publicKey, subject: certificate.subject, der: certificate.der };
  };
  const ark = kept('processor-ark', () => makeArk('Genoa'));
  const ask = kept('processor-ask', () => makeAmd('Genoa', ark).ask);
  const amd = { product: 'Genoa', ark, ask, asvk: ask } as const;
  return { amd, leaf: kept('processor-leaf', () => makeLeaf(amd)) };
}

const sha256 = (data: string | Uint8Array): Buffer => createHash('sha256').update(data).digest();
const digestOf = (evidence: readonly Evidence[]): Buffer =>
  sha256(
    evidenceMessage(
      evidence.map(({ report, certificate_chain: chain }) => ({
        report: Buffer.from(report, 'base64'),
        chain: Buffer.from(chain, 'base64'),
      })),
    ),
  );

/** An attestation of the world's first device, signed in the session of a guest that was started with this launch file. */
export async function attestIn({ amd, leaf }: Processor, world: World, launch: string) {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const [seconds, hostData] = [AT.getTime() / 1000, sha256(launch)];
  const statement = writeStatement({
    challenge: null,
    key: publicKey.export({ type: 'spki', format: 'der' }).toString('base64'),
    devices: [sha256(world.a.brom.certificate.publicKey.export({ type: 'spki', format: 'der' })).toString('hex')],
    tls: [],
    hpke: null,
    launch: hostData.toString('hex'),
    not_before: seconds - 600,
    not_after: seconds + 3_000,
  });
  const session = sha256(statement);
  const gpu = digestOf([await evidenceOf(world.a, session.toString('hex'))]);
  const reportData = Buffer.concat([sha256(sessionMessage(session, gpu)), Buffer.alloc(32)]);
  const crl = amdCrl(amd, [], { thisUpdate: AT, nextUpdate: new Date(AT.getTime() + DAY_MS) });
  const { type, ...report } = snpMember(
    makeSnpReport(amd.product, leaf, { reportData, hostData }),
    [leaf, amd.ask],
    crl,
  );
  const made = await forge(world, { parts: { ...WHOLE, session: session.toString('hex') } });
  const message = answerMessage(session, Buffer.from(made.nonce, 'hex'), digestOf(made.evidence));
  const signature = sign('sha256', message, { key: privateKey, dsaEncoding: 'ieee-p1363' }).toString('base64');
  return { ...made, cpu: { type, statement, gpu_sha256: gpu.toString('hex'), ...report, launch, signature } };
}
