// Sessions and answers signed in them, right by default: a second implementation of docs/attestation.md §6, with nothing of proto/attestation/statement.ts.
import { createHash, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { pem } from '../../demo/twin/authority.ts';
import type { Device } from '../../demo/twin/pki.ts';
import { amdCrl, makeAmd, makeLeaf, makeSnpReport, snpMember } from '../../demo/twin/snp.ts';
import { makeCollateral, makeIntel, makePck, makeQuote } from '../../demo/twin/tdx.ts';
import type { Evidence } from '../../proto/attestation/attestation.ts';
import type { RawParts } from '../../proto/attestation/raw.ts';
import { AT, a, attest, EXCHANGE, evidenceOf, type Made, SECONDS } from './maker.ts';

const sha256 = (...parts: (string | Uint8Array)[]) => {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest();
};
const u32 = (value: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
};
const bytes = (base64: string) => Buffer.from(base64, 'base64');

/** E of the design. */
export const digestOf = (evidence: readonly Evidence[]): Buffer =>
  sha256(
    'countersign/evidence/v1\0',
    u32(evidence.length),
    ...evidence.flatMap(({ report, certificate_chain }) =>
      [bytes(report), bytes(certificate_chain)].flatMap((one) => [u32(one.length), one]),
    ),
  );

export const deviceKey = (device: Device): string =>
  sha256(device.brom.certificate.publicKey.export({ type: 'spki', format: 'der' })).toString('hex');

/** What has the processor sign 64 bytes. */
export type Processor = (reportData: Buffer) => Record<string, unknown>;

export const amd = makeAmd('Genoa');
export const snpLeaf = makeLeaf(amd);
const window = { from: new Date(AT.getTime() - 86_400_000), to: new Date(AT.getTime() + 86_400_000) };
const crl = amdCrl(amd, [], { thisUpdate: window.from, nextUpdate: window.to });
export const snp: Processor = (reportData) =>
  snpMember(makeSnpReport('Genoa', snpLeaf, { reportData }), [snpLeaf, amd.ask], crl);

export const intel = makeIntel();
const pck = makePck(intel);
const collateral = makeCollateral(intel, { window });
export const tdx: Processor = (reportData) => ({
  type: 'TDX',
  report: makeQuote(intel, pck, { reportData }).toString('base64'),
  collateral,
});

/** The roots of both processors. */
export const processorRoots = pem(amd.ark, intel.root);

export interface SessionSpec {
  readonly processor?: (reportData: Buffer) => ReturnType<Processor> | Promise<ReturnType<Processor>>;
  readonly devices?: readonly Device[];
  /** Members of the statement in place of the right ones. */
  readonly statement?: Record<string, unknown>;
  /** The text in place of the one that the members give. */
  readonly text?: (text: string) => string;
  /** What the processor is given in place of D. */
  readonly reportData?: (right: Buffer) => Buffer;
}

export interface MadeSession {
  readonly key: KeyObject;
  readonly statement: string;
  /** The member `cpu` without a signature. */
  readonly cpu: Record<string, unknown>;
  readonly gpu: Evidence[];
}

export async function makeSession(spec: SessionSpec = {}): Promise<MadeSession> {
  const { processor = snp, devices = [a], text = (one) => one, reportData: change = (one) => one } = spec;
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const statement = text(
    JSON.stringify({
      purpose: 'countersign.session.v1',
      challenge: null,
      key: publicKey.export({ type: 'spki', format: 'der' }).toString('base64'),
      devices: devices.map(deviceKey),
      tls: [],
      hpke: null,
      launch: null,
      not_before: SECONDS - 600,
      not_after: SECONDS + 3_000,
      ...spec.statement,
    }),
  );
  const digest = sha256(statement);
  const gpu = await Promise.all(devices.map((device) => evidenceOf(digest.toString('hex'), device)));
  const d = sha256('countersign/session/v1\0', digest, digestOf(gpu));
  const { type, ...members } = await processor(change(Buffer.concat([d, Buffer.alloc(32)])));
  const cpu = { type, statement, gpu_sha256: digestOf(gpu).toString('hex'), ...members };
  return { key: privateKey, statement, cpu, gpu };
}

export interface Answer extends Made {
  cpu: Record<string, unknown>;
}

export const signAnswer = ({ key, statement }: MadeSession, { nonce, evidence }: Made): string =>
  sign(
    'sha256',
    Buffer.concat([
      Buffer.from('countersign/answer/v1\0'),
      sha256(statement),
      Buffer.from(nonce, 'hex'),
      digestOf(evidence),
    ]),
    { key, dsaEncoding: 'ieee-p1363' },
  ).toString('base64');

/** An attestation of the exchange, signed in the session, which raw names unless `parts` has another `session`. */
export async function answerIn(
  session: MadeSession,
  parts: RawParts = EXCHANGE,
  devices: readonly Device[] = [a],
): Promise<Answer> {
  const made = await attest({ session: statementDigest(session), ...parts }, devices);
  return { ...made, cpu: { ...session.cpu, signature: signAnswer(session, made) } };
}

export const statementDigest = ({ statement }: MadeSession): string => sha256(statement).toString('hex');
