// A software twin of a confidential VM's processor, for the demo and the tests. It proves the format, and nothing else.
import { createPrivateKey, createPublicKey, X509Certificate } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { AttesterError } from '../../sidecar/common/attester.ts';
import type { CpuCollector, CpuEvidence } from '../../sidecar/cpu/cpu-collector.ts';
import type { CpuType } from '../../verify/cpu.ts';
import { type Holder, nameOf, pem } from './authority.ts';
import { keptOrMade, ROOT_FILE, RootError, replace } from './pki.ts';
import { amdCrl, makeAmd, makeArk, makeLeaf, makeSnpReport, snpMember } from './snp.ts';
import { makeCollateral, makeIntel, makeIntelRoot, makePck, makeQuote } from './tdx.ts';

interface SimulatedCpuOptions {
  readonly type: CpuType;
  /** Where the test root is kept between starts, beside the simulated GPU's. */
  readonly rootDir: string;
  /** How long a report takes, in milliseconds; 0 by default. */
  readonly collectionMs?: number;
  /** SHA-256 of the launch file, which a host would hand in at the start of the guest; null by default. */
  readonly launch?: Buffer | null;
}

/** The processor that SEV-SNP's twin pretends to be. */
const PRODUCT = 'Genoa';
const DAY_MS = 86_400_000;
/** How long the twin's collateral is valid, which is made with every report. */
const COLLATERAL_DAYS = 30;

/** @throws {AttesterError} when the kept root cannot be used. */
export async function createSimulatedCpu(options: SimulatedCpuOptions): Promise<CpuCollector> {
  const { type, rootDir, collectionMs = 0, launch = null } = options;
  const root = await keptRoot(type, rootDir).catch((cause: unknown) => {
    if (cause instanceof RootError) throw new AttesterError('collection_failed', cause.message, false, { cause });
    throw cause;
  });
  const hostData = launch ?? Buffer.alloc(32);
  const report = type === 'SEV_SNP' ? snpTwin(root, hostData) : tdxTwin(root, hostData);
  return {
    type,
    simulated: { root: pem(root) },
    async collect(reportData, signal) {
      signal.throwIfAborted();
      if (collectionMs > 0) await delay(collectionMs, undefined, { signal }).catch(() => signal.throwIfAborted());
      return report(Buffer.from(reportData));
    },
  };
}

type Report = (reportData: Buffer) => CpuEvidence;

const windowFrom = (now_ms: number) => ({
  from: new Date(now_ms - DAY_MS),
  to: new Date(now_ms + COLLATERAL_DAYS * DAY_MS),
});

function snpTwin(root: Holder, hostData: Buffer): Report {
  const amd = makeAmd(PRODUCT, root);
  const leaf = makeLeaf(amd);
  return (reportData) => {
    const { from, to } = windowFrom(Date.now());
    const crl = amdCrl(amd, [], { thisUpdate: from, nextUpdate: to });
    return {
      ...snpMember(makeSnpReport(PRODUCT, leaf, { reportData, hostData }), [leaf, amd.ask], crl),
      type: 'SEV_SNP',
    };
  };
}

function tdxTwin(root: Holder, hostData: Buffer): Report {
  const mrConfigId = Buffer.concat([hostData, Buffer.alloc(16)]);
  const intel = makeIntel({}, root);
  const pck = makePck(intel);
  return (reportData) => ({
    type: 'TDX',
    report: makeQuote(intel, pck, { reportData, mrConfigId, tail: Buffer.alloc(0) }).toString('base64'),
    collateral: makeCollateral(intel, { window: windowFrom(Date.now()) }),
  });
}

/** Reads or makes the root of this type, and adds its certificate to `root.pem`. @throws {RootError} */
async function keptRoot(type: CpuType, dir: string): Promise<Holder> {
  const file = join(dir, `cpu-${type.toLowerCase()}.key`);
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const make = () => (type === 'SEV_SNP' ? makeArk(PRODUCT) : makeIntelRoot());
  const root = parse(await keptOrMade(file, () => textOf(make())), file);
  await trust(join(dir, ROOT_FILE), pem(root));
  return root;
}

/** The simulated GPU makes the file, which users name as the trusted root. */
async function trust(file: string, certificate: string): Promise<void> {
  const trusted = await readFile(file, 'utf8').catch(() => null);
  if (trusted !== null && !trusted.includes(certificate)) await replace(file, trusted + certificate);
}

const textOf = (root: Holder) => `${root.key.export({ type: 'pkcs8', format: 'pem' })}${pem(root)}`;

function parse(text: string, file: string): Holder {
  try {
    const key = createPrivateKey(text);
    const certificate = new X509Certificate(text.slice(text.indexOf('-----BEGIN CERTIFICATE-----')));
    if (!certificate.checkPrivateKey(key)) throw new Error('another key');
    const subject = nameOf(/CN=(.*)/.exec(certificate.subject)?.[1] ?? '');
    return { key, publicKey: createPublicKey(key), subject, der: certificate.raw };
  } catch (cause) {
    throw new RootError(`${file} is damaged: it must hold a private key and its certificate in PEM`, { cause });
  }
}
