// Collects the evidence of an Azure guest, where only the paravisor (HCL) can reach the processor: its report from the virtual TPM, that
// TPM's quote over our bytes, and endorsements from Azure's metadata service. tpm2-tools read the TPM, to which this user needs access.
import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseHclReport, readLimited } from '../../verify/service.ts';
import { AttesterError } from '../common/attester.ts';
import { createLock, holding } from '../common/lock.ts';
import { lastLineOf, RunError, runProgram, withTemporaryFolder } from '../common/program.ts';
import type { AmdEndorsements, HostCertificates } from './amd.ts';
import { type CpuCollector, type CpuEvidence, refused, unavailable } from './cpu-collector.ts';
import type { IntelCollateral } from './intel.ts';

interface AzureOptions {
  readonly amd: Pick<AmdEndorsements, 'endorse'>;
  readonly intel: Pick<IntelCollateral, 'endorse'>;
  readonly fetch: typeof globalThis.fetch;
  /** Azure's metadata service; `http://169.254.169.254` by default. */
  readonly imds_url?: string;
  /** The whole environment of tpm2-tools: PATH, and which TPM (TPM2TOOLS_TCTI). */
  readonly environment: Readonly<Record<string, string>>;
  readonly deadline_ms?: number;
}

const IMDS_URL = 'http://169.254.169.254';
/** The TPM index of the paravisor's report, and the handle of the key that the report certifies. */
const HCL_REPORT = '0x01400001';
const ATTESTATION_KEY = '0x81000003';
const DEADLINE_MS = 20_000;
const MAX_OUTPUT_BYTES = 64 * 1024;
const MAX_RESPONSE_BYTES = 256 * 1024;
const DIGEST_BYTES = 32;
const PCRS = 24;
const TD_REPORT_BYTES = 1024;
/** Attempts at a quote during which no register is extended. */
const MAX_ATTEMPTS = 3;

/** @throws {AttesterError} there is no such TPM, or it has no report of a paravisor. */
export async function createAzureCollector(options: AzureOptions): Promise<CpuCollector> {
  const { fetch, imds_url = IMDS_URL, environment, deadline_ms = DEADLINE_MS } = options;
  const lock = createLock();

  async function tool(name: string, args: readonly string[], cwd: string, signal: AbortSignal): Promise<void> {
    const limits = { cwd, env: environment, deadline_ms, max_output_bytes: MAX_OUTPUT_BYTES, signal };
    const { exit_code, stderr } = await runProgram(name, args, limits).catch((cause: unknown) => {
      if (!(cause instanceof RunError)) throw cause;
      const words = cause.reason === 'not_found' ? 'is not installed (tpm2-tools)' : cause.message;
      throw unavailable(`${name} ${words}`, { cause });
    });
    if (exit_code !== 0) throw unavailable(`${name} failed: ${lastLineOf(stderr)}`);
  }

  /** Runs `work` with a temporary folder for tpm2-tools, one call at a time. */
  const inFolder = <T>(work: (folder: string) => Promise<T>, signal: AbortSignal): Promise<T> =>
    holding([lock], () => withTemporaryFolder('countersign-tpm-', work), signal);

  const readHcl = (signal: AbortSignal) =>
    inFolder(async (folder) => {
      await tool('tpm2_nvread', ['-C', 'o', HCL_REPORT, '-o', 'hcl'], folder, signal);
      return hclOf(await readFile(join(folder, 'hcl')));
    }, signal);

  /** A quote over all registers, with their values. */
  const quote = (extraData: Buffer, signal: AbortSignal) =>
    inFolder(async (folder) => {
      const read = async (name: string) => readFile(join(folder, name));
      const quoting = ['-c', ATTESTATION_KEY, '-l', 'sha256:all', '-g', 'sha256', '-q', extraData.toString('hex')];
      for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        await tool('tpm2_pcrread', ['sha256:all', '-o', 'before'], folder, signal);
        await tool('tpm2_quote', [...quoting, '-m', 'message', '-s', 'signature', '-f', 'plain'], folder, signal);
        await tool('tpm2_pcrread', ['sha256:all', '-o', 'after'], folder, signal);
        const [before, after] = [await read('before'), await read('after')];
        if (before.length !== PCRS * DIGEST_BYTES) throw refused(`the TPM has ${before.length} bytes of registers`);
        if (before.equals(after)) return tpmOf(await read('message'), await read('signature'), after);
      }
      throw unavailable("the TPM's registers change all the time");
    }, signal);

  async function imds(path: string, init: RequestInit, signal: AbortSignal): Promise<Record<string, unknown>> {
    try {
      const both = AbortSignal.any([signal, AbortSignal.timeout(deadline_ms)]);
      const response = await fetch(imds_url + path, { ...init, signal: both, redirect: 'error' });
      if (response.status !== 200) throw new Error(`it answered ${response.status}`);
      return objectOf(await readLimited(response, MAX_RESPONSE_BYTES));
    } catch (cause) {
      signal.throwIfAborted();
      const { cause: inner = cause } = cause as Error;
      throw unavailable(`Azure's metadata service, ${path}: ${(inner as Error).message.slice(0, 200)}`, { cause });
    }
  }

  async function endorseSnp(report: Buffer, signal: AbortSignal) {
    // Where Azure provides no certificates, AMD's service does.
    const certificates = await imds('/metadata/THIM/amd/certification', { headers: { Metadata: 'true' } }, signal)
      .then(hostCertificates)
      .catch((error: unknown) => {
        if (!(error instanceof AttesterError)) throw error;
        return {};
      });
    return options.amd.endorse({ report, certificates }, signal);
  }

  async function quoteTdx(hardware: Buffer, signal: AbortSignal): Promise<Buffer> {
    const report = hardware.subarray(0, TD_REPORT_BYTES).toString('base64url');
    const headers = { 'content-type': 'application/json' };
    const found = await imds('/acc/tdquote', { method: 'POST', headers, body: JSON.stringify({ report }) }, signal);
    if (typeof found.quote !== 'string') throw unavailable("Azure's metadata service gave no quote");
    return Buffer.from(found.quote, 'base64url');
  }

  const { type } = await readHcl(new AbortController().signal);
  return {
    type,
    simulated: null,
    async collect(reportData, signal): Promise<CpuEvidence> {
      const hcl = await readHcl(signal);
      const tpm = await quote(Buffer.from(reportData.subarray(0, DIGEST_BYTES)), signal);
      const common = { type: hcl.type, report: hcl.bytes.toString('base64'), tpm };
      if (hcl.type === 'AZURE_SEV_SNP') return { ...common, ...(await endorseSnp(hcl.hardware, signal)) };
      const signed = await quoteTdx(hcl.hardware, signal);
      return {
        ...common,
        quote: signed.toString('base64'),
        ...(await options.intel.endorse({ report: signed }, signal)),
      };
    },
  };
}

/** @throws {Error} with our own message: the parser's would quote the response. */
function objectOf(bytes: Uint8Array): Record<string, unknown> {
  let value: unknown = null;
  try {
    value = JSON.parse(Buffer.from(bytes).toString());
  } catch {
    // Treated as any other value that is no object.
  }
  if (typeof value !== 'object' || value === null) throw new Error('it answered something else than a JSON object');
  return value as Record<string, unknown>;
}

interface Hcl {
  readonly type: 'AZURE_SEV_SNP' | 'AZURE_TDX';
  readonly hardware: Buffer;
  /** Without the unused rest of the TPM's index. */
  readonly bytes: Buffer;
}

/** @throws {AttesterError} */
function hclOf(bytes: Buffer): Hcl {
  try {
    const { type, hardware, runtimeData } = parseHclReport(bytes);
    const end = runtimeData.byteOffset - bytes.byteOffset + runtimeData.length;
    return { type: `AZURE_${type}`, hardware: Buffer.from(hardware), bytes: bytes.subarray(0, end) };
  } catch (cause) {
    throw refused(`the paravisor's report: ${(cause as Error).message}`, { cause });
  }
}

const tpmOf = (message: Buffer, signature: Buffer, pcrs: Buffer) => ({
  message: message.toString('base64'),
  signature: signature.toString('base64'),
  pcrs: Array.from({ length: PCRS }, (_, i) => pcrs.toString('hex', i * DIGEST_BYTES, (i + 1) * DIGEST_BYTES)),
});

/** Azure's response has two texts, of which the second begins with the authority. @throws {AttesterError} */
function hostCertificates({ vcekCert, certificateChain }: Record<string, unknown>): HostCertificates {
  try {
    return { VCEK: new X509Certificate(String(vcekCert)), authority: new X509Certificate(String(certificateChain)) };
  } catch (cause) {
    throw unavailable("Azure's metadata service gave no certificates", { cause });
  }
}
