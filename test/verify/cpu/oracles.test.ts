// Others' verifiers over the same evidence: openssl for chains and signatures, dcap-qvl for whole quotes of TDX. Without openssl its
// tests are skipped, by name.
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import * as der from '../../../demo/twin/certificate.ts';
import { fromBase64 } from '../../../verify/common/bytes.ts';
import { readCpuMember } from '../../../verify/cpu/cpu-member.ts';
import type { TcbStatus } from '../../../verify/cpu/cpu-options.ts';
import { parseSnpReport } from '../../../verify/cpu/evidence/snp-report.ts';
import { parseTdxQuote } from '../../../verify/cpu/evidence/tdx-quote.ts';
import { appraiseCpu } from '../../../verify/cpu/verify-cpu.ts';
import { vector, vectorsPresent } from '../../support/vectors.ts';
import { bytesOf, type Case, caseOf, collateralOf, memberOf, ofKind, pemOf } from './cases.ts';

const hasOpenssl = spawnSync('openssl', ['version']).status === 0;
if (!hasOpenssl) console.warn('SKIPPED: CPU evidence against openssl, which is not installed');

interface DcapQvl {
  verify(quote: Buffer, collateral: unknown, seconds: number): { status: TcbStatus };
}
/** It is a CommonJS module without types. */
const qvl = createRequire(import.meta.url)('@phala/dcap-qvl') as DcapQvl;

const dir = mkdtempSync(join(tmpdir(), 'cpu-oracles-'));
afterAll(() => rmSync(dir, { recursive: true }));
let count = 0;
function write(content: string | Uint8Array): string {
  const path = join(dir, `${count++}`);
  writeFileSync(path, content);
  return path;
}

/** What openssl says of leaf, the authority above it and the root, at a time. */
function opensslVerifies(leaf: Uint8Array, authority: Uint8Array, root: string, at: Date): boolean {
  const time = ['-attime', String(Math.floor(at.getTime() / 1000))];
  const files = ['-CAfile', write(root), '-untrusted', write(pemOf(authority)), write(pemOf(leaf))];
  return spawnSync('openssl', ['verify', ...time, '-no-CApath', '-no-CAstore', ...files]).status === 0;
}

/** @param raw r ‖ s. */
function opensslSigned(spki: Uint8Array, hash: 'sha256' | 'sha384', raw: Uint8Array, data: Uint8Array): boolean {
  const half = raw.length / 2;
  const signature = write(der.sequence(der.integer(raw.subarray(0, half)), der.integer(raw.subarray(half))));
  const key = write(execFileSync('openssl', ['pkey', '-pubin', '-inform', 'der'], { input: spki }));
  const arguments_ = ['dgst', `-${hash}`, '-verify', key, '-signature', signature, write(data)];
  return spawnSync('openssl', arguments_).status === 0;
}

const statusOf = async (one: Case, name: string) => {
  const options = { at: new Date(one.at), policy: one.policy ?? {}, without: { revocation: true } };
  const { checks } = await appraiseCpu(memberOf(one), options);
  return checks.find((check) => check.name === name)?.status;
};

describe.skipIf(!vectorsPresent || !hasOpenssl)('openssl agrees', () => {
  const readable = (one: Case) => one.expect.failed_check !== 'cpu_form';

  test.each(ofKind('snp').filter(readable))('about chain and signature of SEV-SNP: $id', async (one) => {
    const { report, certificates } = readCpuMember(memberOf(one));
    const [leaf, authority] = certificates;
    if (leaf === undefined || authority === undefined) throw new TypeError('no chain');
    const root = new TextDecoder().decode(vector(`cpu/${one.files.ca ?? 'roots/ask_ark_genoa.pem'}`));
    // The file has the ASK first and the ARK second.
    const ark = root.slice(root.lastIndexOf('-----BEGIN'));
    const verifies = opensslVerifies(leaf.der, authority.der, ark, new Date(one.at));
    expect(await statusOf(one, 'cpu_chain')).toBe(verifies ? 'pass' : 'fail');
    const { signature, signed } = parseSnpReport(report);
    const isSigned = opensslSigned(leaf.spki, 'sha384', signature, signed);
    expect(await statusOf(one, 'cpu_signature')).toBe(isSigned ? 'pass' : 'fail');
  });

  test.each(ofKind('tdx', 'az-tdx'))('about chain and signatures of TDX: $id', async (one) => {
    const quote = parseTdxQuote(bytesOf(one, 'quote'));
    const [pck, authority] = quote.chain;
    if (pck === undefined || authority === undefined) throw new TypeError('no chain');
    const root = vector('cpu/roots/intel_sgx_root.pem').toString();
    const verifies = opensslVerifies(pck.der, authority.der, root, new Date(one.at));
    expect(await statusOf(one, 'cpu_chain')).toBe(verifies ? 'pass' : 'fail');
    const isSigned =
      opensslSigned(quote.attestationKey.spki, 'sha256', quote.signature, quote.signed) &&
      opensslSigned(pck.spki, 'sha256', quote.qeSignature, quote.qeSigned);
    expect(await statusOf(one, 'cpu_signature')).toBe(isSigned ? 'pass' : 'fail');
  });

  test('about who signed the revocation lists', () => {
    const { collateral = {} } = collateralOf(caseOf('v5-uptodate'));
    const root = write(vector('cpu/roots/intel_sgx_root.pem'));
    const authority = write(collateral.pck_crl_issuer_chain ?? '');
    for (const [name, issuer] of [
      ['root_ca_crl', root],
      ['pck_crl', authority],
    ] as const) {
      const list = write(Buffer.from(collateral[name] ?? '', 'hex'));
      const said = spawnSync('openssl', ['crl', '-inform', 'der', '-in', list, '-noout', '-CAfile', issuer]);
      expect(said.stderr.toString()).toContain('verify OK');
    }
  });
});

describe.skipIf(!vectorsPresent)('dcap-qvl agrees', () => {
  /** It judges the guest's attributes less, and asks all 16 TDX components of a level, where Intel's rule leaves out two. */
  const DIFFERS: Readonly<Record<string, string>> = { 'v4-gcp-cos113': 'OutOfDate' };

  test.each(ofKind('tdx', 'az-tdx'))('$id', async (one) => {
    const { collateral = null } = collateralOf(one);
    let said: string | null;
    try {
      const bytes = (name: string) => Buffer.from(collateral?.[name] ?? '', 'hex');
      const parts = { tcb_info_signature: bytes('tcb_info_signature'), pck_crl: bytes('pck_crl') };
      const more = { qe_identity_signature: bytes('qe_identity_signature'), root_ca_crl: bytes('root_ca_crl') };
      const given = collateral === null ? null : { ...collateral, ...parts, ...more };
      said = qvl.verify(bytesOf(one, 'quote'), given, Date.parse(one.at) / 1000).status;
    } catch {
      said = null;
    }
    const tcb = ['UpToDate', 'OutOfDate'] as const;
    const { valid, claims } = await appraiseCpu(memberOf(one), { at: new Date(one.at), policy: { tcb } });
    expect(DIFFERS[one.id] ?? (valid ? claims?.tcb_status : null)).toBe(said);
  });
});

test.runIf(vectorsPresent)('the pinned roots are those of the vectors', async () => {
  const { amdRoots, intelRoots } = await import('../../../verify/cpu/pinned-roots.ts');
  const files = ['ask_ark_milan.pem', 'ask_ark_genoa.pem', 'ask_ark_turin_vcek.pem', 'intel_sgx_root.pem'];
  const roots = [...amdRoots(), ...intelRoots()];
  expect(roots).toHaveLength(files.length);
  for (const [i, root] of roots.entries()) {
    const text = vector(`cpu/roots/${files[i]}`).toString();
    const last = text.slice(text.lastIndexOf('-----BEGIN')).replace(/-----[^-]+-----|\s/g, '');
    // The signed part stands behind the certificate's own tag and length, four bytes.
    expect(Buffer.from(fromBase64(last)).subarray(4, 4 + root.tbs.length)).toEqual(Buffer.from(root.tbs));
  }
});
