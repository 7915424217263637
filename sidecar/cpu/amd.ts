// Gets the endorsements of an SEV-SNP report from the host's certificate table, this disk, or AMD's Key Distribution Service (57230,
// "VCEK Certificate and KDS Interface Specification"). The verifier checks each before it is used.
import { X509Certificate } from 'node:crypto';
import { appraiseCpu, PRODUCTS, type Product } from '../../verify/cpu.ts';
import { type Check, CheckFailure, type CheckName } from '../../verify/index.ts';
import { parseSnpReport, type SnpReport, tcbOf } from '../../verify/service.ts';
import type { AttesterError } from '../common/attester.ts';
import { until } from '../common/lock.ts';
import { refused, unavailable, withheld } from './cpu-collector.ts';
import {
  createService,
  createStore,
  type EndorsementOptions,
  type Get,
  isWithin,
  type Service,
  type Store,
} from './endorsements.ts';

interface AmdOptions extends EndorsementOptions {
  readonly kds_url: string;
}

/** The certificates that the host provides with a report. */
export interface HostCertificates {
  readonly VCEK?: X509Certificate;
  readonly VLEK?: X509Certificate;
  /** ASK or ASVK. */
  readonly authority?: X509Certificate;
}

/** As members of the attestation's `cpu`. */
interface AmdEndorsed {
  /** base64 of PEM: leaf, then ASK or ASVK. */
  readonly certificates: string;
  /** AMD's revocation list, base64 of DER; absent where it could not be fetched. */
  readonly collateral?: { readonly crl: string };
}

export interface AmdEndorsements {
  /**
   * @throws {AttesterError} cpu_unavailable: no certificate can be fetched now. cpu_refused: no certificate verifies the report.
   * @throws what `signal` was aborted with.
   */
  endorse(
    evidence: { readonly report: Buffer; readonly certificates: HostCertificates },
    signal: AbortSignal,
  ): Promise<AmdEndorsed>;
}

const MAX_LEAF_BYTES = 16 * 1024;
const MAX_CHAIN_BYTES = 64 * 1024;
const MAX_CRL_BYTES = 1024 * 1024;
const DAY_MS = 86_400_000;

/** A certificate that may verify the report. */
interface Candidate {
  readonly pem: string;
  /** Its id in the store; null for one of the host's table, which is read each time. */
  readonly id: string | null;
  /** It was fetched from AMD's service just now. */
  readonly isNew: boolean;
}

export function createAmdEndorsements(options: AmdOptions): AmdEndorsements {
  const { kds_url, now_ms = Date.now, onFailure = () => {}, roots } = options;
  const base = kds_url.replace(/\/+$/, '');
  const store = createStore(options);
  const kds = createService<Buffer>(options);
  const { leaves, authorities } = createSources(base, store, kds);

  async function appraise(report: Buffer, certificates: string, crl?: Buffer): Promise<readonly Check[]> {
    const collateral = crl === undefined ? {} : { collateral: { crl: crl.toString('base64') } };
    const evidence = { type: 'SEV_SNP', report: report.toString('base64'), certificates: base64(certificates) };
    const at = new Date(now_ms());
    return (await appraiseCpu({ ...evidence, ...collateral }, { at, roots: { amd: roots } })).checks;
  }

  /** Runs the named checks; returns the first failure in words, or null. */
  async function firstFailure(report: Buffer, certificates: string, ...names: readonly CheckName[]) {
    const checks = await appraise(report, certificates);
    const failure = checks.find(
      ({ name, status }) => status === 'fail' && (name === 'cpu_form' || names.includes(name)),
    );
    return failure === undefined ? null : `${failure.code}: ${failure.detail}`;
  }

  /** The leaf and its authority, from the first sources where both are valid. */
  async function certify(report: Buffer, snp: SnpReport, host: HostCertificates, signal: AbortSignal) {
    let last = '';
    for await (const leaf of leaves(snp, host, signal)) {
      let failure = await firstFailure(report, leaf.pem, 'cpu_signature');
      // The leaf is kept before its authority is fetched, which may fail.
      if (failure === null) await keep(leaf);
      const above = failure === null ? authorities(snp, leaf, host, signal) : [];
      for await (const authority of above) {
        failure = await firstFailure(report, leaf.pem + authority.pem, 'cpu_chain', 'cpu_identity');
        if (failure === null) {
          await keep(authority);
          return { certificates: leaf.pem + authority.pem, product: productOf(snp, leaf) };
        }
        reportUnused(authority, failure);
      }
      last = failure ?? '';
      reportUnused(leaf, last);
    }
    throw refused(`no certificate makes this report AMD's: ${last}`);
  }

  async function keep({ id, pem, isNew }: Candidate): Promise<void> {
    if (id !== null && isNew) await store.write(id, { bytes: Buffer.from(pem), fetched_ms: now_ms() });
  }

  /** A kept certificate stays until it is replaced: the cause may be that our clock is wrong. */
  function reportUnused({ id }: Candidate, failure: string): void {
    onFailure(`${id === null ? "a certificate in the host's table" : `the ${id}`} is not used (${failure})`);
  }

  /**
   * The root's revocation list, fetched daily. A kept one is returned at once, while a new one is fetched in the background. null
   * where none is available: verifiers must then fetch it.
   */
  async function revocation(report: Buffer, certificates: string, product: Product, signal: AbortSignal) {
    const id = `revocation list of ${product}`;
    const before = await store.read(id);
    const failure = before === null ? null : await firstFailureOfCrl(report, certificates, before.bytes);
    if (failure !== null) onFailure(`the kept ${id} is not used (${failure})`);
    const usable = failure === null ? before : null;
    if (usable !== null && isWithin(DAY_MS, usable.fetched_ms, now_ms())) return usable.bytes;
    const fetched = kds
      .fetchOnce(id, async (get) => {
        const { bytes } = await get(`${base}/vcek/v1/${product}/crl`, MAX_CRL_BYTES);
        const failureNow = await firstFailureOfCrl(report, certificates, bytes);
        if (failureNow !== null) throw unavailable(`AMD's service gave no ${id} that can be used (${failureNow})`);
        await store.write(id, { bytes, fetched_ms: now_ms() });
        return bytes;
      })
      .catch((error: AttesterError) => {
        onFailure(error.message);
        return null;
      });
    return usable?.bytes ?? until(fetched, signal);
  }

  /** A list that revokes the certificate is valid; the verifier reports the revocation. */
  async function firstFailureOfCrl(report: Buffer, certificates: string, crl: Buffer): Promise<string | null> {
    const checks = await appraise(report, certificates, crl);
    const check = checks.find(
      ({ name, status }) => status === 'fail' && (name === 'cpu_form' || name === 'cpu_revocation'),
    );
    return check === undefined || check.code === 'certificate_revoked' ? null : `${check.code}: ${check.detail}`;
  }

  return {
    async endorse({ report, certificates: host }, signal) {
      signal.throwIfAborted();
      const snp = parsed(report);
      const { certificates, product } = await certify(report, snp, host, signal);
      const crl = await revocation(report, certificates, product, signal);
      const endorsed = { certificates: base64(certificates) };
      return crl === null ? endorsed : { ...endorsed, collateral: { crl: crl.toString('base64') } };
    },
  };
}

/** Where certificates come from. Each source is used only where the earlier ones had no valid certificate. */
function createSources(base: string, store: Store, kds: Service<Buffer>) {
  async function* leaves(snp: SnpReport, host: HostCertificates, signal: AbortSignal): AsyncGenerator<Candidate> {
    const { signingKey, chipId } = snp;
    const own = host[signingKey];
    if (own !== undefined) yield { pem: own.toString(), id: null, isNew: false };
    if (signingKey === 'VLEK')
      throw withheld("a VLEK signed the report: its certificate must be in the host's table, and no right one is");
    const id = `certificate of chip ${hex(chipId.subarray(0, 8))} at TCB ${hex(snp.tcb.reported)}`;
    yield* kept(id);
    if (snp.product === null)
      throw withheld('a report of version 2 does not say of what product it is, and no right certificate is at hand');
    if (chipId.every((byte) => byte === 0))
      throw withheld("the host hides the chip's id, and no right certificate is in its table");
    const url = leafUrl(base, snp.product, snp);
    const work = async (get: Get) => first(await get(url, MAX_LEAF_BYTES), () => true);
    yield { pem: (await until(kds.fetchOnce(id, work), signal)).toString(), id, isNew: true };
  }

  async function* authorities(snp: SnpReport, leaf: Candidate, host: HostCertificates, signal: AbortSignal) {
    if (host.authority !== undefined) yield { pem: host.authority.toString(), id: null, isNew: false };
    const product = productOf(snp, leaf);
    const kind = snp.signingKey;
    const id = `authority of ${product}'s ${kind}s`;
    yield* kept(id);
    const url = `${base}/${kind.toLowerCase()}/v1/${product}/cert_chain`;
    const work = async (get: Get) =>
      first(await get(url, MAX_CHAIN_BYTES), ({ subject, issuer }) => subject !== issuer);
    yield { pem: (await until(kds.fetchOnce(id, work), signal)).toString(), id, isNew: true };
  }

  async function* kept(id: string): AsyncGenerator<Candidate> {
    const found = await store.read(id);
    if (found !== null) yield { pem: found.bytes.toString(), id, isNew: false };
  }

  return { leaves, authorities };
}

const base64 = (text: string) => Buffer.from(text).toString('base64');
const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex');

/** @throws {AttesterError} */
function parsed(report: Buffer): SnpReport {
  try {
    return parseSnpReport(report);
  } catch (cause) {
    if (!(cause instanceof CheckFailure)) throw cause;
    throw refused(`${cause.code}: ${cause.message}`);
  }
}

/** AMD serves a leaf for a chip and its reported TCB. A Turin's chip id has 8 bytes, and its TCB one more part, the first. */
function leafUrl(base: string, product: Product, { chipId, tcb }: SnpReport): string {
  const parts = tcbOf(tcb.reported, product);
  if (parts === null) throw refused(`the reported TCB has bytes that mean nothing on ${product}`);
  const query = Object.entries(parts).map(([part, version]) => `${part}SPL=${version}`);
  return `${base}/vcek/v1/${product}/${hex(product === 'Turin' ? chipId.subarray(0, 8) : chipId)}?${query.join('&')}`;
}

/** The product that the report names, or else the leaf's issuer: SEV-Genoa, SEV-VLEK-Genoa. @throws {AttesterError} */
function productOf({ product }: SnpReport, leaf: Candidate): Product {
  if (product !== null) return product;
  const [, name] = /^CN=SEV-(?:VLEK-)?(\w+)$/m.exec(new X509Certificate(leaf.pem).issuer) ?? [];
  const known = PRODUCTS.find((one) => one === name);
  if (known === undefined) throw withheld('the certificate does not say of what product the processor is');
  return known;
}

/** PEM of the first certificate that matches. @throws {AttesterError} */
function first({ bytes }: { readonly bytes: Buffer }, isMatch: (one: X509Certificate) => boolean): Buffer {
  const found = certificatesIn(bytes).find(isMatch);
  if (found === undefined) throw unavailable("what AMD's service gave is no certificate");
  return Buffer.from(found.toString());
}

const MAX_CERTIFICATES = 8;

/** Parses PEM or DER; empty where it is neither. */
function certificatesIn(bytes: Buffer): X509Certificate[] {
  const blocks = bytes.toString('latin1').match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g);
  try {
    return (blocks ?? [bytes]).slice(0, MAX_CERTIFICATES).map((one) => new X509Certificate(one));
  } catch {
    return [];
  }
}

// The host's certificate table (AMD 56421, "GHCB Standardization", §4.1.8.1): entries of a GUID, an offset and a length.

/** A table may hold the root too, which is not read: the verifier pins its own. */
const ENTRIES: Readonly<Record<string, keyof HostCertificates>> = {
  '63da758de6644564adc5f4b93be8accd': 'VCEK',
  a8074bc2a25a483eaae639c045a0b8a1: 'VLEK',
  '4ab7b379bbac4fe4a02f05aef327c782': 'authority',
};
const ENTRY_BYTES = 24;
const MAX_ENTRIES = 64;

/** The readable part of the table, which the host may also withhold. @param auxblob empty where the host provides no table. */
export function readCertificateTable(auxblob: Buffer, onFailure: (message: string) => void): HostCertificates {
  const found: { -readonly [K in keyof HostCertificates]: HostCertificates[K] } = {};
  for (let i = 0; i < MAX_ENTRIES && (i + 1) * ENTRY_BYTES <= auxblob.length; i++) {
    const entry = auxblob.subarray(i * ENTRY_BYTES, (i + 1) * ENTRY_BYTES);
    const guid = entry.toString('hex', 0, 16);
    if (/^0+$/.test(guid)) return found;
    const [from, length] = [entry.readUInt32LE(16), entry.readUInt32LE(20)];
    const name = ENTRIES[guid];
    if (name === undefined) continue;
    const certificate = certificatesIn(auxblob.subarray(from, from + Math.min(length, MAX_CHAIN_BYTES)))[0];
    if (from + length > auxblob.length || certificate === undefined)
      onFailure(`the ${name} in the host's certificate table cannot be read`);
    else found[name] = certificate;
  }
  return found;
}
